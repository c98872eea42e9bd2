"""Columns → records of a record batch v2 (Java: ``DefaultRecord.writeTo``), all rows at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.row_join import EncodedRecords, Order, RowJoin
from spark_kafka_sink.records.sizes import FieldLengths
from spark_kafka_sink.records.varints import Int64Array, encode_varint, varint_sizes

NO_ATTRIBUTES = b"\0"
NULL = encode_varint(-1)
NO_HEADERS = encode_varint(0)


def encode_records(
    columns: RecordColumns,
    offset_deltas: npt.NDArray[np.integer],
    timestamp_deltas: Int64Array | int,
    order: Order | None = None,
    lengths: FieldLengths | None = None,
) -> EncodedRecords:
    """Encodes records into one buffer, each with its length varint, ready to follow a batch header.

    Record ``i`` is row ``order[i]`` of the columns (default: row ``i``), with ``offset_deltas[i]`` and
    ``timestamp_deltas[i]`` (ms, any int64; an int: the same for all). ``columns.timestamps`` is not looked at: deltas
    are against the batch's base timestamp, which the caller knows. ``lengths``: the columns', where they are known, row
    by row as the columns. At most 2 GiB per call.
    """
    offsets = offset_deltas.astype(np.int64, copy=False)
    lengths = lengths or FieldLengths.of(columns)
    if order is not None:
        lengths = lengths.take(order)
    bodies = lengths.payload + varint_sizes(offsets) + len(NO_ATTRIBUTES)
    join = RowJoin(len(offsets))
    if isinstance(timestamp_deltas, int):
        timestamp = encode_varint(timestamp_deltas)
        join.varints(bodies + len(timestamp))
        join.fixed(NO_ATTRIBUTES + timestamp)
    else:
        join.varints(bodies + varint_sizes(timestamp_deltas))
        join.fixed(NO_ATTRIBUTES)
        join.varints(timestamp_deltas)
    join.varints(offsets)
    for each, column in ((lengths.key, columns.key), (lengths.value, columns.value)):
        if column is None or each is None:
            join.fixed(NULL)
        else:
            join.varints(each)
            join.column(column, order)
    if columns.headers is None:
        join.fixed(NO_HEADERS)
    else:
        join.column(columns.headers, order)
    return join.finish()


def header_section(headers: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    """A record's headers as they are encoded: their count, then each key and value with its length."""
    section = bytearray(encode_varint(len(headers)))
    for key, value in headers:
        section += encode_varint(len(key)) + key
        section += encode_varint(-1) if value is None else encode_varint(len(value)) + value
    return bytes(section)
