"""``DeadLetterSink``: takes the rows that cannot be written out of a task's rows, and writes them as dead letters.

Rows are judged as columns. Only a row that is at fault becomes Python objects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.append.refused_records import RefusedRecord
from spark_kafka_sink.clock import Clock
from spark_kafka_sink.errors import DeadLetterLimitError, InvalidRecordError, KafkaError, RecordTooLargeError
from spark_kafka_sink.exactly_once.receipts import TaskName
from spark_kafka_sink.model import TopicPartition
from spark_kafka_sink.partitioning.partitioner import NOT_GIVEN
from spark_kafka_sink.producer import KafkaProducer
from spark_kafka_sink.producer.task_meter import TaskMeter
from spark_kafka_sink.records.batch import HEADER_SIZE
from spark_kafka_sink.records.columns import (
    Int32Array,
    RecordColumns,
    TopicColumn,
    binary_column,
    int32_array,
    null_mask,
    raw_numbers,
    slot_lengths,
    timestamp_column,
)
from spark_kafka_sink.records.sizes import MAX_RECORD_OVERHEAD, FieldLengths, java_size_estimate
from spark_kafka_sink.spark.dead_letter_file import DeadLetterFile
from spark_kafka_sink.spark.dead_letter_options import DeadLetters, Reason
from spark_kafka_sink.spark.dead_letter_record import (
    ILLEGAL_ARGUMENT,
    TOO_LARGE,
    UNKNOWN,
    LetterFault,
    LetterHeaders,
    Letters,
    lenient_header_column,
    null_header_rows,
    null_topic_faults,
)
from spark_kafka_sink.spark.refused_letters import refused_letter, shorter_letter
from spark_kafka_sink.spark.rows import TaskRows, invalid_partition, task_rows
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.topic_limit_cache import LIMITS

_LOOK_AGAIN_MS: Final = 5_000.0
_FIELD_OVERHEAD: Final = HEADER_SIZE + MAX_RECORD_OVERHEAD + 3 * 5
"""Of a record's batch beside its key, value and headers, at most."""

