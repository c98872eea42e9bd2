"""A task's write, batch and streaming alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pyarrow as pa

from spark_kafka_sink.clock import SystemClock
from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.producer import KafkaProducer, SendReceipt
from spark_kafka_sink.spark.columns import TopicRows, in_task, topic_rows
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage, PartitionWrite
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.producer_cache import ProducerCache
from spark_kafka_sink.spark.schema import RowLayout

PRODUCERS: ProducerCache[KafkaProducer] = ProducerCache(KafkaProducer)


def write_rows(batches: Iterator[pa.RecordBatch], layout: RowLayout, options: SinkOptions) -> KafkaCommitMessage:
    """Sends all rows and returns when every one is acknowledged; raises the first error, rows numbered in the task.

    A task without rows opens no producer.
    """
    clock = SystemClock()
    receipt = SendReceipt()
    first_row = 0
    with ExitStack() as stack:
        producer: KafkaProducer | None = None
        for batch in batches:
            if not batch.num_rows:
                continue
            if producer is None:
                producer = stack.enter_context(PRODUCERS.leased(options.producer))
            for rows in topic_rows(batch, layout, options.topic, first_row, clock.epoch_ms()):
                _append(producer, rows, receipt)
            first_row += batch.num_rows
        if producer is not None:
            producer.flush()
            receipt.wait(options.producer.delivery_timeout_ms)
    return KafkaCommitMessage(
        tuple(
            PartitionWrite(place.topic, place.partition, sent.count, sent.size, sent.first_offset, sent.last_offset)
            for place, sent in sorted(receipt.deliveries.items())
        )
    )


def _append(producer: KafkaProducer, rows: TopicRows, receipt: SendReceipt) -> None:
    try:
        producer.append_columns(rows.topic, rows.columns, rows.partitions, receipt)
    except InvalidRecordError as error:
        if error.row is None:
            raise
        raise in_task(error, int(rows.rows[error.row])) from None
