"""The registry's wire format: where an encoded key or value names its schema.

The name stands either in front of the value (magic 0, id), or in a header (magic 1, GUID). Protobuf adds the indexes
that lead to the message within its file (Java: ``PrefixSchemaIdSerializer``, ``HeaderSchemaIdSerializer``,
``MessageIndexes``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from spark_kafka_sink.records.columns import (
    Int32Array,
    Int64Array,
    binary_array,
    binary_column,
    bytes_column,
    encode_varint,
    int32_array,
    null_mask,
    stable_order,
)
from spark_kafka_sink.records.encode import RowJoin, header_entries
from spark_kafka_sink.schemas.encoding.encoder import Fault

KEY_HEADER: Final = "__key_schema_id"
VALUE_HEADER: Final = "__value_schema_id"

_MAGIC_ID = b"\0"
_MAGIC_GUID = b"\1"


def id_prefix(schema_id: int, message_indexes: Sequence[int] = ()) -> bytes:
    """The bytes in front of the value. ``message_indexes``: empty unless the format is Protobuf."""
    return _MAGIC_ID + schema_id.to_bytes(4, "big") + _indexes(message_indexes)


def guid_header(guid: bytes, message_indexes: Sequence[int] = ()) -> bytes:
    """The value of ``KEY_HEADER`` or ``VALUE_HEADER``. ``guid``: 16 bytes."""
    return _MAGIC_GUID + guid + _indexes(message_indexes)


def _indexes(message_indexes: Sequence[int]) -> bytes:
    """The number of indexes, then each index, as varints. The first message of a file, ``[0]``, is one zero."""
    if not message_indexes:
        return b""
    if tuple(message_indexes) == (0,):
        return encode_varint(0)
    return b"".join(encode_varint(number) for number in (len(message_indexes), *message_indexes))


def with_schema_headers(headers: pa.Array | None, added: Mapping[str, pa.BinaryArray], rows: int) -> pa.ListArray:
    """The rows' headers, and behind them those of ``added``: name → a value per row, null where a row has none."""
    counts, keys, values = _entries(headers, rows)
    row_of_entry = [np.repeat(np.arange(rows, dtype=np.int32), counts)]
    all_keys, all_values, place_of_key = [keys], [values], [np.arange(len(keys), dtype=np.int32)]
    for name, column in added.items():
        present = np.flatnonzero(~null_mask(column)).astype(np.int32)
        row_of_entry.append(present)
        place_of_key.append(np.full(len(present), sum(map(len, all_keys)), np.int32))
        all_keys.append(bytes_column([name.encode()]))
        all_values.append(column.take(int32_array(present)))
    row_of = np.concatenate(row_of_entry)
    order = stable_order(row_of).astype(np.int32)
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(np.bincount(row_of, minlength=rows), out=offsets[1:])
    entries = pa.StructArray.from_arrays(
        [
            pa.concat_arrays(all_keys).take(int32_array(np.concatenate(place_of_key)[order])),
            pa.concat_arrays(all_values).take(int32_array(order)),
        ],
        ["key", "value"],
    )
    return pa.ListArray.from_arrays(int32_array(offsets), entries)


def _entries(headers: pa.Array | None, rows: int) -> tuple[Int64Array, pa.BinaryArray, pa.BinaryArray]:
    if headers is not None:
        return header_entries(headers)
    return np.zeros(rows, np.int64), bytes_column([]), bytes_column([])


class PlainEncoder:
    """An ``Encoder`` of strings and bytes, which are encoded already. It only puts the prefix in front."""

    def encode(self, array: pa.Array, prefix: bytes = b"", faults: list[Fault] | None = None) -> pa.BinaryArray:
        values = binary_column(array)
        return prefixed(values, [prefix]) if prefix else values


def prefixed(values: pa.BinaryArray, prefixes: Sequence[bytes], codes: Int32Array | None = None) -> pa.BinaryArray:
    """``prefixes[codes[row]]`` and the value of each row, null where the value is. ``codes``: None for one prefix."""
    order = np.zeros(len(values), np.int32) if codes is None else codes
    missing = null_mask(values) if values.null_count else None
    if missing is not None:
        order = np.where(missing, np.int32(len(prefixes)), order)
    join = RowJoin(len(values), values.nbytes)
    join.column(bytes_column([*prefixes, b""]), order)
    join.column(values)
    data, starts = join.finish()
    return binary_array(np.ascontiguousarray(starts), data, missing)
