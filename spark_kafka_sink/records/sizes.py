"""The sizes of records before they are encoded: upper bounds for batches, and Java's estimate for its limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from spark_kafka_sink.records.arrays import Int32Array, Int64Array, Order, slot_lengths
from spark_kafka_sink.records.batch import HEADER_SIZE
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.varint_columns import varint_sizes
from spark_kafka_sink.records.varints import varint_size

MAX_RECORD_OVERHEAD = 21
"""Java's ``DefaultRecord.MAX_RECORD_OVERHEAD``: length 5, attributes 1, timestamp delta 10, offset delta 5."""

SMALLEST_RECORD = 7
"""The bytes of an encoded record without key, value and headers."""


@dataclass(frozen=True, slots=True)
class FieldLengths:
    """The bytes of each row's fields.

    ``key`` and ``value``: the bytes of the field, -1 where null, None for an absent column. ``payload``: the bytes of
    all fields with their length varints and the header count (Java: ``DefaultRecord.sizeOf``). For example, a row with
    the key ``k``, a null value and no headers has key 1, value -1 and payload 4: ``02 6b``, ``01`` and ``00``.
    """

    key: Int32Array | None
    value: Int32Array | None
    payload: Int64Array

    @classmethod
    def of(cls, columns: RecordColumns) -> FieldLengths:
        key, value = (None if column is None else slot_lengths(column) for column in (columns.key, columns.value))
        fields = [field_sizes(lengths) for lengths in (key, value) if lengths is not None]
        payload = fields.pop() if fields else np.zeros(len(columns), np.int64)
        payload += (key is None) + (value is None) + (columns.headers is None)
        for sizes in fields:
            payload += sizes
        if columns.headers is not None:
            payload += slot_lengths(columns.headers)
        return cls(key, value, payload)

    def __getitem__(self, rows: slice | Order) -> FieldLengths:
        key, value = (None if column is None else column[rows] for column in (self.key, self.value))
        return FieldLengths(key, value, self.payload[rows])


def field_sizes(lengths: Int32Array) -> Int64Array:
    """The bytes of fields of these lengths (-1: null), including their length varints."""
    sizes = varint_sizes(lengths)
    sizes += np.maximum(lengths, 0)
    return sizes


def cumulate(sizes: Int64Array) -> Sequence[int]:
    """The bytes of the first 0, 1, …, n rows: ``n + 1`` entries."""
    cumulative = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=cumulative[1:])
    return cumulative.data


def record_size_bounds(lengths: FieldLengths, delta_bound: int, timestamp_bound_bytes: int) -> Int64Array:
    """An upper bound of each encoded record, its length varint included.

    Holds for offset deltas from 0 to ``delta_bound`` and for timestamp deltas whose varints take at most
    ``timestamp_bound_bytes`` (10 holds for all).
    """
    bodies = lengths.payload + (1 + timestamp_bound_bytes + varint_size(delta_bound))
    return bodies + varint_sizes(bodies)


@lru_cache(16)
def bytes_of_linger(linger_ms: float) -> int:
    """The most bytes of a timestamp delta within twice linger.ms. A batch seldom waits longer, and a larger bound would
    cost every record of every batch.
    """
    return varint_size(int(2 * linger_ms) + 50)


def one_record_size_bound(
    header_bytes: int, fields: Sequence[bytes | None], delta_bound: int, timestamp_bound_bytes: int
) -> int:
    """``record_size_bounds`` of one record. ``header_bytes``: the bytes of the header section."""
    body = _payload(header_bytes, fields) + 1 + timestamp_bound_bytes + varint_size(delta_bound)
    return body + varint_size(body)


def _payload(header_bytes: int, fields: Sequence[bytes | None]) -> int:
    """The payload as in ``FieldLengths``, of a key and a value in ``fields``."""
    return header_bytes + sum(1 if field is None else varint_size(len(field)) + len(field) for field in fields)


def one_java_size_estimate(header_bytes: int, fields: Sequence[bytes | None]) -> int:
    """``java_size_estimate`` of one record, which may be larger than a column holds."""
    return _payload(header_bytes, fields) + HEADER_SIZE + MAX_RECORD_OVERHEAD


def java_size_estimate(lengths: FieldLengths) -> Int64Array:
    """The size that Java's producer compares with ``max.request.size``: an uncompressed batch of this record alone.

    Source: ``AbstractRecords.estimateSizeInBytesUpperBound``.
    """
    return lengths.payload + (HEADER_SIZE + MAX_RECORD_OVERHEAD)
