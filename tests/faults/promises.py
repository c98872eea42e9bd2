"""What must be in the log after a fault, and the check that it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


class Lost(Enum):
    NOTHING = "every row is delivered"
    THE_FAILED = "some rows are reported as failed, all others are there"
    ANY = "rows may be missing, and nobody says which"


@dataclass(frozen=True)
class Promise:
    """``again``: rows may be there more than once. ``ordered``: per partition, going by a row's first time there."""

    lost: Lost = Lost.NOTHING
    again: bool = False
    ordered: bool = True


ONCE = Promise()
AGAIN = Promise(again=True)
ANY_ORDER = Promise(ordered=False)
AGAIN_ANY_ORDER = Promise(again=True, ordered=False)
REFUSED = Promise(Lost.THE_FAILED)
REFUSED_AGAIN = Promise(Lost.THE_FAILED, again=True)
REFUSED_AGAIN_ANY_ORDER = Promise(Lost.THE_FAILED, again=True, ordered=False)
SOME = Promise(Lost.ANY)

Log = Mapping[int, Sequence[int]]
"""Partition to the numbers of its rows, in the order of their offsets."""


def check(
    promise: Promise, log: Log, written: int, failed: Mapping[int, Exception], gone: frozenset[int] = frozenset()
) -> None:
    """Rows 0 to ``written - 1`` were written; ``failed`` were reported so; ``gone`` are those a fault took away."""
    times = Counter(row for rows in log.values() for row in rows)
    missing = set(range(written)) - gone - times.keys()
    assert times.keys() <= set(range(written)) - gone, "rows that nobody wrote, or that were deleted"
    match promise.lost:
        case Lost.NOTHING:
            assert not failed, next(iter(failed.values()))
            assert not missing
        case Lost.THE_FAILED:
            assert failed, "the fault was to keep rows from being delivered"
            assert missing <= failed.keys(), "rows are missing that were reported as delivered"
        case Lost.ANY:
            assert not failed, next(iter(failed.values()))
    if not promise.again:
        assert not [row for row, count in times.items() if count > 1], "rows are there twice"
    if promise.ordered:
        for partition, rows in log.items():
            first_times = list(dict.fromkeys(rows))
            assert first_times == sorted(first_times), f"partition {partition} is out of order"
