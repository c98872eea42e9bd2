"""A task's write, batch and streaming alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext

from spark_kafka_sink.clock import Clock, SystemClock
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.exactly_once.receipts import TaskName, WriteReceipt, receipt_columns, receipts_of
from spark_kafka_sink.producer import KafkaProducer, SendReceipt
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage, PartitionWrite
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.producer_cache import ProducerCache
from spark_kafka_sink.spark.rows import TopicRows, in_task, topic_rows
from spark_kafka_sink.spark.schema import RowLayout

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties of every task of a micro-batch."""

PRODUCERS: ProducerCache[KafkaProducer] = ProducerCache(KafkaProducer)

Append = Callable[[str, RecordColumns, npt.NDArray[np.int32] | None], None]

_BYTES_PER_TOPIC = 256 << 10


class Cluster(Protocol):
    """What a producer knows of the cluster, or asks it."""

    def expect(self, topics: Sequence[str]) -> None: ...

    def partitions_for(self, topic: str) -> int: ...


class AppendSize:
    """How many bytes are worth an append: a batch for each partition of the topics that a task has met, and some for
    each topic.

    Whatever is done for a partition is paid for by its rows, by the broker's side most of all: 10,000 rows, as many as
    Spark hands over at once, are 10 for each of 1,000 partitions; and each topic is an append of its own. No more than
    half of buffer.memory is held for it.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self.bytes = 0
        self._batch_size = config.batch_size
        self._most = config.buffer_memory // 2
        self._topics: set[str] = set()

    def meet(self, topics: Iterable[str], cluster: Cluster) -> None:
        new = [topic for topic in topics if topic not in self._topics]
        if new:
            cluster.expect(new)
        for topic in new:
            self._topics.add(topic)
            full = max(self._batch_size * cluster.partitions_for(topic), _BYTES_PER_TOPIC)
            self.bytes = min(self.bytes + full, self._most)


def write_rows(batches: Iterator[pa.RecordBatch], layout: RowLayout, options: SinkOptions) -> KafkaCommitMessage:
    """Sends all rows and returns when every one is acknowledged; raises the first error, rows numbered in the task.

    A task without rows opens no producer.
    """
    clock = SystemClock()
    receipt = SendReceipt()
    receipts: tuple[WriteReceipt, ...] = ()
    began_at = 0
    with ExitStack() as stack:
        producer: KafkaProducer | None = None
        worth = AppendSize(options.producer)
        for rows in task_rows(gathered(batches, worth), layout, options.topic, clock):
            if producer is None:
                began_at = clock.epoch_ms()
                producer = stack.enter_context(PRODUCERS.leased(options.producer))
            send(partial(producer.append_columns, receipt=receipt), rows)
            worth.meet(rows.topics, producer)
        if producer is not None:
            producer.flush()
            receipt.wait(options.producer.delivery_timeout_ms)
            if options.wants_receipts:
                receipts = receipts_of(task_name(), receipt.deliveries, began_at, clock.epoch_ms())
                _send_receipts(producer, receipts, options)
    return KafkaCommitMessage(partition_writes(receipt), receipts=receipts)


def task_name() -> TaskName:
    """Of a task that writes at-least-once, whose batch has no other name than Spark's."""
    context = TaskContext.get()
    if context is None:
        return TaskName("", 0, 0)
    query = context.getLocalProperty(QUERY_ID) or context.getLocalProperty("spark.app.id") or ""
    return TaskName(query, int(context.getLocalProperty(BATCH_ID) or 0), context.partitionId())


def _send_receipts(producer: KafkaProducer, receipts: tuple[WriteReceipt, ...], options: SinkOptions) -> None:
    if options.receipts_topic is not None and receipts:
        own = SendReceipt()
        producer.append_columns(options.receipts_topic, receipt_columns(receipts), None, own)
        producer.flush()
        own.wait(options.producer.delivery_timeout_ms)


def gathered(batches: Iterator[pa.RecordBatch], worth: AppendSize) -> Iterator[pa.RecordBatch]:
    """The same rows, in batches that are worth an append."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= worth.bytes:
            yield from _combined(held)
            held, size = [], 0
    if held:
        yield from _combined(held)


def _combined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """One batch, or several where a column of strings or binary has more than 2 GiB, as many as one array can hold."""
    if len(batches) == 1:
        return batches
    combined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return combined


def task_rows(
    batches: Iterator[pa.RecordBatch], layout: RowLayout, topic: str | None, clock: Clock
) -> Iterator[TopicRows]:
    """A task's rows, topic by topic within each batch of Spark's."""
    first_row = 0
    for batch in batches:
        if batch.num_rows:
            yield from topic_rows(batch, layout, topic, first_row, clock.epoch_ms())
            first_row += batch.num_rows


def send(append: Append, rows: TopicRows) -> None:
    """Appends rows; an error about one of them names its number in the task."""
    try:
        append(rows.topic, rows.columns, rows.partitions)
    except InvalidRecordError as error:
        if error.row is None:
            raise
        raise in_task(error, int(rows.rows[error.row])) from None


def partition_writes(receipt: SendReceipt) -> tuple[PartitionWrite, ...]:
    """What became of a task's rows, by topic and partition."""
    return tuple(
        PartitionWrite(place.topic, place.partition, sent.count, sent.size, sent.first_offset, sent.last_offset)
        for place, sent in sorted(receipt.deliveries.items())
    )
