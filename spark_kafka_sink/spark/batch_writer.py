"""The writer of a batch job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from spark_kafka_sink.spark.commit_message import aborted, announce, committed
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import RowLayout

if TYPE_CHECKING:
    import pyarrow as pa


class KafkaBatchWriter(DataSourceArrowWriter):
    """Pickled once: ``write`` runs in every task, ``commit`` or ``abort`` in a process of the driver."""

    def __init__(self, layout: RowLayout, options: SinkOptions) -> None:
        self.layout = layout
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from spark_kafka_sink.spark.write import write_rows

        return write_rows(iterator, self.layout, self.options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        announce(committed(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        announce(aborted(messages))
