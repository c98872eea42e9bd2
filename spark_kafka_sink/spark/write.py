"""A task's write, batch and streaming alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from spark_kafka_sink.common.clock import Clock, SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.task_figures import TaskFigures
from spark_kafka_sink.common.waiting import sleep
from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.exactly_once.receipts import TaskName, WriteReceipt, receipt_columns, receipts_of
from spark_kafka_sink.producer import KafkaProducer, SendReceipt
from spark_kafka_sink.producer.partitioning.partitioner import LEFT_OUT
from spark_kafka_sink.producer.task_meter import TaskMeter
from spark_kafka_sink.records.columns import Int32Array, RecordColumns, TopicColumn
from spark_kafka_sink.records.sizes import FieldLengths, record_size_bounds
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage, PartitionWrite
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.producer_cache import ProducerCache
from spark_kafka_sink.spark.rate import Pace
from spark_kafka_sink.spark.rows import in_task, task_rows
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.topic_creation import ensure_topics

if TYPE_CHECKING:
    from spark_kafka_sink.producer.append.refused_records import RefusalReceipt, RefusedRecord
    from spark_kafka_sink.schemas.formats.plan import EarlierSchemas, FormatPlan
    from spark_kafka_sink.spark.dead_letters.names import LetterRun
    from spark_kafka_sink.spark.dead_letters.sink import DeadLetterSink, LetterSink
    from spark_kafka_sink.spark.encoded_rows import EncodedRows

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties of every task of a micro-batch."""

_RUN = ("spark.app.id", "spark.sql.execution.root.id", "spark.sql.execution.id")
"""Local properties of ``LetterRun``."""

PRODUCERS = ProducerCache(KafkaProducer)

_BYTES_PER_TOPIC = 256 << 10

_OFFSET_DELTAS = 64
"""Their varints take two bytes, as most of a batch do."""


class RowSink(Protocol):
    """Where a task's rows go: a producer, or a transaction. ``writes`` False: rows of a replay, only counted."""

    @property
    def meter(self) -> TaskMeter: ...
    @property
    def writes(self) -> bool: ...
    def append(self, topic: TopicColumn, columns: RecordColumns, partitions: Int32Array | None) -> None: ...
    def partition_count(self, topic: str) -> int: ...


class _PacedSink:
    """A sink that keeps to ``maxBytesPerSecondPerTask`` and ``maxRowsPerSecondPerTask``."""

    def __init__(self, sink: RowSink, pace: Pace) -> None:
        self._sink = sink
        self._pace = pace
        self.writes = sink.writes
        self.meter = sink.meter
        self.partition_count = sink.partition_count

    def append(self, topic: TopicColumn, columns: RecordColumns, partitions: Int32Array | None) -> None:
        sizes = record_size_bounds(FieldLengths.of(columns), _OFFSET_DELTAS, 1)
        for part in self._pace.parts(sizes):
            self.meter.paused(self._pace.wait())
            rows = columns.slice(part.start, part.stop - part.start)
            of_rows = None if partitions is None else partitions[part]
            written = np.ones(len(rows), np.bool_) if of_rows is None else of_rows != LEFT_OUT
            if not written.any():
                continue
            try:
                self._sink.append(topic[part].naming(written), rows, of_rows)
            except InvalidRecordError as error:
                if error.row is None:
                    raise
                raise type(error)(str(error), part.start + error.row) from None


