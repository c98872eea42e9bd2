"""The writer of a micro-batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from spark_kafka_sink.spark.commit_message import aborted, announce, committed
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import RowLayout

if TYPE_CHECKING:
    import pyarrow as pa


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """Made anew for every micro-batch, and once more for ``commit`` or ``abort`` in another process of the driver."""

    def __init__(self, layout: RowLayout, options: SinkOptions) -> None:
        self.layout = layout
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from spark_kafka_sink.spark.write import write_rows

        return write_rows(iterator, self.layout, self.options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        announce(f"micro-batch {batchId}: {committed(messages)}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        announce(f"micro-batch {batchId}: {aborted(messages)}")
