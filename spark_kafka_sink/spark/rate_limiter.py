"""The stage for ``maxBytesPerSecondPerTask`` and ``maxRowsPerSecondPerTask``."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from spark_kafka_sink.common.clock import NEVER, Clock
from spark_kafka_sink.common.waiting import sleep
from spark_kafka_sink.producer.task_output import TaskMeter
from spark_kafka_sink.records.sizes import FieldLengths, cumulate, record_size_bounds
from spark_kafka_sink.spark.rows import TaskRows

_OFFSET_DELTAS: Final = 64
"""An offset delta whose varint takes two bytes, as those of most rows of a batch do."""

PART_MS: Final = 100.0
"""The time whose share of rows a task appends at once (at least one row)."""

CATCH_UP_MS: Final = 500.0
"""The most time that a task catches up if rows or memory came late."""


class RateLimiter:
    """A stage that keeps one task to its rate (None: no limit). It yields the rows in parts, each when it is due.

    It waits before an append, so that no row waits in a batch. For example, at 1,000 rows per second, 250 rows become
    parts of 100, 100 and 50 rows (``PART_MS``), which are due 0, 100 and 200 ms after the first one.
    """

    def __init__(self, bytes_per_s: int | None, rows_per_s: int | None, clock: Clock, meter: TaskMeter) -> None:
        self._bytes_per_ms = NEVER if bytes_per_s is None else bytes_per_s / 1000
        self._rows_per_ms = NEVER if rows_per_s is None else rows_per_s / 1000
        self._clock = clock
        self._meter = meter
        self._next_at = clock.now()

    def __call__(self, rows: TaskRows) -> Iterator[TaskRows]:
        before = cumulate(record_size_bounds(FieldLengths.of(rows.columns), _OFFSET_DELTAS, 1))
        start, total = 0, len(rows)
        while start < total:
            end = bisect_right(before, before[start] + PART_MS * self._bytes_per_ms) - 1
            end = max(start + 1, int(min(end, start + PART_MS * self._rows_per_ms)))
            self._wait()
            yield rows[start:end]
            size = before[end] - before[start]
            self._next_at += max(size / self._bytes_per_ms, (end - start) / self._rows_per_ms)
            start = end

    def _wait(self) -> None:
        """Waits until the next part is due."""
        began = self._clock.now()
        self._next_at = max(self._next_at, began - CATCH_UP_MS)
        while (left := self._next_at - self._clock.now()) > 0:
            sleep(left)
        self._meter.paused(self._clock.now() - began)
