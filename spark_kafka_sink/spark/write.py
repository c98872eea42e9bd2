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
from spark_kafka_sink.producer.core import ProducerCore
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
    from spark_kafka_sink.spark.dead_letters.writer import DeadLetterWriter

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties of every task of a micro-batch."""

_DESCRIPTION = "spark.job.description"
"""Local property. Of a micro-batch: the query's name, its id and the run's, on a line each (``StreamExecution``)."""

PRODUCERS = ProducerCache(ProducerCore.open)


class LeasedProducer:
    """The ``End`` of an at-least-once task: a producer, leased at its first row and returned when ``stack`` closes."""

    writes = True
    is_transaction = False

    def __init__(self, stack: ExitStack, options: SinkOptions, clock: Clock) -> None:
        self._stack = stack
        self._options = options
        self._clock = clock
        self._core: ProducerCore | None = None
        self._began_at = 0
        self.receipt = SendReceipt()
        self._own = SendReceipt()
        self.meter = TaskMeter(clock)

    def core(self) -> ProducerCore:
        if self._core is None:
            self._began_at = self._clock.epoch_ms()
            self._core = self._stack.enter_context(PRODUCERS.leased(self._options.producer))
            self.meter.lease(self._core.accumulator.metrics)
        return self._core

    def count(self, topics: TopicColumn, columns: RecordColumns, partitions: Int32Array | None) -> None:
        """At-least-once compares no replays."""

    def append(self, topics: TopicColumn, columns: RecordColumns, partitions: Int32Array | None) -> None:
        self.core().append_columns(topics, columns, partitions, receipt=self.receipt)

    def append_own(self, topic: str, columns: RecordColumns) -> None:
        self.core().append_columns(topic, columns, None, receipt=self._own)

    def keep_refused(self) -> tuple[RefusalReceipt, RefusalReceipt]:
        from spark_kafka_sink.producer.append.receipt import RefusalReceipt

        rows, own = RefusalReceipt(), RefusalReceipt()
        self.receipt, self._own = rows, own
        return rows, own

    def flush(self) -> None:
        if self._core is not None:
            with self.meter.awaiting():
                self._core.flush()
                self.receipt.wait(self._options.producer.delivery_timeout_ms)
                self._own.wait(self._options.producer.delivery_timeout_ms)

    def partition_count(self, topic: str) -> int:
        return self.core().partition_count(topic)

    def finish(self) -> KafkaCommitMessage:
        """Waits until all rows are acknowledged; then sends the receipts, if the options ask for them."""
        if self._core is None:
            return KafkaCommitMessage()
        self.flush()
        figures = self.meter.figures(self.receipt)
        if self._options.receipts_topic is not None:
            self._send_receipts(self._core, self._options.receipts_topic, figures)
        return KafkaCommitMessage(partition_writes(self.receipt), figures=figures)

    def _send_receipts(self, core: ProducerCore, topic: str, figures: TaskFigures) -> None:
        ended_at = self._clock.epoch_ms()
        receipts = with_query_name(receipts_of(task_name(), self.receipt.deliveries, self._began_at, ended_at, figures))
        if receipts:
            sent = SendReceipt()
            core.append_columns(topic, receipt_columns(receipts), None, receipt=sent)
            core.flush()
            sent.wait(self._options.producer.delivery_timeout_ms)


def write_rows(
    batches: Iterator[pa.RecordBatch],
    layout: RowLayout,
    options: SinkOptions,
    plan: FormatPlan | None = None,
) -> KafkaCommitMessage:
    """Sends all rows and waits until every one is acknowledged; raises the first error, with the row's number.

    A task without rows opens no producer.
    """
    clock = SystemClock()
    with ExitStack() as stack:
        end = LeasedProducer(stack, options, clock)
        formats = task_formats(plan, options, end)
        letters = dead_letter_writer(end, options, clock, task_name())
        Pipeline(options, end, clock, letters, formats).write(batches, layout)
        return end.finish()


def dead_letter_writer(end: End, options: SinkOptions, clock: Clock, name: TaskName) -> DeadLetterWriter | None:
    """Imports what tasks without dead letters do not need."""
    if options.dead_letters is None:
        return None
    from spark_kafka_sink.spark.dead_letters.writer import DeadLetterWriter

    return DeadLetterWriter(end, options.dead_letters, clock, name)


def task_name() -> TaskName:
    """Names an at-least-once task in receipts and dead letters: query or application id, batch, Spark partition."""
    context = TaskContext.get()
    if context is None:
        return TaskName("", 0, 0)
    query = context.getLocalProperty(QUERY_ID) or context.getLocalProperty("spark.app.id") or ""
    return TaskName(query, int(context.getLocalProperty(BATCH_ID) or 0), context.partitionId())


def with_query_name(receipts: tuple[WriteReceipt, ...]) -> tuple[WriteReceipt, ...]:
    """The receipts with the name of the streaming query that the task belongs to, also inside its foreachBatch."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    if context is None or query is None:
        return receipts
    name, is_querys, _ = (context.getLocalProperty(_DESCRIPTION) or "").partition(f"\nid = {query}\n")
    return tuple(replace(each, query_name=name) for each in receipts) if is_querys else receipts


def partition_writes(receipt: SendReceipt) -> tuple[PartitionWrite, ...]:
    """A task's delivered rows, sorted by topic and partition."""
    return tuple(
        PartitionWrite(partition.topic, partition.partition, sent.count, sent.size, sent.first_offset, sent.last_offset)
        for partition, sent in sorted(receipt.deliveries.items())
    )
