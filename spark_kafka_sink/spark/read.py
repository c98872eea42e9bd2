"""The stages ``read`` and ``encode``: Arrow batches of Spark, gathered to the size of an append, become ``Rows``, and
these become bytes. ``encode_formats.py`` does that for ``keyFormat`` and ``valueFormat``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import TOPIC_RULE, is_topic_name
from spark_kafka_sink.errors import InvalidRecordError, shown
from spark_kafka_sink.producer.partitioner import NOT_GIVEN
from spark_kafka_sink.producer.rows import negative_partition
from spark_kafka_sink.records.columns import (
    NOT_TIMED,
    Int32Array,
    Int64Array,
    RecordColumns,
    TopicColumn,
    binary_column,
    int32_array,
    negative_timestamp,
    null_mask,
    raw_numbers,
    slot_lengths,
    timestamp_column,
)
from spark_kafka_sink.records.encode import NULL_HEADER, header_column, header_entries
from spark_kafka_sink.spark.dead_letter_options import Reason
from spark_kafka_sink.spark.rows import ILLEGAL_ARGUMENT, BoolArray, End, FaultKind, RejectedRows, Rows, rows_numbered
from spark_kafka_sink.spark.schema import RowLayout

# Larger batches are split: from here on, columns of bytes have int32 offsets, and a row may grow when it is encoded.
_MAX_SLICE_BYTES = 256 << 20

_BYTES_PER_TOPIC = 256 << 10
_LEAST_BYTES = 2 << 20
_LARGE_ROW = 16 << 10
"""Size in bytes. Collecting batches of larger rows costs more than appending them."""

_NULL_TOPIC_TEXT: Final = (
    "The Kafka message data sent to the producer contains a null topic. "
    "Use the `topic` option for setting a default topic."
)
_INVALID_NAME: Final = f"Invalid topic: '{{}}'. A name is {TOPIC_RULE}."
_NULL_TOPIC: Final = FaultKind(Reason.NULL_TOPIC, ILLEGAL_ARGUMENT)
_INVALID_TOPIC: Final = FaultKind(Reason.INVALID_TOPIC, "org.apache.kafka.common.errors.InvalidTopicException")
_INVALID_PARTITION: Final = FaultKind(Reason.INVALID_PARTITION, ILLEGAL_ARGUMENT)
_INVALID_TIMESTAMP: Final = FaultKind(Reason.INVALID_TIMESTAMP, ILLEGAL_ARGUMENT)


class AppendSize:
    """Target size of an append, ``bytes``: a batch per partition of the task's topics, at least 256 KiB per topic and
    2 MiB in all.

    Spark passes 10,000 rows at a time, 10 per partition of a topic with 1,000: each partition's batch, its request and
    the broker's work would be paid by 10 rows. The append itself takes 0.4 ms, however few its rows are. At most half
    of ``buffer.memory``.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self.bytes = 0
        self._full = 0
        self._growth = 1.0
        self._appended = 0
        self._batch_size = config.batch_size
        self._most = config.buffer_memory // 2
        self._topics: set[str] = set()

    def add(self, topics: Iterable[str], end: End) -> None:
        """Counts the topics that are new to the task."""
        for topic in topics:
            if topic not in self._topics:
                self._topics.add(topic)
                self._full += max(self._batch_size * end.partition_count(topic), _BYTES_PER_TOPIC)
                self.bytes = min(max(self._full, _LEAST_BYTES), self._most)

    def of(self, batch: pa.RecordBatch) -> float:
        """Bytes of the batch once it is encoded, as far as earlier batches tell."""
        return float(batch.nbytes * self._growth)

    def appended(self, rows: Rows) -> None:
        """Encoded rows of the batch."""
        columns = rows.columns
        self._appended += sum(each.nbytes for each in (columns.key, columns.value, columns.headers) if each is not None)

    def end_batch(self, batch: pa.RecordBatch) -> None:
        """All its rows have been appended. Structs may be much larger than what they are encoded as, or smaller."""
        if self._appended:
            self._growth, self._appended = self._appended / max(1, batch.nbytes), 0


