"""``DeadLetterSink``: takes the rows that cannot be written out of a task's rows, and writes them as dead letters.

Rows are judged as columns. Only a row that is at fault becomes Python objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.errors import DeadLetterLimitError, InvalidRecordError, KafkaError, RecordTooLargeError
from spark_kafka_sink.exactly_once.receipts import TaskName
from spark_kafka_sink.producer import KafkaProducer
from spark_kafka_sink.producer.append.refused_records import RefusedRecord
from spark_kafka_sink.producer.partitioning.partitioner import LEFT_OUT, NOT_GIVEN
from spark_kafka_sink.producer.task_meter import TaskMeter
from spark_kafka_sink.records.columns import (
    Int32Array,
    RecordColumns,
    TopicColumn,
    binary_column,
    bytes_column,
    null_mask,
    raw_numbers,
    timestamp_column,
)
from spark_kafka_sink.records.encode import header_column, header_entries
from spark_kafka_sink.spark.dead_letters.file import DeadLetterFile
from spark_kafka_sink.spark.dead_letters.names import LetterFiles, write_name
from spark_kafka_sink.spark.dead_letters.options import DeadLetters, Reason
from spark_kafka_sink.spark.dead_letters.record import (
    ILLEGAL_ARGUMENT,
    FaultKind,
    LetterHeaders,
    Letters,
    RowFaults,
    headers_with_keys,
    null_topics,
)
from spark_kafka_sink.spark.dead_letters.refused_letters import refused_letter, shorter_letter
from spark_kafka_sink.spark.dead_letters.row_validator import RowValidator
from spark_kafka_sink.spark.dead_letters.topic_limit_cache import LIMITS
from spark_kafka_sink.spark.rows import TaskRows, invalid_partition, task_rows, topic_column, with_topics
from spark_kafka_sink.spark.schema import RowLayout

_NO_TOPIC: Final = bytes_column([b""]).cast(pa.string())[0]
_PIECE_BYTES: Final = 1 << 20
"""Dead letters are appended this many bytes at a time: an append costs as much as a few hundred of them."""

_LAST_FLUSH_MS: Final = 5_000.0

_LETTER_OVERHEAD: Final = 512
"""Connect's headers, about."""

_HEADER: Final = FaultKind(Reason.INVALID_HEADER, ILLEGAL_ARGUMENT, "HEADER_CONVERTER")
_NULL_HEADER: Final = "Invalid null header key found in headers"
_NEGATIVE: Final = FaultKind(Reason.INVALID_PARTITION, ILLEGAL_ARGUMENT)


class LetterSink(Protocol):
    """Where rows and dead letters go: a producer, or a transaction. ``count``: rows that come as dead letters."""

    @property
    def meter(self) -> TaskMeter: ...
    @property
    def writes(self) -> bool: ...
    def begun(self) -> KafkaProducer: ...
    def count(self, topics: TopicColumn, columns: RecordColumns, partitions: Int32Array | None) -> None: ...
    def append(self, topic: TopicColumn, columns: RecordColumns, partitions: Int32Array | None) -> None: ...
    def append_own(self, topic: str, columns: RecordColumns) -> None: ...


class RefusingSink(Protocol):
    """A producer, whose brokers may find a record too large after its append. ``own``: a dead letter."""

    def keep_refused(self) -> None: ...
    def take_refused_row(self) -> RefusedRecord | None: ...
    def take_refused_own(self) -> RefusedRecord | None: ...
    def flush(self) -> None: ...


class RefusedTransaction(Protocol):
    @property
    def refused_at(self) -> TopicPartition | None:
        """Where a broker found a record too large, which failed the transaction."""