class AppendSize:
    """Target size of an append, ``bytes``: a batch per partition of the task's topics, at least 256 KiB per topic.

    Spark passes 10,000 rows at a time, 10 per partition of a topic with 1,000: each partition's batch, its request and
    the broker's work would be paid by 10 rows. At most half of ``buffer.memory``.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self.bytes = 0
        self._batch_size = config.batch_size
        self._most = config.buffer_memory // 2
        self._topics: set[str] = set()

    def add(self, topics: Iterable[str], sink: RowSink) -> None:
        """Counts the topics that are new to the task."""
        for topic in topics:
            if topic not in self._topics:
                self._topics.add(topic)
                full = max(self._batch_size * sink.partition_count(topic), _BYTES_PER_TOPIC)
                self.bytes = min(self.bytes + full, self._most)


class _LeasedProducer:
    """The producer of an at-least-once task, leased at its first row and returned when ``stack`` closes."""

    writes = True

    def __init__(self, stack: ExitStack, options: SinkOptions, clock: Clock) -> None:
        self._stack = stack
        self._options = options
        self._clock = clock
        self._producer: KafkaProducer | None = None
        self._began_at = 0
        self.receipt = SendReceipt()
        self._own = SendReceipt()
        self._refused_rows: RefusalReceipt | None = None
        self._refused_own: RefusalReceipt | None = None
        self.meter = TaskMeter(clock)

    def keep_refused(self) -> None:
        """Records that only a broker finds too large do not fail the task. Call it before the first row."""
        from spark_kafka_sink.producer.append.refused_records import RefusalReceipt

        self.receipt = self._refused_rows = RefusalReceipt()
        self._own = self._refused_own = RefusalReceipt()

    def begun(self) -> KafkaProducer:
        if self._producer is None:
            self._began_at = self._clock.epoch_ms()
            self._producer = self._stack.enter_context(PRODUCERS.leased(self._options.producer))
            self.meter.lease(self._producer)
        return self._producer

    def count(self, topics: TopicColumn, columns: RecordColumns, partitions: Int32Array | None) -> None:
        """At-least-once compares no replays."""

    def append(self, topic: TopicColumn, columns: RecordColumns, partitions: Int32Array | None) -> None:
        self.begun().append_columns(topic, columns, partitions, receipt=self.receipt)

    def append_own(self, topic: str, columns: RecordColumns) -> None:
        """The sink's own records."""
        self.begun().append_columns(topic, columns, None, receipt=self._own)

    def take_refused_row(self) -> RefusedRecord | None:
        return None if self._refused_rows is None else self._refused_rows.take_refused()

    def take_refused_own(self) -> RefusedRecord | None:
        return None if self._refused_own is None else self._refused_own.take_refused()

    def flush(self) -> None:
        """Waits until all records are acknowledged, or kept as refused."""
        if self._producer is not None:
            with self.meter.awaiting():
                self._producer.flush()
                self.receipt.wait(self._options.producer.delivery_timeout_ms)
                self._own.wait(self._options.producer.delivery_timeout_ms)

    def partition_count(self, topic: str) -> int:
        assert self._producer is not None
        return self._producer.partition_count(topic)

    def finish(self) -> KafkaCommitMessage:
        """Waits until all rows are acknowledged; then sends the receipts, if the options ask for them."""
        if self._producer is None and not self.meter.has_dead_letters:
            return KafkaCommitMessage()
        producer = self.begun()  # without rows to send: all are dead letters in files
        self.flush()
        figures = self.meter.figures(self.receipt)
        receipts = self._send_receipts(producer, figures) if self._options.wants_receipts else ()
        return KafkaCommitMessage(partition_writes(self.receipt), receipts=receipts, figures=figures)

    def _send_receipts(self, producer: KafkaProducer, figures: TaskFigures) -> tuple[WriteReceipt, ...]:
        ended_at = self._clock.epoch_ms()
        receipts = receipts_of(task_name(), self.receipt.deliveries, self._began_at, ended_at, figures)
        if self._options.receipts_topic is not None and receipts:
            sent = SendReceipt()
            producer.append_columns(self._options.receipts_topic, receipt_columns(receipts), None, receipt=sent)
            producer.flush()
            sent.wait(self._options.producer.delivery_timeout_ms)
        return receipts


def write_rows(
    batches: Iterator[pa.RecordBatch],
    layout: RowLayout,
    options: SinkOptions,
    formats: FormatPlan | None = None,
    *,
    of_job: bool = False,
) -> KafkaCommitMessage:
    """Sends all rows and waits until every one is acknowledged; raises the first error, with the row's number.

    A task without rows opens no producer. ``of_job``: of a batch job, which may be one of several in a foreachBatch.
    """
    clock = SystemClock()
    with ExitStack() as stack:
        leased = _LeasedProducer(stack, options, clock)
        topic = options.topic if of_job and _query_id() else None
        letters = dead_letters(leased, options, clock, _letters_name(), stack, topic)
        if letters is not None:
            letters.keep_refused(leased)
        topics = None if formats is None else brokers_topics(options, leased, letters)
        encoded = None if formats is None else encoded_rows(layout, options, formats, letters, topics=topics)
        if encoded is not None:
            batches, layout = encoded.batches(batches, leased.meter), encoded.layout
        append_rows(batches, layout, options, clock, leased, letters)
        if letters is not None:
            letters.flush()
        message = leased.finish()
        if letters is not None:
            letters.finish()
            message = replace(message, letter_files=letters.files)
        return message if encoded is None else replace(message, asked_schemas=encoded.formats.asked)


def dead_letters(
    sink: LetterSink, options: SinkOptions, clock: Clock, name: TaskName, stack: ExitStack, topic: str | None = None
) -> DeadLetterSink | None:
    """Imports what tasks without dead letters do not need. ``stack`` closes the sink. ``topic``: tells the write from
    others of the same name and batch, in a foreachBatch.
    """
    if options.dead_letters is None:
        return None
    from spark_kafka_sink.spark.dead_letters.names import LetterFiles, quoted, write_name
    from spark_kafka_sink.spark.dead_letters.sink import DeadLetterSink

    given = options.dead_letters.name
    of_write = write_name(name.query, name.batch, topic) if given is None else quoted(given)
    letters = DeadLetterSink(sink, options.dead_letters, clock, name, LetterFiles(of_write, _letters_run()))
    stack.callback(letters.close)
    return letters


