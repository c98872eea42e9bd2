"""The stage ``pace``: how much a task with ``maxBytesPerSecondPerTask`` or ``maxRowsPerSecondPerTask`` may append."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, Protocol

from spark_kafka_sink.common.clock import NEVER, Clock
from spark_kafka_sink.producer.task_meter import TaskMeter
from spark_kafka_sink.records.columns import FieldLengths, Int64Array, cumulated, record_size_bounds
from spark_kafka_sink.spark.rows import Rows

_OFFSET_DELTAS: Final = 64
"""Their varints take two bytes, as most of a batch do."""

PART_MS: Final = 100.0
"""A task appends this time's worth at once; at least one row."""

CATCH_UP_MS: Final = 500.0
"""A task that was late, as its rows or memory came late, makes up for this much."""


class Sleep(Protocol):
    """Waits so many ms; an interrupt (Ctrl-C) ends it."""

    def __call__(self, ms: float, /) -> object: ...


class Pace:
    """Keeps one task to its rate. It waits before an append, so that no row waits in a batch. None: no limit."""

    def __init__(self, bytes_per_s: int | None, rows_per_s: int | None, clock: Clock, sleep: Sleep) -> None:
        self._bytes_per_ms = NEVER if bytes_per_s is None else bytes_per_s / 1000
        self._rows_per_ms = NEVER if rows_per_s is None else rows_per_s / 1000
        self._clock = clock
        self._sleep = sleep
        self._next_at = clock.now()

    def parts(self, sizes: Int64Array) -> Iterator[slice]:
        """Rows of these sizes in parts that may be appended one after the other, each after its ``wait``."""
        before = cumulated(sizes)
        start, total = 0, len(sizes)
        while start < total:
            end = bisect_right(before, before[start] + PART_MS * self._bytes_per_ms) - 1
            end = max(start + 1, int(min(end, start + PART_MS * self._rows_per_ms)))
            yield slice(start, end)
            size = before[end] - before[start]
            self._next_at += max(size / self._bytes_per_ms, (end - start) / self._rows_per_ms)
            start = end

    def wait(self) -> float:
        """Wait until the next part is due; returns how long it took (ms)."""
        began = self._clock.now()
        self._next_at = max(self._next_at, began - CATCH_UP_MS)
        while (left := self._next_at - self._clock.now()) > 0:
            self._sleep(left)
        return self._clock.now() - began


class PaceRows:
    """Yields the rows in parts, each when it is due."""

    def __init__(self, pace: Pace, meter: TaskMeter) -> None:
        self._pace = pace
        self._meter = meter

    def __call__(self, rows: Rows) -> Iterator[Rows]:
        sizes = record_size_bounds(FieldLengths.of(rows.columns), _OFFSET_DELTAS, 1)
        for part in self._pace.parts(sizes):
            self._meter.paused(self._pace.wait())
            yield rows[part]
