"""Arrow batches of Spark → columns of records, without a Python object per row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.records.columns import (
    Int32Array,
    RecordColumns,
    TopicColumn,
    binary_column,
    bytes_column,
    int32_array,
    null_mask,
    raw_numbers,
    timestamp_column,
)
from spark_kafka_sink.records.encode import header_column
from spark_kafka_sink.spark.schema import RowLayout

# Larger batches are split: from here on, columns of bytes have int32 offsets.
_MAX_SLICE_BYTES = 1 << 30

_NULL_TOPIC = (
    "The Kafka message data sent to the producer contains a null topic. "
    "Use the `topic` option for setting a default topic."
)


@dataclass(frozen=True, slots=True)
class TaskRows:
    """The rows of one Arrow batch. ``partitions``: -1 = the producer chooses; None = for all rows. ``first_row``: the
    first one's number in the task, from 0.
    """

    topics: TopicColumn
    columns: RecordColumns
    partitions: Int32Array | None
    first_row: int


def task_rows(
    batch: pa.RecordBatch, layout: RowLayout, topic: str | None, first_row: int, now_ms: int
) -> Iterator[TaskRows]:
    """The rows of ``batch``, in one part unless it is very large; all are ``topic``'s unless it is None.

    ``first_row``: number of the first row in the task. ``now_ms``: timestamp of rows whose timestamp is null (epoch
    ms). Raises ``InvalidRecordError`` with Spark's text and the row's number.
    """
    if batch.nbytes > _MAX_SLICE_BYTES and batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from task_rows(batch.slice(0, half), layout, topic, first_row, now_ms)
        yield from task_rows(batch.slice(half), layout, topic, first_row + half, now_ms)
        return
    partitions = None if layout.partition is None else _partitions(batch.column(layout.partition), first_row)
    columns = _columns(batch, layout, first_row, now_ms)
    if topic is not None:
        yield TaskRows(TopicColumn((topic,)), columns, partitions, first_row)
    elif layout.topic is not None:
        yield TaskRows(topic_column(batch.column(layout.topic), first_row), columns, partitions, first_row)


def in_task(error: InvalidRecordError, row: int) -> InvalidRecordError:
    """The same error, naming the row's number in the task."""
    return type(error)(f"{error} (row {row} of the task, counted from 0)")


def invalid_partition(number: int) -> str:
    """The text of a negative partition."""
    return f"Invalid partition: {number}. Partition number should always be non-negative or null."


def _columns(batch: pa.RecordBatch, layout: RowLayout, first_row: int, now_ms: int) -> RecordColumns:
    try:
        return RecordColumns(
            key=None if layout.key is None else binary_column(batch.column(layout.key)),
            value=binary_column(batch.column(layout.value)),
            headers=None if layout.headers is None else header_column(batch.column(layout.headers)),
            timestamps=None if layout.timestamp is None else timestamp_column(batch.column(layout.timestamp), now_ms),
        )
    except InvalidRecordError as error:
        if error.row is None:
            raise
        raise in_task(error, first_row + error.row) from None


def _partitions(column: pa.Array, first_row: int) -> Int32Array | None:
    if column.null_count == len(column):
        return None
    numbers: Int32Array = raw_numbers(column, np.int32)
    nulls = null_mask(column)
    numbers[nulls] = 0
    if numbers.min() < 0:
        row = int(np.argmax(numbers < 0))
        raise in_task(InvalidRecordError(invalid_partition(int(numbers[row]))), first_row + row)
    numbers[nulls] = -1
    return numbers


def with_topics(column: pa.Array, missing: npt.NDArray[np.bool_]) -> pa.Array:
    """The column with any other row's topic where it is ``missing``; "" if all rows lack one."""
    encoded = pc.dictionary_encode(column)
    if not len(encoded.dictionary):
        return bytes_column([b""] * len(column)).cast(pa.string())
    codes = raw_numbers(encoded.indices, np.int32)
    codes[missing] = 0
    return pa.DictionaryArray.from_arrays(int32_array(codes), encoded.dictionary)


def topic_column(column: pa.Array, first_row: int) -> TopicColumn:
    """Raises ``InvalidRecordError`` with Spark's text for a null topic."""
    if column.null_count:
        row = int(np.argmax(null_mask(column)))
        raise in_task(InvalidRecordError(_NULL_TOPIC), first_row + row)
    encoded = pc.dictionary_encode(column)
    names = encoded.dictionary.to_pylist()
    return TopicColumn(names, None if len(names) == 1 else raw_numbers(encoded.indices, np.int32))
