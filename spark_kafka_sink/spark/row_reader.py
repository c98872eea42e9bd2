"""The first stage of every task: Spark's Arrow batches become ``TaskRows``. Rows whose columns show that they cannot be
written are rejected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_kafka_sink.common.model import NO_TIMESTAMP, TOPIC_RULE, is_topic_name
from spark_kafka_sink.errors import sanitize
from spark_kafka_sink.producer.partitioner import NO_PARTITION
from spark_kafka_sink.producer.rows import negative_partition
from spark_kafka_sink.records.arrays import (
    Int32Array,
    Int64Array,
    binary_column,
    negative_timestamp,
    null_mask,
    raw_numbers,
    slot_lengths,
    timestamp_column,
)
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from spark_kafka_sink.spark.options import Reason, letter_option
from spark_kafka_sink.spark.rows import (
    ILLEGAL_ARGUMENT,
    FaultKind,
    RejectedRows,
    TaskRows,
    number_errors,
    reject,
)
from spark_kafka_sink.spark.schema import RowLayout

# Larger batches are halved: from here on, columns of bytes have int32 offsets, and a row may grow when it is encoded.
_MAX_SLICE_BYTES = 256 << 20

_NULL_TOPIC_TEXT: Final = (
    "The Kafka message data sent to the producer contains a null topic. "
    "Use the `topic` option for setting a default topic."
)
_NULL_TOPIC_ADVICE: Final = (
    " But that option sends all rows to one topic. `where topic is null` finds the rows without a topic: give them a "
    "topic, or {}, so that they become dead letters."
)
_INVALID_NAME: Final = f"Invalid topic: '{{}}': {TOPIC_RULE}."
_NULL_TOPIC: Final = FaultKind(Reason.NULL_TOPIC, ILLEGAL_ARGUMENT)
_INVALID_TOPIC: Final = FaultKind(Reason.INVALID_TOPIC, "org.apache.kafka.common.errors.InvalidTopicException")
_INVALID_PARTITION: Final = FaultKind(Reason.INVALID_PARTITION, ILLEGAL_ARGUMENT)
_INVALID_TIMESTAMP: Final = FaultKind(Reason.INVALID_TIMESTAMP, ILLEGAL_ARGUMENT)


@dataclass(frozen=True, slots=True)
class RowReader:
    """The stage that makes ``TaskRows`` of Arrow batches. ``topic``: the topic of all rows; None: they have a column.
    ``rejects``: the reasons for which a row is rejected. For any other reason a row fails the task, with Spark's text
    and the row's number.
    """

    layout: RowLayout
    topic: str | None
    rejects: Collection[Reason] = frozenset()

    def __call__(self, batch: pa.RecordBatch, first_row: int) -> Iterator[TaskRows]:
        """The batch's rows, in one part unless the batch is very large. ``first_row``: the number of the batch's first
        row in the task."""
        # The buffers have at least nbytes, which takes longer to count.
        if batch.get_total_buffer_size() > _MAX_SLICE_BYTES < batch.nbytes and batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from self(batch.slice(0, half), first_row)
            yield from self(batch.slice(half), first_row + half)
            return
        layout = self.layout
        found: list[RejectedRows] = []
        with number_errors(first_row):
            topics = self._topics(batch, found)
            partitions = self._partitions(batch, found)
            columns = RecordColumns(
                key=None if layout.key is None else batch.column(layout.key),
                value=batch.column(layout.value),
                headers=None if layout.headers is None else batch.column(layout.headers),
                timestamps=self._timestamps(batch, found),
            )
        rows = TaskRows(first_row, topics, columns, partitions)
        for rejected in found:
            rows = rows.rejecting(rejected)
        yield rows

    def _topics(self, batch: pa.RecordBatch, found: list[RejectedRows]) -> TopicColumn:
        if self.topic is not None:
            return TopicColumn((self.topic,))
        assert self.layout.topic is not None
        column = batch.column(self.layout.topic)
        missing = null_mask(column)
        topics = topic_column(column, missing if column.null_count else None)
        advice = _NULL_TOPIC_ADVICE.format(letter_option(self.rejects, Reason.NULL_TOPIC))
        texts = [_NULL_TOPIC_TEXT] * column.null_count
        found.append(reject(self.rejects, _NULL_TOPIC, np.flatnonzero(missing), texts, advice))
        valid = np.array([is_topic_name(name) for name in topics.names])
        if not valid.all():
            codes = np.zeros(len(column), np.int32) if topics.codes is None else topics.codes
            bad = ~valid[codes] & ~missing
            messages = [_INVALID_NAME.format(sanitize(topics.names[code], 249)) for code in codes[bad].tolist()]
            found.append(reject(self.rejects, _INVALID_TOPIC, np.flatnonzero(bad), messages))
            kept = ~(bad | missing)
            topics = topics.naming(kept) if kept.any() else TopicColumn(("",))
        return topics

    def _partitions(self, batch: pa.RecordBatch, found: list[RejectedRows]) -> Int32Array | None:
        if self.layout.partition is None:
            return None
        column = batch.column(self.layout.partition)
        if column.null_count == len(column):
            return None
        numbers: Int32Array = raw_numbers(column, np.int32)
        nulls = null_mask(column)
        numbers[nulls] = 0
        if numbers.min() < 0:
            bad = np.flatnonzero(numbers < 0)
            messages = list(map(negative_partition, numbers[bad].tolist()))
            found.append(reject(self.rejects, _INVALID_PARTITION, bad, messages))
        numbers[nulls] = NO_PARTITION
        return numbers

    def _timestamps(self, batch: pa.RecordBatch, found: list[RejectedRows]) -> Int64Array | None:
        """The rows' timestamps. ``NO_TIMESTAMP`` stands for null, for a record that was read without a timestamp, and
        for rejected rows."""
        if self.layout.timestamp is None:
            return None
        times = timestamp_column(batch.column(self.layout.timestamp), NO_TIMESTAMP, takes_negative=True)
        if times.min(initial=0) < NO_TIMESTAMP:
            bad = np.flatnonzero(times < NO_TIMESTAMP)
            messages = list(map(negative_timestamp, times[bad].tolist()))
            found.append(reject(self.rejects, _INVALID_TIMESTAMP, bad, messages))
            times[bad] = NO_TIMESTAMP
        return times


def topic_column(column: pa.Array, missing: npt.NDArray[np.bool_] | None = None) -> TopicColumn:
    """The topics of a column. ``missing``: the rows without a topic, which get any other row's topic, or "" if no row
    has one."""
    only = _only_topic(column)
    if only is not None:
        return TopicColumn((only,))
    encoded = pc.dictionary_encode(column)
    names = [_text(name) for name in binary_column(encoded.dictionary).to_pylist()] or [""]
    if len(names) == 1:
        return TopicColumn(names)
    codes = raw_numbers(encoded.indices, np.int32)
    if missing is not None:
        codes[missing] = 0
    return TopicColumn(names, codes)


def _only_topic(column: pa.Array) -> str | None:
    """The only topic of the column, found in a tenth of the time that a dictionary takes. None: there may be
    several."""
    if not pt.is_string(column.type):
        return None
    lengths = slot_lengths(column)
    size = int(lengths.max(initial=0))
    if size <= 0 or np.count_nonzero(lengths == size) != len(column) - column.null_count:
        return None
    _, offsets, data = column.buffers()
    first, end = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset)[[0, -1]].tolist()
    names = np.frombuffer(data, np.uint8, end - first, first)
    # bytes under null would shift the names
    if len(names) != size * (len(column) - column.null_count) or (names[size:] != names[:-size]).any():
        return None
    return _text(names[:size].tobytes())


def _text(name: bytes) -> str:
    """Decodes a topic's name. A name that is not UTF-8 becomes one that no broker accepts."""
    return name.decode(errors="replace")
