"""``SendTimes``: when records of ``send`` were sent, by the millisecond."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class SendTime(NamedTuple):
    """``ms`` (epoch) is when the records from ``start`` on were sent, up to the next one's ``start``."""

    start: int
    ms: int


_start = itemgetter(0)


class SendTimes:
    """The runs of records, guarded as these. There are few, and often one: so numpy only where the rows are columns.

    A run may still be added when the records are closed; it is meant for a later record, and no row that counts has it.
    """

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: list[SendTime] = []

    def note(self, row: int, ms: int) -> None:
        """Rows from ``row``, the next one, on are sent at ``ms``."""
        if self.runs and self.runs[-1].start == row:  # an interrupt kept a record out
            self.runs[-1] = SendTime(row, ms)
        else:
            self.runs.append(SendTime(row, ms))

    def __getitem__(self, row: int) -> int:
        runs = self.runs
        return runs[-1].ms if runs[-1].start <= row else runs[bisect_right(runs, row, key=_start) - 1].ms

    def within(self, start: int, end: int) -> Iterator[SendTime]:
        """The runs that rows ``start .. end - 1`` have; the first one begins at ``start``."""
        runs = self.runs
        at = bisect_right(runs, start, key=_start)
        yield SendTime(start, runs[at - 1].ms)
        while at < len(runs) and runs[at].start < end:
            yield runs[at]
            at += 1

    def column(self, rows: int) -> npt.NDArray[np.int64]:
        """The time of each of the first ``rows`` records."""
        column = np.full(rows, self.runs[0].ms, np.int64)
        for start, ms in self.runs[1:]:
            column[start:] = ms
        return column
