"""The package does what the recorded files say. If a change is intended: ``python -m tests.recorded``."""

import difflib

import pytest

from tests.recorded import FILES, RECORDERS


@pytest.mark.parametrize("name", RECORDERS)
def test_it_does_what_is_recorded(name):
    recorded = (FILES / name).read_text().splitlines()
    difference = list(difflib.unified_diff(recorded, RECORDERS[name](), "recorded", "now", lineterm="", n=1))
    assert not difference, "\n".join(["", *difference[:200], "If this is intended: python -m tests.recorded"])


def test_each_file_has_a_recorder():
    assert {path.name for path in FILES.iterdir()} == set(RECORDERS)
