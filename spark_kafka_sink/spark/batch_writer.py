"""The writer of a batch job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from spark_kafka_sink.spark.commit_message import aborted, announce, committed
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.receipts_path import keep_receipts, probe_receipts
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.task import write_task
from spark_kafka_sink.spark.worker_heap import exempt_imports

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_sink.exactly_once.values import WritePlan


class KafkaBatchWriter(DataSourceArrowWriter):
    """Pickled once: ``write`` runs in every task, ``commit`` or ``abort`` in a process of the driver."""

    def __init__(self, layout: RowLayout, options: SinkOptions) -> None:
        self.layout = layout
        self.options = options
        self.plan: WritePlan | None = None
        if options.exactly_once is not None:
            from spark_kafka_sink.spark.exactly_once import named

            self.options = named(options)

    def __getstate__(self) -> dict[str, Any]:
        """Pickled is what runs: this is where an exactly-once write begins. Spark pickles twice, it begins once."""
        probe_receipts(self.options)
        if self.options.exactly_once is not None and self.plan is None:
            from spark_kafka_sink.spark.exactly_once import plan_batch

            self.plan = plan_batch(self.options)
        exempt_imports()
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_task(iterator, self.layout, self.options, self.plan)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self.options.exactly_once is not None:
            from spark_kafka_sink.spark.exactly_once import commit_exactly_once

            announce(commit_exactly_once(messages, self.options))
        else:
            announce(committed(messages))
        keep_receipts(messages, self.options)
        exempt_imports()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self.options.exactly_once is not None:
            from spark_kafka_sink.spark.exactly_once import abort_exactly_once

            announce(*abort_exactly_once(messages, self.options, self.plan))
            return
        announce(aborted(messages))