class DeadLetterSink:
    """A task's sink: appends the rows that can be written. One thread. ``close`` ends it, whole only after ``finish``.

    Rows are counted as they came: a replay counts the same, whatever partition counts and limits are then. A row that
    cannot be written stays in its columns, ``LEFT_OUT``: the others are not copied. Dead letters are held and written
    in pieces, the last by ``write_held``.
    """

    def __init__(
        self, sink: LetterSink, dead: DeadLetters, clock: Clock, name: TaskName, files: LetterFiles | None = None
    ) -> None:
        self._sink = sink
        self._dead = dead
        self._clock = clock
        self._name = name
        self._headers = LetterHeaders(dead.connector or name.query, name.task, dead.connect_headers)
        self._files = files or LetterFiles(write_name(name.query, name.batch))
        self._file = None if dead.path is None else DeadLetterFile(dead.path, self._files, name)
        self._judge = RowValidator(dead, clock)
        self._held: list[Letters] = []
        self._held_size = 0
        self._letters = 0
        self._refusing: RefusingSink | None = None
        self._at_least_once = False
        self.writes = sink.writes
        self.meter = sink.meter

    def rows(
        self, batch: pa.RecordBatch, layout: RowLayout, topic: str | None, first_row: int, now_ms: int
    ) -> Iterator[TaskRows]:
        """The parts that ``task_rows`` gives, in which rows that cannot be records are ``LEFT_OUT``.

        A part with only such rows is dropped.
        """
        faults: list[RowFaults] = []
        whole = self._without_null_topics(batch, layout, topic, faults)
        whole = self._without_negative_partitions(whole, layout, faults)
        try:
            parts = list(task_rows(whole, layout, topic, first_row, now_ms))
        except InvalidRecordError:
            if not self._has_null_headers(whole, layout):
                raise
            whole = self._without_null_headers(whole, layout, faults)
            parts = list(task_rows(whole, layout, topic, first_row, now_ms))
        gone = None if layout.left_out is None else raw_numbers(batch.column(layout.left_out), np.int8) != 0
        if not faults and (gone is None or not gone.any()):
            yield from parts
            return
        named = None if layout.partition is None else raw_numbers(batch.column(layout.partition), np.int32)
        if named is not None:
            named[null_mask(batch.column(layout.partition))] = NOT_GIVEN
        for part in parts:
            start = part.first_row - first_row
            end = start + len(part.columns)
            out = np.zeros(end - start, np.bool_) if gone is None else gone[start:end]
            for fault in faults:
                of_part = fault.within(start, out) if len(parts) > 1 or out.any() else fault
                out[of_part.rows] = True
                topics = TopicColumn(("",)) if fault.kind.reason is Reason.NULL_TOPIC else part.topics
                self._take_out(of_part, topics, part.columns, None if named is None else named[start:end])
            if not out.all():
                yield _without(part, out)

    def add(self, batch: pa.RecordBatch, layout: RowLayout, topic: str | None, faults: RowFaults) -> None:
        """Rows of Spark's columns that cannot be records: all of ``batch``, whatever the rows of ``faults``."""
        columns = {
            name: batch.column(index) for name in RowLayout.__slots__ if (index := getattr(layout, name)) is not None
        }
        headers = columns.get("headers")
        rows = RecordColumns(
            key=None if "key" not in columns else binary_column(columns["key"]),
            value=binary_column(columns["value"]),
            headers=None if headers is None else header_column(headers_with_keys(headers)[0]),
            timestamps=None
            if "timestamp" not in columns
            else timestamp_column(columns["timestamp"], self._clock.epoch_ms()),
        )
        partitions = None
        if "partition" in columns:
            partitions = raw_numbers(columns["partition"], np.int32)
            partitions[null_mask(columns["partition"])] = NOT_GIVEN
        topics = topic_column(pc.fill_null(columns["topic"], _NO_TOPIC), 0) if topic is None else TopicColumn((topic,))
        self._count_and_hold(faults, topics, rows, partitions)

    def append(self, topic: TopicColumn, columns: RecordColumns, partitions: Int32Array | None) -> None:
        if self.writes:
            self._write_refused()
            out = None
            for faults in self._judge.faults(self._sink.begun(), topic, columns, partitions):
                if out is None:
                    out = np.zeros(len(columns), np.bool_) if partitions is None else partitions == LEFT_OUT
                fresh = faults.within(0, out)
                out[fresh.rows] = True
                self._take_out(fresh, topic, columns, partitions)
            if out is not None:
                if out.all():
                    return
                topic = topic.naming(~out)
                partitions = _marked(partitions, out)
        self._sink.append(topic, columns, partitions)

    def write_held(self) -> None:
        """Appends the dead letters so far, and adds them to the file."""
        held, self._held, self._held_size = self._held, [], 0
        if not held:
            return
        if self._file is not None:
            for letters in held:
                self._file.write(letters)
        if self._dead.topic is not None:
            producer = self._sink.begun()
            self._sink.append_own(self._dead.topic, self._headers.records(held, self._limit(producer)))

    def partition_count(self, topic: str) -> int:
        if not self.writes or topic in self._judge.unknown:
            return 0
        return self._sink.begun().partition_count(topic)

    def keep_refused(self, sink: RefusingSink) -> None:
        """Records that only a broker finds too large become dead letters too, if they are asked for. Before the first
        row; ``flush`` after the last. Not in a transaction, which a refused record has failed.
        """
        self._at_least_once = True
        if self.asks_for(Reason.RECORD_TOO_LARGE):
            sink.keep_refused()
            self._refusing = sink

    def flush(self) -> None:
        """Waits until every row and every dead letter is acknowledged."""
        if self._refusing is None:
            return
        self._refusing.flush()
        while self._write_refused():
            self.write_held()
            self._refusing.flush()

    @contextmanager
    def refusals_explained(self, transaction: RefusedTransaction) -> Iterator[None]:
        """A record that only a broker finds too large fails its transaction: the error tells why it was not found
        before.
        """
        try:
            yield
        except KafkaError as error:
            where = transaction.refused_at
            if where is None or not self.asks_for(Reason.RECORD_TOO_LARGE):
                raise
            reason = LIMITS.why_refused(self._sink.begun(), where.topic)
            raise RecordTooLargeError(f"{error}. {reason}") from error

    def finish(self) -> None:
        """The file is whole. Call it when the dead letters are acknowledged, before the task reports."""
        if self._file is not None and self.writes:
            self._file.finish()

    @property
    def files(self) -> LetterFiles | None:
        """The task's files, for the driver; None without deadLetterPath."""
        return None if self._file is None else self._files._replace(complete=self.writes)

    def close(self) -> None:
        """Drops what is not whole."""
        if self._file is not None:
            self._file.close()

    @property
    def judges_topics(self) -> bool:
        """A missing topic makes dead letters, and is not an error of ``topicCreation``."""
        return self.asks_for(Reason.UNKNOWN_TOPIC)

    def asks_for(self, reason: Reason) -> bool:
        return reason in self._dead.reasons

    def _take_out(
        self, faults: RowFaults, topics: TopicColumn, columns: RecordColumns, partitions: Int32Array | None
    ) -> None:
        """Rows of these columns become dead letters."""
        if not len(faults.rows):
            return
        named = None if partitions is None else partitions[faults.rows]
        self._count_and_hold(faults, topics[faults.rows], columns.take(faults.rows), named)

    def _count_and_hold(
        self, faults: RowFaults, topics: TopicColumn, rows: RecordColumns, partitions: Int32Array | None
    ) -> None:
        self._sink.count(topics, rows, partitions)
        if self.writes:
            times = rows.timestamps
            if times is None:
                times = np.full(len(rows), self._clock.epoch_ms(), np.int64)
            self._hold(Letters(faults.kind, faults.messages, topics, rows, partitions, times))

    def _write_refused(self) -> bool:
        """The records that brokers have refused so far; returns whether there were any. They are taken one by one, and
        as often as rows are appended: ``RefusalReceipt`` says what they hold till then.
        """
        refusing = self._refusing
        if refusing is None:
            return False
        producer, any_refused = self._sink.begun(), False
        while (row := refusing.take_refused_row()) is not None:
            any_refused = True
            LIMITS.ask_again(producer, row.partition.topic, self._clock)
            self._hold(refused_letter(row))
        while (letter := refusing.take_refused_own()) is not None:
            any_refused = True
            LIMITS.ask_again(producer, letter.partition.topic, self._clock)
            shorter = shorter_letter(letter)
            if shorter is None:
                raise letter.error
            self._sink.append_own(letter.partition.topic, shorter)
        return any_refused

    def _hold(self, letters: Letters) -> None:
        self.meter.add_dead_letters(letters.kind.reason.value, len(letters))
        self._letters += len(letters)
        if (text := self._dead.over_limit(self._letters)) is not None:
            self._send_held_before_failing()
            raise DeadLetterLimitError(f"Task {self._name.task}: {text} The last: {letters.messages[-1]}")
        self._held.append(letters)
        self._held_size += letters.size + _LETTER_OVERHEAD * len(letters)
        if self._held_size >= _PIECE_BYTES:
            self.write_held()

    def _send_held_before_failing(self) -> None:
        """At least once, send the dead letters within the limit, which the error points to. Transactions abort."""
        if self._at_least_once and self._held:
            with suppress(KafkaError):  # the task fails already, with another error
                self.write_held()
                self._sink.begun().flush(_LAST_FLUSH_MS)

    def _limit(self, producer: KafkaProducer) -> int:
        """The largest record in bytes that the dead-letter topic takes."""
        topic = self._dead.topic
        assert topic is not None
        producer.partition_count(topic)
        limit = LIMITS.limits(producer, [topic], self._clock)[topic]
        size = min(producer.config.max_request_size, producer.config.buffer_memory)
        return size if limit is None else min(size, limit)

    def _without_null_topics(
        self, batch: pa.RecordBatch, layout: RowLayout, topic: str | None, faults: list[RowFaults]
    ) -> pa.RecordBatch:
        """The batch with another row's topic where it is null."""
        if topic is not None or layout.topic is None:
            return batch
        column = batch.column(layout.topic)
        if not column.null_count or not self.asks_for(Reason.NULL_TOPIC):
            return batch
        missing = null_mask(column)
        faults.append(null_topics(missing))
        return _replaced(batch, layout.topic, with_topics(column, missing))

    def _without_negative_partitions(
        self, batch: pa.RecordBatch, layout: RowLayout, faults: list[RowFaults]
    ) -> pa.RecordBatch:
        """The batch with 0 in their place."""
        if layout.partition is None or not self.asks_for(Reason.INVALID_PARTITION):
            return batch
        column = batch.column(layout.partition)
        if column.null_count == len(column):
            return batch
        numbers = raw_numbers(column, np.int32)
        negative = numbers < 0
        if column.null_count:
            negative &= ~null_mask(column)
        rows = np.flatnonzero(negative)
        if not len(rows):
            return batch
        faults.append(RowFaults(_NEGATIVE, rows, [invalid_partition(each) for each in numbers[rows].tolist()]))
        numbers[rows] = 0
        validity = pa.py_buffer(np.packbits(~null_mask(column), bitorder="little"))
        whole = pa.Int32Array.from_buffers(pa.int32(), len(numbers), [validity, pa.py_buffer(numbers)])
        return _replaced(batch, layout.partition, whole)

    def _has_null_headers(self, batch: pa.RecordBatch, layout: RowLayout) -> bool:
        if layout.headers is None or not self.asks_for(Reason.INVALID_HEADER):
            return False
        return bool(header_entries(batch.column(layout.headers))[1].null_count)

    def _without_null_headers(
        self, batch: pa.RecordBatch, layout: RowLayout, faults: list[RowFaults]
    ) -> pa.RecordBatch:
        """The batch without the headers that have no key."""
        assert layout.headers is not None
        column, bad = headers_with_keys(batch.column(layout.headers))
        rows = np.flatnonzero(bad)
        faults.append(RowFaults(_HEADER, rows, [_NULL_HEADER] * len(rows)))
        return _replaced(batch, layout.headers, column)


def _replaced(batch: pa.RecordBatch, index: int, column: pa.Array) -> pa.RecordBatch:
    """The batch with another column in this place."""
    columns = list(batch.columns)
    columns[index] = column
    return pa.RecordBatch.from_arrays(columns, [str(place) for place in range(len(columns))])


def _without(part: TaskRows, out: npt.NDArray[np.bool_]) -> TaskRows:
    """The same columns, in which some rows are ``LEFT_OUT``."""
    return replace(part, topics=part.topics.naming(~out), partitions=_marked(part.partitions, out))


def _marked(partitions: Int32Array | None, out: npt.NDArray[np.bool_]) -> Int32Array:
    marked = np.full(len(out), NOT_GIVEN, np.int32) if partitions is None else partitions.copy()
    marked[out] = LEFT_OUT
    return marked
