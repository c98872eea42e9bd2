"""Arrow batches of Spark → the same rows with key and value encoded, before they are partitioned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.records.columns import TopicColumn, int32_array, null_mask
from spark_kafka_sink.schemas.encoding.encoder import Fault, UnencodableRowsError
from spark_kafka_sink.schemas.formats.task_formats import EncodedColumn, TaskFormats
from spark_kafka_sink.schemas.formats.wire_format import KEY_HEADER, VALUE_HEADER, with_schema_headers
from spark_kafka_sink.schemas.registry.schema import Side
from spark_kafka_sink.spark.dead_letters.options import Reason
from spark_kafka_sink.spark.dead_letters.record import SERIALIZATION, FaultKind, RowFaults, json_column, null_topics
from spark_kafka_sink.spark.rows import in_task, topic_column, with_topics
from spark_kafka_sink.spark.schema import RowLayout

if TYPE_CHECKING:
    from spark_kafka_sink.spark.dead_letters.sink import DeadLetterSink

Int8Array: TypeAlias = npt.NDArray[np.int8]

_HEADERS = {Side.KEY: KEY_HEADER, Side.VALUE: VALUE_HEADER}

_SLICE_ROWS = 1 << 16
_SLICE_BYTES = 256 << 20
"""Encoders take 2 GiB at most; a row may grow."""


class Meter(Protocol):
    """Counts time as a task's time of appending."""

    def appending(self) -> AbstractContextManager[None]: ...


class EncodedRows:
    """The rows of one task. ``layout``: of the batches that ``batches`` returns. ``letters``: takes the rows that
    cannot be encoded; they stay in their batch, marked in the column ``left_out``.
    """

    def __init__(
        self, layout: RowLayout, topic: str | None, formats: TaskFormats, letters: DeadLetterSink | None = None
    ) -> None:
        self._given = layout
        self._topic = topic
        self._letters = letters
        self.formats = formats
        self._names = [name for name in RowLayout.__slots__ if getattr(layout, name) is not None]
        if formats.has_headers and layout.headers is None:
            self._names.append("headers")
        if letters is not None:
            self._names.append("left_out")
        self.layout = RowLayout(**{name: index for index, name in enumerate(self._names)})

    def batches(self, batches: Iterator[pa.RecordBatch], meter: Meter) -> Iterator[pa.RecordBatch]:
        """Raises ``InvalidRecordError`` for a row that cannot be encoded, with its number in the task, unless it
        becomes a dead letter.
        """
        first_row = 0
        for batch in batches:
            for part in _slices(batch):
                with meter.appending():
                    encoded = self._encoded(part, first_row)
                yield encoded
                first_row += part.num_rows

    def _encoded(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        given = {name: index for name in RowLayout.__slots__ if (index := getattr(self._given, name)) is not None}
        columns = {name: batch.column(index) for name, index in given.items()}
        left_out = np.zeros(batch.num_rows, np.int8)
        topics = self._topics(batch, first_row, left_out)
        added: dict[str, pa.BinaryArray] = {}
        for side in self.formats.sides:
            if side.value not in columns:
                continue
            if left_out.all():
                columns[side.value] = pa.nulls(batch.num_rows, pa.binary())
                continue
            encoded = self._column(side, batch, topics, first_row, left_out)
            columns[side.value] = encoded.values
            if encoded.headers is not None:
                added[_HEADERS[side]] = encoded.headers
        if added or (self.formats.has_headers and left_out.all()):
            columns["headers"] = with_schema_headers(columns.get("headers"), added, batch.num_rows)
        columns["left_out"] = pa.Int8Array.from_buffers(pa.int8(), len(left_out), [None, pa.py_buffer(left_out)])
        return pa.RecordBatch.from_arrays([columns[name] for name in self._names], self._names)

    def _topics(self, batch: pa.RecordBatch, first_row: int, left_out: Int8Array) -> TopicColumn:
        if self._topic is not None:
            return TopicColumn((self._topic,))
        assert self._given.topic is not None
        column = batch.column(self._given.topic)
        if column.null_count and self._letters is not None and self._letters.asks_for(Reason.NULL_TOPIC):
            missing = null_mask(column)
            self._hand_over(batch, null_topics(missing), left_out)
            column = with_topics(column, missing)
        return topic_column(column, first_row)

    def _column(
        self, side: Side, batch: pa.RecordBatch, topics: TopicColumn, first_row: int, left_out: Int8Array
    ) -> EncodedColumn:
        letters = self._letters
        faults: list[Fault] | None = None if letters is None or not letters.asks_for(Reason.ENCODE) else []
        try:
            column = batch.column(getattr(self._given, side.value))
            encoded = self.formats.encode(side, column, topics, faults)
        except UnencodableRowsError as error:
            fault = next((fault for fault in error.faults if not left_out[fault.row]), error.faults[0])
            raise in_task(InvalidRecordError(_text(side, fault)), first_row + fault.row) from None
        if faults:
            kind = FaultKind(Reason.ENCODE, SERIALIZATION, f"{side.name}_CONVERTER")
            rows, messages = np.array([fault.row for fault in faults]), [_text(side, fault) for fault in faults]
            self._hand_over(batch, RowFaults(kind, rows, messages), left_out)
        return encoded

    def _hand_over(self, batch: pa.RecordBatch, faults: RowFaults, left_out: Int8Array) -> None:
        """Rows become dead letters, with key and value as JSON."""
        assert self._letters is not None
        faults = faults.within(0, left_out != 0)
        if not len(faults.rows):
            return
        left_out[faults.rows] = 1
        rows = batch.take(int32_array(faults.rows.astype(np.int32)))
        columns = list(rows.columns)
        for side in self.formats.sides:
            index = getattr(self._given, side.value)
            if index is not None:
                columns[index] = json_column(columns[index])
        names = [str(index) for index in range(len(columns))]
        self._letters.add(pa.RecordBatch.from_arrays(columns, names), self._given, self._topic, faults)


def _text(side: Side, fault: Fault) -> str:
    path = f"{side.value}.{fault.path}" if fault.path else side.value
    return f"{path}: {fault.problem}"


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = batch.num_rows
    if rows > 1 and (rows > _SLICE_ROWS or batch.nbytes > _SLICE_BYTES):
        yield from _slices(batch.slice(0, rows // 2))
        yield from _slices(batch.slice(rows // 2))
    elif rows:
        yield batch