class BrokersTopics:
    """Looks topics up as appending a row of theirs does."""

    def __init__(self, options: SinkOptions, sink: LetterSink) -> None:
        self._options = options
        self._sink = sink

    def require(self, topic: str) -> None:
        ensure_topics(self._options, [topic])
        self._sink.begun().partition_count(topic)


def brokers_topics(options: SinkOptions, sink: LetterSink, letters: DeadLetterSink | None) -> BrokersTopics | None:
    """None where a missing topic is not an error, because rows are not written or become dead letters."""
    judges = letters is not None and letters.judges_topics
    return BrokersTopics(options, sink) if sink.writes and not judges else None


def encoded_rows(
    layout: RowLayout,
    options: SinkOptions,
    formats: FormatPlan,
    letters: DeadLetterSink | None,
    earlier: EarlierSchemas | None = None,
    topics: BrokersTopics | None = None,
) -> EncodedRows:
    """Imports what tasks with raw keys and values do not need."""
    from spark_kafka_sink.schemas.formats.task_formats import TaskFormats
    from spark_kafka_sink.spark.encoded_rows import EncodedRows

    return EncodedRows(layout, options.topic, TaskFormats(formats, earlier, topics), letters)


def append_rows(
    batches: Iterator[pa.RecordBatch],
    layout: RowLayout,
    options: SinkOptions,
    clock: Clock,
    sink: RowSink,
    letters: DeadLetterSink | None = None,
) -> None:
    """Appends a task's rows; an error about a row names the row's number in the task.

    ``letters``: takes the rows that cannot be written, and appends the others to ``sink``.
    """
    target = AppendSize(options.producer)
    rows_of, sink = (task_rows, sink) if letters is None else (letters.rows, letters)
    looks_up = sink.writes and (letters is None or not letters.judges_topics)
    if sink.writes and (options.bytes_per_s or options.rows_per_s):
        sink = _PacedSink(sink, Pace(options.bytes_per_s, options.rows_per_s, clock, sleep))
    first_row = 0
    for batch in gathered(batches, target):
        if not batch.num_rows:
            continue
        with sink.meter.appending():
            for rows in rows_of(batch, layout, options.topic, first_row, clock.epoch_ms()):
                if looks_up:
                    ensure_topics(options, rows.topics.names)
                try:
                    sink.append(rows.topics, rows.columns, rows.partitions)
                except InvalidRecordError as error:
                    if error.row is None:
                        raise
                    raise in_task(error, rows.first_row + error.row) from None
                target.add(rows.topics.names, sink)
        first_row += batch.num_rows
    if letters is not None:
        with letters.meter.appending():
            letters.write_held()


def gathered(batches: Iterator[pa.RecordBatch], target: AppendSize) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at least the target size."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= target.bytes:
            yield from _combined(held)
            held, size = [], 0
    if held:
        yield from _combined(held)


def _combined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """One batch; several if a column of strings or binary exceeds 2 GiB, the limit of an Arrow array."""
    if len(batches) == 1:
        return batches
    combined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return combined


def task_name() -> TaskName:
    """The name of an at-least-once task in its receipts: query or application id, batch, Spark partition."""
    context = TaskContext.get()
    if context is None:
        return TaskName("", 0, 0)
    query = context.getLocalProperty(QUERY_ID) or context.getLocalProperty("spark.app.id") or ""
    return TaskName(query, int(context.getLocalProperty(BATCH_ID) or 0), context.partitionId())


def _letters_name() -> TaskName:
    """The task's name for dead letters: ``task_name``, but jobs of one application differ by their stages."""
    name, context = task_name(), TaskContext.get()
    if context is None or _query_id():
        return name
    return name._replace(query=f"{name.query}-stage-{context.stageId()}")


def _query_id() -> str | None:
    """The id of the streaming query that the task belongs to, also inside its foreachBatch, if Spark tells it."""
    context = TaskContext.get()
    query: str | None = None if context is None else context.getLocalProperty(QUERY_ID)
    return query


def _letters_run() -> LetterRun:
    from spark_kafka_sink.spark.dead_letters.names import LetterRun

    context = TaskContext.get()
    if context is None:
        return LetterRun()
    return LetterRun(*((context.getLocalProperty(name) or "") for name in _RUN))


def partition_writes(receipt: SendReceipt) -> tuple[PartitionWrite, ...]:
    """A task's delivered rows, sorted by topic and partition."""
    return tuple(
        PartitionWrite(partition.topic, partition.partition, sent.count, sent.size, sent.first_offset, sent.last_offset)
        for partition, sent in sorted(receipt.deliveries.items())
    )
