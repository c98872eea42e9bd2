"""Headers that name the schemas of key and value, beside those of the rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from spark_kafka_sink.records.columns import Int64Array, bytes_column, int32_array, null_mask, stable_order
from spark_kafka_sink.records.encode import header_entries


def with_schema_headers(headers: pa.Array | None, added: Mapping[str, pa.BinaryArray], rows: int) -> pa.ListArray:
    """``added``: name → its value per row, null where the row has no such header. They come last in their row."""
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
