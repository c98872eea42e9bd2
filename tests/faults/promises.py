"""What must be in the log after a fault, and the check that it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tests.faults.settings import Guarantee

Write = Callable[[], None]


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


@dataclass(frozen=True)
class Fault:
    """``strike`` breaks a cluster, writes while it is broken, and mends it.

    Promises are for the settings of each guarantee, None where the fault does not exist: with acks=0 no answer can be
    lost. ``config``: what the producer is set to besides.
    """

    name: str
    strike: Callable[[Any, Write], None]
    idempotent: Promise
    one_in_flight: Promise | None
    five_in_flight: Promise | None
    no_acks: Promise | None
    config: Mapping[str, object] = field(default_factory=dict, kw_only=True)

    def promise(self, guarantee: Guarantee) -> Promise | None:
        return {
            Guarantee.IDEMPOTENT: self.idempotent,
            Guarantee.ONE_IN_FLIGHT: self.one_in_flight,
            Guarantee.FIVE_IN_FLIGHT: self.five_in_flight,
            Guarantee.NO_ACKS: self.no_acks,
        }[guarantee]

    def __str__(self) -> str:
        return self.name


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
