"""How much room rows may need, for a claim to cut them by: from bounds of their sizes and the span of their times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.accumulator.claim import RowSizes, Run
from spark_kafka_sink.records.columns import Int64Array
from spark_kafka_sink.records.sizes import FieldLengths, record_size_bounds, varint_size

_SMALLEST_RECORD = 7
_WIDEST_TIMESTAMP_DELTA = 10


@dataclass(frozen=True, slots=True)
class RowTimes:
    """The record timestamps of some rows: one for all, or one each.

    ``bound_bytes``: what a record's delta to its batch's first timestamp may take.
    """

    values: Int64Array | int
    earliest: int
    latest: int
    bound_bytes: int

    @classmethod
    def one_for_all(cls, timestamp: int, linger_ms: float) -> RowTimes:
        # Twice the linger: what a batch waits for is rarely more, and every byte of the bound is lost to batches.
        return cls(timestamp, timestamp, timestamp, varint_size(int(2 * linger_ms) + 50))

    @classmethod
    def one_each(cls, timestamps: Int64Array) -> RowTimes:
        earliest, latest = int(timestamps.min()), int(timestamps.max())
        return cls(timestamps, earliest, latest, min(varint_size(2 * (latest - earliest)), _WIDEST_TIMESTAMP_DELTA))

    @property
    def max_delta(self) -> int:
        """The largest delta whose zigzag varint takes ``bound_bytes``."""
        return (1 << (7 * self.bound_bytes - 1)) - 1

    def sorted_by(self, order: npt.NDArray[np.intp] | None) -> RowTimes:
        if isinstance(self.values, int) or order is None:
            return self
        return RowTimes(self.values[order], self.earliest, self.latest, self.bound_bytes)

    def slice(self, start: int, end: int) -> RowTimes:
        values = self.values if isinstance(self.values, int) else self.values[start:end]
        return RowTimes(values, self.earliest, self.latest, self.bound_bytes)


def size_bounds(lengths: FieldLengths, timestamp_bytes: int, limit: int) -> Int64Array:
    """Bytes that each record may take in a batch of ``limit`` bytes; ``timestamp_bytes``: see ``RowTimes``."""
    return record_size_bounds(lengths, limit // _SMALLEST_RECORD, timestamp_bytes)


def row_sizes(runs: Sequence[Run], cumulative: Sequence[int], limit: int, times: RowTimes) -> RowSizes:
    """``cumulative`` and ``times`` in the order of ``runs``."""
    return RowSizes(
        runs=runs,
        cumulative=cumulative,
        limit=limit,
        timestamps=times.values if isinstance(times.values, int) else times.values.data,
        earliest=times.earliest,
        latest=times.latest,
        max_timestamp_delta=times.max_delta,
    )
