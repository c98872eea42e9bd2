"""Columns as a caller of ``send_columns`` has them → the columns that the engine works on."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.partitioning.partitioner import NOT_GIVEN
from spark_kafka_sink.records.columns import (
    Int32Array,
    RecordColumns,
    binary_column,
    null_mask,
    raw_numbers,
    timestamp_column,
)
from spark_kafka_sink.records.encode import header_column

Column: TypeAlias = Any
"""An Arrow array, a chunked array, or anything ``pyarrow.array`` takes; None: not given."""


class GivenColumns(NamedTuple):
    key: Column
    value: Column
    headers: Column
    timestamp: Column
    partition: Column


def record_columns(given: GivenColumns, now_ms: int) -> tuple[RecordColumns | None, Int32Array | None]:
    """The columns, None where they have no rows, and the partitions, if any are given.

    Raises ``InvalidRecordError`` for columns of unequal length or a type that cannot be sent.
    """
    arrays = {name: _arrow(column) for name, column in given._asdict().items() if column is not None}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidRecordError(f"The columns must be of one length, not {lengths}.")
    if not any(lengths.values()):
        return None, None
    partitions = _partitions(arrays.pop("partition")) if "partition" in arrays else None
    if not arrays:
        raise InvalidRecordError("Give at least one of key, value, headers and timestamp.")
    columns = RecordColumns(
        key=binary_column(arrays["key"]) if "key" in arrays else None,
        value=binary_column(arrays["value"]) if "value" in arrays else None,
        headers=header_column(arrays["headers"]) if "headers" in arrays else None,
        timestamps=timestamp_column(arrays["timestamp"], now_ms) if "timestamp" in arrays else None,
    )
    return columns, partitions


def _arrow(column: Column) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    return column if isinstance(column, pa.Array) else pa.array(column)


def _partitions(array: pa.Array) -> Int32Array:
    if not (pt.is_integer(array.type) or pt.is_null(array.type)):
        raise InvalidRecordError(f"partition must be a column of int, not {array.type}.")
    numbers = array.cast(pa.int32())
    partitions = raw_numbers(numbers, np.int32)
    missing = null_mask(numbers)
    negative = (partitions < 0) & ~missing
    if negative.any():
        row = int(np.argmax(negative))
        raise InvalidRecordError(
            f"Invalid partition: {partitions[row]}. Partition number should always be non-negative or null.", row
        )
    partitions[missing] = NOT_GIVEN
    return partitions.astype(np.int32)
