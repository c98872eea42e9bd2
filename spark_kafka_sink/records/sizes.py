"""How many bytes records take, before they are encoded."""

from __future__ import annotations

import numpy as np

from spark_kafka_sink.records.batch import HEADER_SIZE
from spark_kafka_sink.records.columns import RecordColumns, slot_lengths
from spark_kafka_sink.records.varints import Int64Array, varint_size, varint_sizes

MAX_RECORD_OVERHEAD = 21
"""Java's ``DefaultRecord.MAX_RECORD_OVERHEAD``: length 5, attributes 1, timestamp delta 10, offset delta 5."""


def field_sizes(lengths: Int64Array) -> Int64Array:
    """Bytes of fields of these lengths (-1: null), their length varints included."""
    return varint_sizes(lengths) + np.maximum(lengths, 0)


def payload_sizes(columns: RecordColumns) -> Int64Array:
    """Bytes of each record's key, value and headers with their lengths and count (Java: ``DefaultRecord.sizeOf``)."""
    sizes = np.full(len(columns), columns.headers is None, np.int64)
    for column in (columns.key, columns.value):
        sizes += 1 if column is None else field_sizes(slot_lengths(column))
    if columns.headers is not None:
        sizes += slot_lengths(columns.headers)
    return sizes


def record_size_bounds(columns: RecordColumns, delta_bound: int, timestamp_bound_bytes: int) -> Int64Array:
    """A true upper bound of each encoded record, its length varint included.

    Holds for offset deltas from 0 to ``delta_bound`` and timestamp deltas whose varints take at most
    ``timestamp_bound_bytes`` (10 holds for all).
    """
    bodies = payload_sizes(columns) + (1 + timestamp_bound_bytes + varint_size(delta_bound))
    return bodies + varint_sizes(bodies)


def java_size_estimate(columns: RecordColumns) -> Int64Array:
    """What Java's producer holds against ``max.request.size`` (``AbstractRecords.estimateSizeInBytesUpperBound``).

    The bytes of an uncompressed batch with this record alone, fixed parts at their longest.
    """
    return payload_sizes(columns) + (HEADER_SIZE + MAX_RECORD_OVERHEAD)
