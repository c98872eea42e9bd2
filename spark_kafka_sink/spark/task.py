"""What a task runs, batch and streaming alike: around the write, what its worker needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_kafka_sink.spark.commit_message import KafkaCommitMessage
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.worker_heap import exempt_imports
from spark_kafka_sink.spark.worker_socket import acknowledge_at_once

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_sink.exactly_once.values import WritePlan


def write_task(
    batches: Iterator[pa.RecordBatch], layout: RowLayout, options: SinkOptions, plan: WritePlan | None
) -> KafkaCommitMessage:
    """``plan`` None: at-least-once. The engine is imported here: the driver's processes write nothing and need none."""
    acknowledge_at_once()
    if plan is not None:
        from spark_kafka_sink.spark.exactly_once import write_exactly_once

        message = write_exactly_once(batches, layout, options, plan)
    else:
        from spark_kafka_sink.spark.write import write_rows

        message = write_rows(batches, layout, options)
    exempt_imports()
    return message
