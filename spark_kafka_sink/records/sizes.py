"""How many bytes records take, before they are encoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.records.batch import HEADER_SIZE
from spark_kafka_sink.records.columns import RecordColumns, slot_lengths
from spark_kafka_sink.records.row_join import Order
from spark_kafka_sink.records.varints import Int64Array, Integers, varint_size, varint_sizes

MAX_RECORD_OVERHEAD = 21
"""Java's ``DefaultRecord.MAX_RECORD_OVERHEAD``: length 5, attributes 1, timestamp delta 10, offset delta 5."""


def field_sizes(lengths: Integers) -> Int64Array:
    """Bytes of fields of these lengths (-1: null), their length varints included."""
    return varint_sizes(lengths) + np.maximum(lengths, 0)


@dataclass(frozen=True, slots=True)
class FieldLengths:
    """Bytes of the fields of each row: -1 where one is null, None for a column that is not there.

    ``payload``: all fields with their own length varints and the count of headers (Java: ``DefaultRecord.sizeOf``).
    """

    key: npt.NDArray[np.int32] | None
    value: npt.NDArray[np.int32] | None
    payload: Int64Array

    @classmethod
    def of(cls, columns: RecordColumns) -> FieldLengths:
        key, value = (None if each is None else slot_lengths(each) for each in (columns.key, columns.value))
        payload = np.full(len(columns), columns.headers is None, np.int64)
        for lengths in (key, value):
            payload += 1 if lengths is None else field_sizes(lengths)
        if columns.headers is not None:
            payload += slot_lengths(columns.headers)
        return cls(key, value, payload)

    @classmethod
    def of_values(cls, lengths: npt.NDArray[np.int32]) -> FieldLengths:
        """Of rows that have nothing but values of these lengths."""
        null_key_and_no_headers = 2
        return cls(None, lengths, field_sizes(lengths) + null_key_and_no_headers)

    def slice(self, start: int, end: int) -> FieldLengths:
        """Rows ``start`` to ``end - 1``."""
        key, value = (None if each is None else each[start:end] for each in (self.key, self.value))
        return FieldLengths(key, value, self.payload[start:end])

    def take(self, order: Order) -> FieldLengths:
        """Row ``i`` of the answer is row ``order[i]``."""
        key, value = (None if each is None else each[order] for each in (self.key, self.value))
        return FieldLengths(key, value, self.payload[order])


def cumulated(sizes: Int64Array) -> Sequence[int]:
    """What the first 0, 1, … n rows take together."""
    cumulative = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=cumulative[1:])
    return cumulative.data


def record_size_bounds(lengths: FieldLengths, delta_bound: int, timestamp_bound_bytes: int) -> Int64Array:
    """A true upper bound of each encoded record, its length varint included.

    Holds for offset deltas from 0 to ``delta_bound`` and timestamp deltas whose varints take at most
    ``timestamp_bound_bytes`` (10 holds for all).
    """
    bodies = lengths.payload + (1 + timestamp_bound_bytes + varint_size(delta_bound))
    return bodies + varint_sizes(bodies)


def java_size_estimate(lengths: FieldLengths) -> Int64Array:
    """What Java's producer holds against ``max.request.size`` (``AbstractRecords.estimateSizeInBytesUpperBound``).

    The bytes of an uncompressed batch with this record alone, fixed parts at their longest.
    """
    return lengths.payload + (HEADER_SIZE + MAX_RECORD_OVERHEAD)
