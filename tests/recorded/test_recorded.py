"""The package does what the recorded files say. If a change is intended: ``python -m tests.recorded``."""

import difflib

import pytest

from tests.recorded import FILES, RECORDERS

_BY_KAFKA = "golden_bytes.txt"
"""Changes only with the release of Kafka's jars and the versions that the client speaks."""


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in RECORDERS if name != _BY_KAFKA),
        pytest.param(_BY_KAFKA, marks=[pytest.mark.jvm, pytest.mark.slow]),
    ],
)
def test_it_does_what_is_recorded(name):
    recorded = (FILES / name).read_text().splitlines()
    difference = list(difflib.unified_diff(recorded, RECORDERS[name](), "recorded", "now", lineterm="", n=1))
    assert not difference, "\n".join(["", *difference[:200], "If this is intended: python -m tests.recorded"])


def test_each_file_has_a_recorder():
    assert {path.name for path in FILES.iterdir()} == set(RECORDERS)
