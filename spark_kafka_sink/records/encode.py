"""Columns → records of a record batch v2 (Java: ``DefaultRecord.writeTo``), all rows at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.columns import RecordColumns, slot_lengths
from spark_kafka_sink.records.row_join import EncodedRecords, Order, RowJoin
from spark_kafka_sink.records.sizes import field_sizes
from spark_kafka_sink.records.varints import Int64Array, encode_varint, varint_size, varint_sizes


def encode_records(
    columns: RecordColumns,
    offset_deltas: npt.NDArray[np.integer],
    timestamp_deltas: Int64Array | int,
    order: Order | None = None,
) -> EncodedRecords:
    """Encodes records into one buffer, each with its length varint, ready to follow a batch header.

    Record ``i`` is row ``order[i]`` of the columns (default: row ``i``), with ``offset_deltas[i]`` and
    ``timestamp_deltas[i]`` (ms, any int64; an int: the same for all). ``columns.timestamps`` is not looked at: deltas
    are against the batch's base timestamp, which the caller knows. At most 2 GiB per call.
    """
    rows = len(offset_deltas)
    offsets = offset_deltas.astype(np.int64, copy=False)
    key_lengths = _lengths(columns.key, rows, order)
    value_lengths = _lengths(columns.value, rows, order)
    bodies = 1 + varint_sizes(offsets)
    bodies += varint_size(timestamp_deltas) if isinstance(timestamp_deltas, int) else varint_sizes(timestamp_deltas)
    bodies += field_sizes(key_lengths)
    bodies += field_sizes(value_lengths)
    bodies += 1 if columns.headers is None else _lengths(columns.headers, rows, order)

    join = RowJoin(rows)
    join.varints(bodies)
    join.varint(0)  # the attributes' byte: none are defined
    if isinstance(timestamp_deltas, int):
        join.varint(timestamp_deltas)
    else:
        join.varints(timestamp_deltas)
    join.varints(offsets)
    for lengths, column in ((key_lengths, columns.key), (value_lengths, columns.value)):
        join.varints(lengths)
        if column is not None:
            join.column(column, order)
    if columns.headers is None:
        join.varint(0)
    else:
        join.column(columns.headers, order)
    return join.finish()


def _lengths(array: pa.BinaryArray | None, rows: int, order: Order | None) -> Int64Array:
    if array is None:
        return np.full(rows, -1, np.int64)
    lengths = slot_lengths(array)
    return lengths if order is None else lengths[order]


def header_section(headers: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    """A record's headers as they are encoded: their count, then each key and value with its length."""
    section = bytearray(encode_varint(len(headers)))
    for key, value in headers:
        section += encode_varint(len(key)) + key
        section += encode_varint(-1) if value is None else encode_varint(len(value)) + value
    return bytes(section)
