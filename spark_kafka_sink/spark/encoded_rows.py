"""Arrow batches of Spark → the same rows with key and value encoded, before they are partitioned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa

from spark_kafka_sink.encoding.encoder import UnencodableRowsError
from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.formats.schema_headers import with_schema_headers
from spark_kafka_sink.formats.task_formats import TaskFormats
from spark_kafka_sink.formats.wire_format import KEY_HEADER, VALUE_HEADER
from spark_kafka_sink.records.columns import TopicColumn
from spark_kafka_sink.schema_registry.subjects import Side
from spark_kafka_sink.spark.rows import in_task, topic_column
from spark_kafka_sink.spark.schema import RowLayout

_HEADERS = {Side.KEY: KEY_HEADER, Side.VALUE: VALUE_HEADER}

_SLICE_ROWS = 1 << 16
_SLICE_BYTES = 256 << 20
"""Encoders take 2 GiB at most; a row may grow."""


class Meter(Protocol):
    """Counts time as a task's time of appending."""

    def appending(self) -> AbstractContextManager[None]: ...


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

    def batches(self, batches: Iterator[pa.RecordBatch], meter: Meter) -> Iterator[pa.RecordBatch]:
        """Raises ``InvalidRecordError`` for a row that cannot be encoded, with its number in the task."""
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
    fault = error.faults[0]
    path = f"{side.value}.{fault.path}" if fault.path else side.value
    return in_task(InvalidRecordError(f"{path}: {fault.problem}"), first_row + fault.row)


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = batch.num_rows
    if rows > 1 and (rows > _SLICE_ROWS or batch.nbytes > _SLICE_BYTES):
        yield from _slices(batch.slice(0, rows // 2))
        yield from _slices(batch.slice(rows // 2))
    elif rows:
        yield batch
