"""Every fault can be planted: code that moves takes its fault along. ``make test-planted`` plants them."""

from collections import Counter

import pytest

from tests.planted.__main__ import planted
from tests.planted.faults import FAULTS
from tests.repository.files import PACKAGE, ROOT


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_it_can_be_planted(fault):
    changed = planted((PACKAGE / fault.file).read_text(), fault)
    compile(changed, fault.file, "exec")
    assert all((ROOT / path).exists() for path in fault.test.split())


def test_each_part_of_the_package_has_ten_faults():
    counts = Counter(fault.group for fault in FAULTS)
    assert set(counts) == {"engine", "sink", "exactly-once", "schemas", "security"}
    assert min(counts.values()) >= 10