_NULL_HEADER = "Invalid null header key found in headers"


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

    Rows are counted as they came: a replay counts the same, whatever partition counts and limits are then.
    """

    def __init__(self, sink: LetterSink, dead: DeadLetters, clock: Clock, name: TaskName) -> None:
        self._sink = sink
        self._dead = dead
        self._clock = clock
        self._name = name
        self._headers = LetterHeaders(dead.connector or name.query, name.task, dead.connect_headers)
        self._file = None if dead.path is None else DeadLetterFile(dead.path, name)
        self._letters = 0
        self._looked_at: dict[str, float] = {}
        self._unknown: set[str] = set()
        self._refusing: RefusingSink | None = None
        self.writes = sink.writes
        self.meter = sink.meter

    def rows(
        self, batch: pa.RecordBatch, layout: RowLayout, topic: str | None, first_row: int, now_ms: int
    ) -> Iterator[TaskRows]:
        """As ``task_rows``, without the rows that are no records."""
        try:
            taken = list(task_rows(batch, layout, topic, first_row, now_ms))
        except InvalidRecordError:
            faults = self._faults_of_batch(batch, layout, topic)
            if not faults:
                raise
            rows = np.array(sorted(faults), np.int32)
            self.add(batch.take(int32_array(rows)), layout, topic, [faults[row] for row in rows.tolist()])
            good = np.delete(np.arange(batch.num_rows, dtype=np.int32), rows)
            rest = batch.take(int32_array(good))
            taken = list(task_rows(rest, layout, topic, first_row, now_ms)) if len(good) else []
        yield from taken

    def add(self, batch: pa.RecordBatch, layout: RowLayout, topic: str | None, faults: Sequence[LetterFault]) -> None:
        """Rows of Spark's columns that are no records, one fault each."""
        columns = {
            name: batch.column(index) for name in RowLayout.__slots__ if (index := getattr(layout, name)) is not None
        }
        headers = columns.get("headers")
        rows = RecordColumns(
            key=None if "key" not in columns else binary_column(columns["key"]),
            value=binary_column(columns["value"]),
            headers=None if headers is None else lenient_header_column(headers),
            timestamps=None
            if "timestamp" not in columns
            else timestamp_column(columns["timestamp"], self._clock.epoch_ms()),
        )
        partitions = None
        if "partition" in columns:
            partitions = raw_numbers(columns["partition"], np.int32)
            partitions[null_mask(columns["partition"])] = NOT_GIVEN
        topics = [topic] * len(rows) if topic is not None else columns["topic"].to_pylist()
        self._send(topics, rows, partitions, faults)

    def append(self, topic: TopicColumn, columns: RecordColumns, partitions: Int32Array | None) -> None:
        if not self.writes:
            self._sink.append(topic, columns, partitions)
            return
        self._write_refused()
        faults = self._faults(topic, columns, partitions)
        if not faults:
            self._sink.append(topic, columns, partitions)
            return
        rows = np.array(sorted(faults))
        names = topic.names if topic.codes is None else [topic.names[code] for code in topic.codes[rows].tolist()]
        topics = [*names] * (len(rows) if topic.codes is None else 1)
        of_rows = None if partitions is None else partitions[rows]
        self._send(topics, columns.take(rows), of_rows, [faults[row] for row in rows.tolist()])
        good = np.delete(np.arange(len(columns)), rows)
        if len(good):
            self._append_some(topic, columns, partitions, good)

    def partition_count(self, topic: str) -> int:
        if not self.writes or topic in self._unknown:
            return 0
        return self._sink.begun().partition_count(topic)

    def keep_refused(self, sink: RefusingSink) -> None:
        """Records that only a broker finds too large become dead letters too, if they are asked for. Before the first
        row; ``flush`` after the last. Not in a transaction, which a refused record has failed.
        """
        if self.asks_for(Reason.RECORD_TOO_LARGE):
            sink.keep_refused()
            self._refusing = sink

    def flush(self) -> None:
        """Waits until every row and every dead letter is acknowledged."""
        if self._refusing is None:
            return
        self._refusing.flush()
        while self._write_refused():
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
        if self._file is not None:
            self._file.finish()

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

    def _append_some(
        self, topic: TopicColumn, columns: RecordColumns, partitions: Int32Array | None, rows: npt.NDArray[np.intp]
    ) -> None:
        try:
            kept = None if partitions is None else partitions[rows]
            self._sink.append(topic[rows].with_rows(), columns.take(rows), kept)
        except InvalidRecordError as error:
            if error.row is None:
                raise
            raise type(error)(str(error), int(rows[error.row])) from None

    def _send(
        self,
        topics: Sequence[str | None],
        columns: RecordColumns,
        partitions: Int32Array | None,
        faults: Sequence[LetterFault],
    ) -> None:
        self._sink.count(_column_of(topics), columns, partitions)
        if self.writes:
            now = self._clock.epoch_ms()
            times = [now] * len(faults) if columns.timestamps is None else columns.timestamps.tolist()
            where = np.full(len(faults), NOT_GIVEN, np.int32) if partitions is None else partitions
            self._write(Letters(topics, columns, where, times, faults))

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
            self._write(refused_letter(row))
        while (letter := refusing.take_refused_own()) is not None:
            any_refused = True
            LIMITS.ask_again(producer, letter.partition.topic, self._clock)
            shorter = shorter_letter(letter)
            if shorter is None:
                raise letter.error
            self._sink.append_own(letter.partition.topic, shorter)
        return any_refused

    def _write(self, letters: Letters) -> None:
        faults = letters.faults
        for reason, rows in Counter(fault.reason for fault in faults).items():
            self.meter.add_dead_letters(reason.value, rows)
        self._letters += len(faults)
        if (text := self._dead.over_limit(self._letters)) is not None:
            raise DeadLetterLimitError(f"Task {self._name.task}: {text} The last: {faults[-1].message}")
        producer = self._sink.begun()
        if self._file is not None:
            self._file.write(letters)
        if self._dead.topic is not None:
            self._sink.append_own(self._dead.topic, self._headers.records(letters, self._limit(producer)))

    def _limit(self, producer: KafkaProducer) -> int:
        """Of a record of the dead-letter topic."""
        topic = self._dead.topic
        assert topic is not None
        producer.partition_count(topic)
        limit = LIMITS.limits(producer, [topic], self._clock)[topic]
        size = min(producer.config.max_request_size, producer.config.buffer_memory)
        return size if limit is None else min(size, limit)

    def _faults_of_batch(self, batch: pa.RecordBatch, layout: RowLayout, topic: str | None) -> dict[int, LetterFault]:
        """By row; a row's first fault counts."""
        faults: dict[int, LetterFault] = {}
        if layout.headers is not None and self.asks_for(Reason.INVALID_HEADER):
            fault = LetterFault(Reason.INVALID_HEADER, _NULL_HEADER, ILLEGAL_ARGUMENT, "HEADER_CONVERTER")
            faults |= dict.fromkeys(np.flatnonzero(null_header_rows(batch.column(layout.headers))).tolist(), fault)
        if layout.partition is not None and self.asks_for(Reason.INVALID_PARTITION):
            numbers = raw_numbers(batch.column(layout.partition), np.int32)
            negative = (numbers < 0) & ~null_mask(batch.column(layout.partition))
            for row in np.flatnonzero(negative).tolist():
                faults[row] = LetterFault(
                    Reason.INVALID_PARTITION, invalid_partition(int(numbers[row])), ILLEGAL_ARGUMENT
                )
        if topic is None and layout.topic is not None and self.asks_for(Reason.NULL_TOPIC):
            faults |= null_topic_faults(batch.column(layout.topic))
        return faults

    def _faults(
        self, topics: TopicColumn, columns: RecordColumns, partitions: Int32Array | None
    ) -> dict[int, LetterFault]:
        """Of rows that are records. By row."""
        producer = self._sink.begun()
        faults: dict[int, LetterFault] = {}
        if self.asks_for(Reason.RECORD_TOO_LARGE):
            faults |= self._too_large(producer, topics, columns)
        if partitions is not None and self.asks_for(Reason.INVALID_PARTITION):
            faults |= self._beyond_count(producer, topics, partitions)
        if self.asks_for(Reason.UNKNOWN_TOPIC):
            faults |= self._of_unknown_topics(producer, topics, len(columns))
        return faults

    def _too_large(
        self, producer: KafkaProducer, topics: TopicColumn, columns: RecordColumns
    ) -> dict[int, LetterFault]:
        names = [name for name in topics.names if self._exists(producer, name)]
        of_topics = LIMITS.limits(producer, names, self._clock)
        limits = {
            "the max.request.size configuration": producer.config.max_request_size,
            "the buffer.memory configuration": producer.config.buffer_memory,
        }
        smallest = min([*limits.values(), *(limit for limit in of_topics.values() if limit is not None)])
        fields = (columns.key, columns.value, columns.headers)
        longest = sum(int(slot_lengths(each).max(initial=0)) for each in fields if each is not None)
        if longest + _FIELD_OVERHEAD <= smallest:
            return {}
        sizes = java_size_estimate(FieldLengths.of(columns))
        faults = {}
        for row in np.flatnonzero(sizes > smallest).tolist():
            name = topics.names[0 if topics.codes is None else int(topics.codes[row])]
            size, limit = int(sizes[row]), of_topics.get(name)
            over = next((option for option, most in limits.items() if size > most), None)
            if over is not None:
                most = limits[over]
            elif limit is not None and size > limit and _sealed_size(producer, columns, row) > limit:
                over, most = f"max.message.bytes of topic {name}", limit
            else:
                continue
            text = f"The message is {size} bytes when serialized which is larger than {most}, the value of {over}."
            faults[row] = LetterFault(Reason.RECORD_TOO_LARGE, text, TOO_LARGE)
        return faults

    def _beyond_count(
        self, producer: KafkaProducer, topics: TopicColumn, partitions: Int32Array
    ) -> dict[int, LetterFault]:
        highest = int(partitions.max(initial=NOT_GIVEN))
        names = [name for name in topics.names if self._exists(producer, name)]
        counts = {name: producer.partition_count(name) for name in names}
        if highest == NOT_GIVEN or not counts or highest < min(counts.values()):
            return {}
        faults: dict[int, LetterFault] = {}
        for name, rows in topics.groups(np.arange(len(partitions))):
            if name not in counts or int(partitions[rows].max()) < counts[name]:
                continue
            count = self._looked_again(producer, name)
            for row in rows[partitions[rows] >= count].tolist():
                named = f"Partition {partitions[row]} of topic {name} with partition count {count}"
                faults[row] = LetterFault(Reason.INVALID_PARTITION, f"{named} is not present in metadata.", UNKNOWN)
        return faults

    def _of_unknown_topics(self, producer: KafkaProducer, topics: TopicColumn, count: int) -> dict[int, LetterFault]:
        if all(self._exists(producer, name) for name in topics.names):
            return {}
        faults: dict[int, LetterFault] = {}
        for name, rows in topics.groups(np.arange(count)):
            if name in self._unknown:
                fault = LetterFault(Reason.UNKNOWN_TOPIC, f"Topic {name} does not exist.", UNKNOWN)
                faults |= dict.fromkeys(rows.tolist(), fault)
        return faults

    def _exists(self, producer: KafkaProducer, topic: str) -> bool:
        """Waits for the topic up to max.block.ms, unless unknown-topic is asked for."""
        if producer.knows(topic):
            self._unknown.discard(topic)
        elif not self.asks_for(Reason.UNKNOWN_TOPIC):
            producer.partition_count(topic)
        else:
            self._looked_again(producer, topic)
        return topic not in self._unknown

    def _looked_again(self, producer: KafkaProducer, topic: str) -> int:
        """The partition count after a metadata refresh, at most one in five seconds. 0 for an unknown topic, which is
        looked for twice: brokers may be creating it.
        """
        now = self._clock.now()
        if now < self._looked_at.get(topic, now) + _LOOK_AGAIN_MS and topic in self._looked_at:
            return 0 if topic in self._unknown else producer.partition_count(topic)
        count = producer.look_again(topic) or producer.look_again(topic) or 0
        self._looked_at[topic] = self._clock.now()
        if count:
            self._unknown.discard(topic)
        else:
            self._unknown.add(topic)
        return count


def _sealed_size(producer: KafkaProducer, columns: RecordColumns, row: int) -> int:
    """Bytes of a batch with this row alone, compressed as the producer does it."""
    config = producer.config
    one, time = columns.slice(row, 1), np.zeros(1, np.int64)
    of = TopicPartition("", 0)
    return ProducerBatch.of_columns(of, 0.0, one, time, config.compression_type, config.compression_level).size


def _column_of(topics: Sequence[str | None]) -> TopicColumn:
    """A null topic is "" here: no topic has this name."""
    names: dict[str, int] = {}
    codes = np.array([names.setdefault(name or "", len(names)) for name in topics], np.int32)
    return TopicColumn(list(names), None if len(names) == 1 else codes)
