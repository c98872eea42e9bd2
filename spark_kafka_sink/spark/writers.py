"""The writers that Spark pickles: of a batch job, and of a micro-batch. Imports stay light, as in ``sink_write.py``."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter

from spark_kafka_sink.errors import ConfigError, shown
from spark_kafka_sink.spark.commit_message import WriterCommitMessage
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import EncodedFields, RowLayout
from spark_kafka_sink.spark.sink_write import BatchWrite, SinkWrite

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0 gives Arrow batches to every DataSourceArrowWriter, a stream's too
    DataSourceStreamArrowWriter = DataSourceArrowWriter  # type: ignore[assignment,misc]


class _Pickled(SinkWrite):
    """Begins the write when Spark pickles its writer for the tasks. (It pickles twice.)"""

    def __getstate__(self) -> dict[str, Any]:
        self.begin()
        return self.__dict__


class KafkaBatchWriter(_Pickled, BatchWrite, DataSourceArrowWriter):
    """Pickled once per job; ``commit`` or ``abort`` runs in another process of the driver."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.end(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.give_up(messages)


class KafkaStreamWriter(_Pickled, DataSourceStreamArrowWriter):
    """Spark makes one per micro-batch, and another for its ``commit`` or ``abort``.

    The other one is never pickled, so it plans nothing: planning would fence the tasks' transactional ids.
    """

    def __init__(self, layout: RowLayout, options: SinkOptions, fields: EncodedFields | None = None) -> None:
        """Raises ``ConfigError`` for options that only a batch write has."""
        super().__init__(layout, options, fields)
        asked = options.exactly_once
        if asked is not None and asked.version is not None:
            raise ConfigError(["txnAppId and txnVersion are for batch writes; a query's micro-batches are numbered."])
        if asked is not None and asked.name is None:
            raise ConfigError([
                "transactionalIdPrefix is required: the query has neither a checkpointLocation option nor a name. "
                "Set one that is unique per query and stable across restarts."
            ])  # fmt: skip

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        self.end(messages, self._micro_batch(batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        self.give_up(messages, self._micro_batch(batchId))

    def _micro_batch(self, number: int) -> str:
        name = self.options.query_name
        return f"micro-batch {number}: " if name is None else f"micro-batch {number} of query {shown(name)}: "
