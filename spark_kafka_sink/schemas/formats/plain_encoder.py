"""Bytes that are encoded already, and prefixes that differ from row to row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from spark_kafka_sink.records.columns import Int32Array, binary_array, binary_column, bytes_column, null_mask
from spark_kafka_sink.records.encode import RowJoin
from spark_kafka_sink.schemas.encoding.encoder import Fault


class PlainEncoder:
    """An ``Encoder`` of strings and bytes: only puts the prefix in front."""

    def encode(self, array: pa.Array, prefix: bytes = b"", faults: list[Fault] | None = None) -> pa.BinaryArray:
        values = binary_column(array)
        return prefixed(values, [prefix]) if prefix else values


def prefixed(values: pa.BinaryArray, prefixes: Sequence[bytes], codes: Int32Array | None = None) -> pa.BinaryArray:
    """``prefixes[codes[row]]`` and the value per row; null where the value is. ``codes`` None: the only prefix."""
    order = np.zeros(len(values), np.int32) if codes is None else codes
    missing = null_mask(values) if values.null_count else None
    if missing is not None:
        order = np.where(missing, np.int32(len(prefixes)), order)
    join = RowJoin(len(values), values.nbytes)
    join.column(bytes_column([*prefixes, b""]), order)
    join.column(values)
    data, starts = join.finish()
    return binary_array(np.ascontiguousarray(starts), data, missing)
