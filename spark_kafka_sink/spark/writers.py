"""The writers that Spark pickles: of a batch job, and of a micro-batch.

Imports stay light: the driver's processes need no engine, so the first task that writes imports it.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from spark_kafka_sink.spark.commit_message import WriterCommitMessage
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import EncodedFields, RowLayout
from spark_kafka_sink.spark.sink_write import SinkWrite


class _Writer(SinkWrite):
    """Pickled on the driver; ``write`` runs in every task, ``commit`` or ``abort`` in another process of the driver."""

    def __getstate__(self) -> dict[str, Any]:
        """Begins the write: Spark pickles only the writers that run in tasks. (It pickles twice.)"""
        self.begin()
        return self.__dict__


class KafkaBatchWriter(_Writer, DataSourceArrowWriter):
    """Pickled once per job."""

    _is_batch = True

    def __init__(self, layout: RowLayout, options: SinkOptions, fields: EncodedFields | None = None) -> None:
        super().__init__(layout, options, fields)
        if options.exactly_once is not None:
            from spark_kafka_sink.spark.exactly_once import named

            self.options = named(options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


class KafkaStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Spark makes one per micro-batch, and another for its ``commit`` or ``abort``.

    The other one is never pickled, so it plans nothing: planning would fence the tasks' transactional ids.
    """

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        self._commit(messages, f"micro-batch {batchId}: ")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        self._abort(messages, f"micro-batch {batchId}: ")
