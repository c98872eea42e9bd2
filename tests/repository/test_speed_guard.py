"""Nothing on the hot path becomes much slower unnoticed."""

import pytest

from benchmarks.guard import SUBJECTS, expected, measure

SLOWER = 1.3
ATTEMPTS = 8


@pytest.fixture(scope="module")
def slower() -> dict[str, float]:
    """How many times as long each subject takes, by the best of a few attempts: a busy machine only adds."""
    known = expected()
    best = dict.fromkeys(SUBJECTS, float("inf"))
    for _ in range(ATTEMPTS):
        for name, reading in measure().items():
            best[name] = min(best[name], reading.ratio / known[name])
        if max(best.values()) <= SLOWER:
            break
    return best


@pytest.mark.parametrize("subject", SUBJECTS)
def test_cpu_time_per_row_is_not_much_above_the_number_in_the_repository(slower, subject):
    assert slower[subject] <= SLOWER, (
        f"{slower[subject]:.2f} times as slow; if it is worth it: benchmarks.guard --update"
    )
