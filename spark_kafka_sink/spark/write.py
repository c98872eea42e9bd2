"""An at-least-once task: the pipeline into a leased producer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from spark_kafka_sink.common.clock import Clock, SystemClock
from spark_kafka_sink.common.task_figures import TaskFigures
from spark_kafka_sink.exactly_once.receipts import TaskName, WriteReceipt, receipt_columns, receipts_of
from spark_kafka_sink.producer import SendReceipt
from spark_kafka_sink.producer.engine import ProducerEngine
from spark_kafka_sink.producer.task_meter import TaskMeter
from spark_kafka_sink.records.columns import Int32Array, RecordColumns, TopicColumn
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage, PartitionWrite
from spark_kafka_sink.spark.end import End
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.pipeline import Pipeline, task_formats
from spark_kafka_sink.spark.producer_cache import ProducerCache
from spark_kafka_sink.spark.schema import RowLayout

if TYPE_CHECKING:
    from spark_kafka_sink.producer.append.receipt import RefusalReceipt
    from spark_kafka_sink.schemas.formats.plan import FormatPlan
    from spark_kafka_sink.spark.dead_letters.files import LetterRun
    from spark_kafka_sink.spark.dead_letters.writer import DeadLetterWriter

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties of every task of a micro-batch."""

_DESCRIPTION = "spark.job.description"
"""Local property. Of a micro-batch: the query's name, its id and the run's, on a line each (``StreamExecution``)."""

_RUN = ("spark.app.id", "spark.sql.execution.root.id", "spark.sql.execution.id")
"""Local properties of ``LetterRun``."""

PRODUCERS = ProducerCache(ProducerEngine)


class LeasedProducer:
    """The ``End`` of an at-least-once task: a producer, leased at its first row and returned when ``stack`` closes."""

    writes = True
    is_transaction = False

    def __init__(self, stack: ExitStack, options: SinkOptions, clock: Clock) -> None:
        self._stack = stack
        self._options = options
        self._clock = clock
        self._engine: ProducerEngine | None = None
        self._began_at = 0
        self.receipt = SendReceipt()
        self._own = SendReceipt()
        self.meter = TaskMeter(clock)

    def engine(self) -> ProducerEngine:
        if self._engine is None:
            self._began_at = self._clock.epoch_ms()
            self._engine = self._stack.enter_context(PRODUCERS.leased(self._options.producer))
            self.meter.lease(self._engine)
        return self._engine

    def count(self, topics: TopicColumn, columns: RecordColumns, partitions: Int32Array | None) -> None:
        """At-least-once compares no replays."""

    def append(self, topics: TopicColumn, columns: RecordColumns, partitions: Int32Array | None) -> None:
        self.engine().append_columns(topics, columns, partitions, receipt=self.receipt)

    def append_own(self, topic: str, columns: RecordColumns) -> None:
        self.engine().append_columns(topic, columns, None, receipt=self._own)

    def keep_refused(self) -> tuple[RefusalReceipt, RefusalReceipt]:
        from spark_kafka_sink.producer.append.receipt import RefusalReceipt

        rows, own = RefusalReceipt(), RefusalReceipt()
        self.receipt, self._own = rows, own
        return rows, own

    def flush(self) -> None:
        if self._engine is not None:
            with self.meter.awaiting():
                self._engine.flush()
                self.receipt.wait(self._options.producer.delivery_timeout_ms)
                self._own.wait(self._options.producer.delivery_timeout_ms)

    def partition_count(self, topic: str) -> int:
        return self.engine().topics.partition_count(topic)

    def finish(self) -> KafkaCommitMessage:
        """Waits until all rows are acknowledged; then sends the receipts, if the options ask for them."""
        if self._engine is None and not self.meter.has_dead_letters:
            return KafkaCommitMessage()
        engine = self.engine()  # without rows to send: all are dead letters in files
        self.flush()
        figures = self.meter.figures(self.receipt)
        if self._options.receipts_topic is not None:
            self._send_receipts(engine, self._options.receipts_topic, figures)
        return KafkaCommitMessage(partition_writes(self.receipt), figures=figures)

    def _send_receipts(self, engine: ProducerEngine, topic: str, figures: TaskFigures) -> None:
        ended_at = self._clock.epoch_ms()
        receipts = with_query_name(receipts_of(task_name(), self.receipt.deliveries, self._began_at, ended_at, figures))
        if receipts:
            sent = SendReceipt()
            engine.append_columns(topic, receipt_columns(receipts), None, receipt=sent)
            engine.flush()
            sent.wait(self._options.producer.delivery_timeout_ms)


def write_rows(
    batches: Iterator[pa.RecordBatch],
    layout: RowLayout,
    options: SinkOptions,
    plan: FormatPlan | None = None,
    *,
    of_job: bool = False,
) -> KafkaCommitMessage:
    """Sends all rows and waits until every one is acknowledged; raises the first error, with the row's number.

    A task without rows opens no producer. ``of_job``: of a batch job, which may be one of several in a foreachBatch.
    """
    clock = SystemClock()
    with ExitStack() as stack:
        end = LeasedProducer(stack, options, clock)
        topic = options.topic if of_job and _query_id() else None
        letters = dead_letters(end, options, clock, _letters_name(), stack, topic)
        formats = task_formats(plan, options, end)
        Pipeline(options, end, clock, letters, formats).write(batches, layout)
        if letters is not None:
            letters.flush()
        message = end.finish()
        if letters is not None:
            letters.finish()
            message = replace(message, letter_files=letters.files)
        return message


def dead_letters(
    end: End, options: SinkOptions, clock: Clock, name: TaskName, stack: ExitStack, topic: str | None = None
) -> DeadLetterWriter | None:
    """Imports what tasks without dead letters do not need. ``stack`` closes the writer. ``topic``: tells the write from
    others of the same name and batch, in a foreachBatch.
    """
    if options.dead_letters is None:
        return None
    from spark_kafka_sink.spark.dead_letters.files import LetterFiles, quoted, write_name
    from spark_kafka_sink.spark.dead_letters.writer import DeadLetterWriter

    given = options.dead_letters.name
    of_write = write_name(name.query, name.batch, topic) if given is None else quoted(given)
    letters = DeadLetterWriter(end, options.dead_letters, clock, name, LetterFiles(of_write, _letters_run()))
    stack.callback(letters.close)
    return letters


def task_name() -> TaskName:
    """The name of an at-least-once task in its receipts: query or application id, batch, Spark partition."""
    context = TaskContext.get()
    if context is None:
        return TaskName("", 0, 0)
    query = context.getLocalProperty(QUERY_ID) or context.getLocalProperty("spark.app.id") or ""
    return TaskName(query, int(context.getLocalProperty(BATCH_ID) or 0), context.partitionId())


def with_query_name(receipts: tuple[WriteReceipt, ...]) -> tuple[WriteReceipt, ...]:
    """The receipts with the name of the streaming query that the task belongs to, also inside its foreachBatch."""
    context, query = TaskContext.get(), _query_id()
    if context is None or query is None:
        return receipts
    name, is_querys, _ = (context.getLocalProperty(_DESCRIPTION) or "").partition(f"\nid = {query}\n")
    return tuple(replace(each, query_name=name) for each in receipts) if is_querys else receipts


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
    from spark_kafka_sink.spark.dead_letters.files import LetterRun

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
