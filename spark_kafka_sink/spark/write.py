"""An at-least-once task: the pipeline into a leased producer.

There is one producer per configuration and Python worker, kept from task to task (Spark:
``InternalKafkaProducerPool``). Nothing depends on a kept producer: a worker may end after any task.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark import TaskContext

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.exactly_once.receipts import TaskName, WriteReceipt, receipt_columns, receipts_of
from spark_kafka_sink.producer.core import ProducerCore
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.producer.task_output import TaskOutput
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage, PartitionWrite
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.pipeline import UNNAMED, Pipeline, task_formats
from spark_kafka_sink.spark.schema import RowLayout

if TYPE_CHECKING:
    from spark_kafka_sink.schemas.formats.plan import FormatPlan

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""The local properties with the query's id and the batch's number in every task of a micro-batch."""

_DESCRIPTION = "spark.job.description"
"""The local property that in a micro-batch has the query's name, its id and the run's id, on a line each
(``StreamExecution``)."""


def write_rows(
    batches: Iterator[pa.RecordBatch],
    layout: RowLayout,
    options: SinkOptions,
    plan: FormatPlan | None = None,
) -> KafkaCommitMessage:
    """Sends all rows and waits until every one is acknowledged; raises the first error, with the row's number.

    A task without rows does not open a producer.
    """
    clock, name, dead = SystemClock(), task_name(), options.dead_letters
    kept: frozenset[int] = frozenset()
    if dead is not None:
        from spark_kafka_sink.spark.validate import kept_codes

        kept = kept_codes(dead.reasons)
    with TaskOutput(options.producer, clock, PRODUCERS.leased, kept_codes=kept) as output:
        formats = task_formats(plan, options, output)
        Pipeline(options, output, clock, name, formats).write(batches, layout)
        if not output.began_at:
            return KafkaCommitMessage()
        output.flush()
        figures = output.meter.figures(output.receipt)
        if options.receipts_topic is not None:
            deliveries, ended_at = output.receipt.deliveries, clock.epoch_ms()
            receipts = with_query_name(receipts_of(name, deliveries, output.began_at, ended_at, figures))
            _send_receipts(output.core(), options.receipts_topic, receipts)
        return KafkaCommitMessage(partition_writes(output.receipt), figures=figures)


def _send_receipts(core: ProducerCore, topic: str, receipts: Sequence[WriteReceipt]) -> None:
    if receipts:
        sent = SendReceipt()
        core.append_columns(topic, receipt_columns(receipts), None, receipt=sent)
        core.flush()
        sent.wait(core.config.delivery_timeout_ms)


def task_name() -> TaskName:
    """The name of an at-least-once task in receipts and dead letters: query or application id, batch, Spark
    partition."""
    context = TaskContext.get()
    if context is None:
        return UNNAMED
    query = context.getLocalProperty(QUERY_ID) or context.getLocalProperty("spark.app.id") or ""
    return TaskName(query, int(context.getLocalProperty(BATCH_ID) or 0), context.partitionId())


def with_query_name(receipts: tuple[WriteReceipt, ...]) -> tuple[WriteReceipt, ...]:
    """The receipts with the name of the streaming query that the task belongs to, even inside its foreachBatch."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    if context is None or query is None:
        return receipts
    name, is_querys, _ = (context.getLocalProperty(_DESCRIPTION) or "").partition(f"\nid = {query}\n")
    return tuple(replace(receipt, query_name=name) for receipt in receipts) if is_querys else receipts


def partition_writes(receipt: SendReceipt) -> tuple[PartitionWrite, ...]:
    """A task's delivered rows, sorted by topic and partition."""
    return tuple(
        PartitionWrite(partition.topic, partition.partition, sent.count, sent.size, sent.first_offset, sent.last_offset)
        for partition, sent in sorted(receipt.deliveries.items())
    )


IDLE_MS = 600_000.0
"""How long an unused producer is kept: Spark's default of ``spark.kafka.producer.cache.timeout``."""


MAX_IDLE = 64
"""The most idle producers, each of which has a thread and about five descriptors. Beyond this number, the least
recently used one is closed."""


class _Idle(NamedTuple):
    """A producer that is not leased. ``until``: when it expires (monotonic ms)."""

    producer: ProducerCore
    until: float


class ProducerCache:
    """Keeps the producers that ``open_producer`` opens. Any thread may lease one, for itself alone.

    The end of a lease closes expired producers. No thread looks for them meanwhile, because Spark ends a worker that
    has been idle for a minute.
    """

    def __init__(self, open_producer: Callable[[ProducerConfig], ProducerCore], idle_ms: float = IDLE_MS) -> None:
        self._open_producer = open_producer
        self._idle_ms = idle_ms
        self._clock = SystemClock()
        self._abandoned: list[Mapping[ProducerConfig, _Idle]] = []
        self._begin()
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.close)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[ProducerConfig, _Idle] = {}
        self._closed = False

    @contextmanager
    def leased(self, config: ProducerConfig) -> Iterator[ProducerCore]:
        """Leases a working producer for the duration of the block. Each block starts new sticky runs.

        If the block fails the producer is closed: the next task must not send its unfinished batches.
        """
        producer = self._lease(config)
        try:
            yield producer
        except BaseException:
            producer.close(0)
            raise
        self._give_back(config, producer)

    def close(self) -> None:
        """Closes the idle producers. A leased producer is closed when its block ends."""
        with self._lock:
            self._closed = True
            kept, self._idle = self._idle, {}
        for idle in kept.values():
            idle.producer.close(0)

    def _lease(self, config: ProducerConfig) -> ProducerCore:
        with self._lock:
            idle = self._idle.pop(config, None)
        if idle is not None and idle.until > self._clock.now() and idle.producer.is_alive():
            idle.producer.begin_sticky_runs()
            return idle.producer
        if idle is not None:
            idle.producer.close(0)
        return self._open_producer(config)

    def _give_back(self, config: ProducerConfig, producer: ProducerCore) -> None:
        now = self._clock.now()
        with self._lock:
            due = [kept for kept, idle in self._idle.items() if idle.until <= now]
            unused = [self._idle.pop(kept).producer for kept in due]
            if self._closed or config in self._idle:  # another task has returned its producer first
                unused.append(producer)
            else:
                self._idle[config] = _Idle(producer, now + self._idle_ms)
            if len(self._idle) > MAX_IDLE:
                unused.append(self._idle.pop(next(iter(self._idle))).producer)
        for each in unused:
            each.close(0)

    def _forget(self) -> None:
        """Forgets the parent's producers, and its lock, which may be held, in the child of a fork."""
        self._abandoned.append(self._idle)  # finalisers would close the parent's sockets
        self._begin()


PRODUCERS = ProducerCache(ProducerCore.open)
