"""Arrow batches of Spark → the same rows with key and value encoded, before they are partitioned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from spark_kafka_sink.encoding.encoder import Fault, UnencodableRowsError
from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.formats.schema_headers import with_schema_headers
from spark_kafka_sink.formats.task_formats import TaskFormats
from spark_kafka_sink.formats.wire_format import KEY_HEADER, VALUE_HEADER
from spark_kafka_sink.records.columns import TopicColumn, int32_array
from spark_kafka_sink.schema_registry.subjects import Side
from spark_kafka_sink.spark.dead_letter_options import Reason
from spark_kafka_sink.spark.dead_letter_record import SERIALIZATION, LetterFault, json_column, null_topic_faults
from spark_kafka_sink.spark.rows import in_task, topic_column
from spark_kafka_sink.spark.schema import RowLayout

if TYPE_CHECKING:
    from spark_kafka_sink.spark.dead_letters import DeadLetterSink

_HEADERS = {Side.KEY: KEY_HEADER, Side.VALUE: VALUE_HEADER}

_SLICE_ROWS = 1 << 16
_SLICE_BYTES = 256 << 20
"""Encoders take 2 GiB at most; a row may grow."""


class Meter(Protocol):
    """Counts time as a task's time of appending."""

    def appending(self) -> AbstractContextManager[None]: ...


class _UnencodableError(InvalidRecordError):
    """``faults``: of the column ``side``, one a row."""

    def __init__(self, message: str, side: Side, faults: Sequence[Fault]) -> None:
        super().__init__(message)
        self.side = side
        self.faults = faults


class EncodedRows:
    """The rows of one task. ``layout``: of the batches that ``batches`` returns."""

    def __init__(self, layout: RowLayout, topic: str | None, formats: TaskFormats) -> None:
        self._given = layout
        self._topic = topic
        self.formats = formats
        self._names = [name for name in RowLayout.__slots__ if getattr(layout, name) is not None]
        if formats.has_headers and layout.headers is None:
            self._names.append("headers")
        self.layout = RowLayout(**{name: index for index, name in enumerate(self._names)})

    def batches(
        self, batches: Iterator[pa.RecordBatch], meter: Meter, letters: DeadLetterSink | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Raises ``InvalidRecordError`` for a row that cannot be encoded, with its number in the task, unless
        ``letters`` takes it.
        """
        first_row = 0
        for batch in batches:
            for part in _slices(batch):
                with meter.appending():
                    if letters is None:
                        encoded: pa.RecordBatch | None = self._encoded(part, first_row)
                    else:
                        encoded = self._encodable(part, first_row, letters)
                if encoded is not None:
                    yield encoded
                first_row += part.num_rows

    def _encodable(self, batch: pa.RecordBatch, first_row: int, letters: DeadLetterSink) -> pa.RecordBatch | None:
        """The rows that can be encoded, encoded; None without any. The others become dead letters, as JSON."""
        while batch.num_rows:
            faults = self._null_topics(batch) if letters.asks_for(Reason.NULL_TOPIC) else {}
            if not faults:
                try:
                    return self._encoded(batch, first_row)
                except _UnencodableError as error:
                    if not letters.asks_for(Reason.ENCODE):
                        raise
                    faults = _encode_faults(error)
            rows = np.array(sorted(faults), np.int32)
            self._hand_over(batch.take(int32_array(rows)), [faults[row] for row in rows.tolist()], letters)
            batch = batch.take(int32_array(np.delete(np.arange(batch.num_rows, dtype=np.int32), rows)))
        return None

    def _hand_over(self, batch: pa.RecordBatch, faults: Sequence[LetterFault], letters: DeadLetterSink) -> None:
        columns = list(batch.columns)
        for side in self.formats.sides:
            index = getattr(self._given, side.value)
            if index is not None:
                columns[index] = json_column(columns[index])
        names = [str(index) for index in range(len(columns))]
        letters.add(pa.RecordBatch.from_arrays(columns, names), self._given, self._topic, faults)

    def _null_topics(self, batch: pa.RecordBatch) -> dict[int, LetterFault]:
        if self._topic is not None or self._given.topic is None:
            return {}
        return null_topic_faults(batch.column(self._given.topic))

    def _encoded(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        given = {name: index for name in RowLayout.__slots__ if (index := getattr(self._given, name)) is not None}
        columns = {name: batch.column(index) for name, index in given.items()}
        topics = topic_column(columns["topic"], first_row) if self._topic is None else TopicColumn((self._topic,))
        added: dict[str, pa.BinaryArray] = {}
        for side in self.formats.sides:
            if side.value not in columns:
                continue
            try:
                encoded = self.formats.encode(side, columns[side.value], topics)
            except UnencodableRowsError as error:
                raise _in_task(error, side, first_row) from None
            columns[side.value] = encoded.values
            if encoded.headers is not None:
                added[_HEADERS[side]] = encoded.headers
        if added:
            columns["headers"] = with_schema_headers(columns.get("headers"), added, batch.num_rows)
        return pa.RecordBatch.from_arrays([columns[name] for name in self._names], self._names)


def _in_task(error: UnencodableRowsError, side: Side, first_row: int) -> InvalidRecordError:
    first = error.faults[0]
    text = in_task(InvalidRecordError(_text(side, first)), first_row + first.row)
    return _UnencodableError(str(text), side, error.faults)


def _encode_faults(error: _UnencodableError) -> dict[int, LetterFault]:
    stage = f"{error.side.name}_CONVERTER"
    return {
        fault.row: LetterFault(Reason.ENCODE, _text(error.side, fault), SERIALIZATION, stage) for fault in error.faults
    }


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