def gathered(batches: Iterator[pa.RecordBatch], target: AppendSize) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at least the target size; none is empty. What has been yielded is not held.

    Batches of large rows stay as they are, because to gather them is to copy them.
    """
    held: list[pa.RecordBatch] = []
    size = 0.0
    for batch in batches:
        is_large = batch.nbytes >= _LARGE_ROW * max(1, batch.num_rows)
        if is_large:
            yield from _combined(held)
        held.append(batch)
        size += target.of(batch)
        del batch
        if is_large or size >= target.bytes:
            yield from _combined(held)
            size = 0.0
    yield from _combined(held)


def _combined(held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Empties ``held`` into one batch; several if a column of strings or binary exceeds 2 GiB, the limit of an Arrow
    array.
    """
    if len(held) > 1:
        held[:] = pa.Table.from_batches(held).combine_chunks().to_batches()
    held[:] = [batch for batch in reversed(held) if batch.num_rows]
    while held:
        yield held.pop()


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Arrow batches as ``Rows``. ``topic``: of all rows; None: they have a column. ``rejects``: the reasons for which a
    row is rejected; for others it fails the task, with Spark's text and the row's number.
    """

    layout: RowLayout
    topic: str | None
    rejects: Collection[Reason] = frozenset()

    def __call__(self, batch: pa.RecordBatch, first_row: int) -> Iterator[Rows]:
        """One part unless the batch is very large. ``first_row``: number of its first row in the task."""
        if batch.nbytes > _MAX_SLICE_BYTES and batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from self(batch.slice(0, half), first_row)
            yield from self(batch.slice(half), first_row + half)
            return
        layout = self.layout
        found: list[RejectedRows] = []
        with rows_numbered(first_row):
            topics = self._topics(batch, found)
            partitions = self._partitions(batch, found)
            columns = RecordColumns(
                key=None if layout.key is None else batch.column(layout.key),
                value=batch.column(layout.value),
                headers=None if layout.headers is None else batch.column(layout.headers),
                timestamps=self._timestamps(batch, found),
            )
        rows = Rows(first_row, topics, columns, partitions)
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
        found.append(self._rejected(_NULL_TOPIC, missing, [_NULL_TOPIC_TEXT] * column.null_count))
        valid = np.array([is_topic_name(name) for name in topics.names])
        if not valid.all():
            codes = np.zeros(len(column), np.int32) if topics.codes is None else topics.codes
            bad = ~valid[codes] & ~missing
            messages = [_INVALID_NAME.format(shown(topics.names[code], 249)) for code in codes[bad].tolist()]
            found.append(self._rejected(_INVALID_TOPIC, bad, messages))
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
            bad = numbers < 0
            found.append(self._rejected(_INVALID_PARTITION, bad, list(map(negative_partition, numbers[bad].tolist()))))
        numbers[nulls] = NOT_GIVEN
        return numbers

    def _timestamps(self, batch: pa.RecordBatch, found: list[RejectedRows]) -> Int64Array | None:
        """``NOT_TIMED`` is for null, for a record that was read without a timestamp, and for rejected rows."""
        if self.layout.timestamp is None:
            return None
        times = timestamp_column(batch.column(self.layout.timestamp), NOT_TIMED, takes_negative=True)
        if times.min(initial=0) < NOT_TIMED:
            bad = times < NOT_TIMED
            found.append(self._rejected(_INVALID_TIMESTAMP, bad, list(map(negative_timestamp, times[bad].tolist()))))
            times[bad] = NOT_TIMED
        return times

    def _rejected(self, kind: FaultKind, bad: BoolArray, messages: Sequence[str]) -> RejectedRows:
        """The bad rows, with a message each. Raises ``InvalidRecordError`` if rows are not rejected for this reason."""
        rows = np.flatnonzero(bad)
        if len(rows) and kind.reason not in self.rejects:
            raise InvalidRecordError(messages[0], int(rows[0]))
        return RejectedRows(kind, rows, messages)


def topic_column(column: pa.Array, missing: npt.NDArray[np.bool_] | None = None) -> TopicColumn:
    """The topics of a column. ``missing``: rows without one; they get any other row's, or "" if no row has one."""
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
    """The topic of all rows that have one, found in a tenth of the time that a dictionary takes; None: look for it."""
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


_HEADER: Final = FaultKind(Reason.INVALID_HEADER, ILLEGAL_ARGUMENT, "HEADER_CONVERTER")


class RawEncoder:
    """Keys and values are strings or bytes. Rejects, or raises for, a row with a header without a key."""

    def __init__(self, rejects: Collection[Reason] = frozenset()) -> None:
        self._rejects = rejects

    def __call__(self, rows: Rows) -> Iterator[Rows]:
        columns = rows.columns
        key = None if columns.key is None else binary_column(columns.key)
        yield self.as_bytes(replace(rows, columns=replace(columns, key=key, value=binary_column(columns.value))))

    def as_bytes(self, rows: Rows) -> Rows:
        """The same rows, with their headers as encoded bytes instead of a list of structs."""
        column = rows.columns.headers
        if column is None:
            return rows
        with rows_numbered(rows.first_row):
            try:
                sections = header_column(column)
            except InvalidRecordError:
                if Reason.INVALID_HEADER not in self._rejects or not header_entries(column)[1].null_count:
                    raise
                column, bad = headers_with_keys(column)
                found = np.flatnonzero(bad)
                rows = rows.rejecting(RejectedRows(_HEADER, found, [NULL_HEADER] * len(found)))
                sections = header_column(column)
        return replace(rows, columns=replace(rows.columns, headers=sections))


def headers_with_keys(array: pa.Array) -> tuple[pa.ListArray, BoolArray]:
    """``array`` without the headers whose key is null, and which rows had one."""
    counts, keys, values = header_entries(array)
    missing = null_mask(keys)
    lost = np.bincount(np.repeat(np.arange(len(counts)), counts)[missing], minlength=len(counts))
    kept = int32_array(np.flatnonzero(~missing).astype(np.int32))
    entries = pa.StructArray.from_arrays([keys.take(kept), values.take(kept)], ["key", "value"])
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts - lost, out=offsets[1:])
    return pa.ListArray.from_arrays(int32_array(offsets), entries), lost > 0
