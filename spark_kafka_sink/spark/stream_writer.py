"""The writer of a micro-batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from spark_kafka_sink.spark.commit_message import aborted, announce, committed
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.receipts_path import keep_receipts, probe_receipts
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.task import write_task
from spark_kafka_sink.spark.worker_heap import exempt_imports

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_sink.exactly_once.values import WritePlan


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """Made anew for every micro-batch, and once more for ``commit`` or ``abort`` in another process of the driver."""

    def __init__(self, layout: RowLayout, options: SinkOptions) -> None:
        self.layout = layout
        self.options = options
        self.plan: WritePlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickled is only what runs in the tasks, so this is where an exactly-once micro-batch begins.

        Spark pickles twice, it begins once. The instance for ``commit`` or ``abort`` is never pickled: it must not
        take the fence that these were given.
        """
        probe_receipts(self.options)
        if self.options.exactly_once is not None and self.plan is None:
            from spark_kafka_sink.spark.exactly_once import plan_stream

            self.plan = plan_stream(self.options)
        exempt_imports()
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_task(iterator, self.layout, self.options, self.plan)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        if self.options.exactly_once is not None:
            from spark_kafka_sink.spark.exactly_once import commit_exactly_once

            announce(commit_exactly_once(messages, self.options))
        else:
            announce(f"micro-batch {batchId}: {committed(messages)}")
        keep_receipts(messages, self.options)
        exempt_imports()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        if self.options.exactly_once is not None:
            from spark_kafka_sink.spark.exactly_once import abort_exactly_once

            text, level = abort_exactly_once(messages, self.options)
            announce(f"micro-batch {batchId}: {text}", level)
            return
        announce(f"micro-batch {batchId}: {aborted(messages)}")
