"""``format("pykafka")``: the data source that Spark asks for writers, and these writers, which Spark pickles.

The driver imports it to look up any Python data source, so it imports neither the producer nor Arrow nor kio.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter
from pyspark.sql.types import StructType

from spark_kafka_sink.errors import ConfigError, shown
from spark_kafka_sink.spark.checkpoint import lacks_micro_batch
from spark_kafka_sink.spark.commit_message import WriterCommitMessage
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import EncodedFields, RowLayout, check_shippable
from spark_kafka_sink.spark.sink_write import SinkWrite

_NO_OPTIONS = (
    "No option reached the sink, because Spark does not pass the OPTIONS of a table to INSERT INTO. Write INSERT INTO "
    "name WITH ('kafka.bootstrap.servers' = '…', 'topic' = '…') SELECT …, use df.write or df.writeTo with options, or "
    "insert into a temporary view: CREATE TEMPORARY VIEW name (value STRING) USING pykafka OPTIONS (…)."
)


class KafkaDataSource(DataSource):
    """A sink only: to read a topic, use Spark's own ``format("kafka")``."""

    @classmethod
    def name(cls) -> str:
        return "pykafka"

    def schema(self) -> StructType:
        raise NotImplementedError('pykafka only writes; read the topic with Spark\'s own source, format("kafka")')

    def writer(self, schema: StructType, overwrite: bool) -> KafkaBatchWriter:
        """Runs on the driver before any task. Raises ``ConfigError`` or ``SchemaError``."""
        check_shippable(schema)
        if overwrite:
            raise ConfigError([
                "Save mode Overwrite not allowed for Kafka. "
                'The allowed save mode is Append: .mode("append").'
            ])  # fmt: skip
        return KafkaBatchWriter.of(schema, self.options, () if self.options else (_NO_OPTIONS,))

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:  # noqa: N802 (Spark's name)
        """Runs on the driver before every micro-batch, and before its commit or abort.

        ``overwrite`` is Spark's complete mode: as in Spark's Kafka sink, the whole result is appended each time.
        Raises ``ConfigError`` or ``SchemaError``.
        """
        check_shippable(schema)
        location = {name.lower(): value for name, value in self.options.items()}.get("checkpointlocation")
        if location is not None and lacks_micro_batch(location):
            raise ConfigError([
                "trigger(continuous=...) is not supported: Spark would drop every row, as it does for each Python data "
                f"source. Use trigger(processingTime=...). The sink sees it from the checkpoint {location}, which has "
                "no micro-batch to write. If Spark has the query's checkpoint in another file system "
                "(spark.hadoop.fs.defaultFS), write checkpointLocation with its scheme, such as hdfs://."
            ])  # fmt: skip
        return KafkaStreamWriter.of(schema, self.options)


try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0 gives Arrow batches to every DataSourceArrowWriter, a stream's too
    DataSourceStreamArrowWriter = DataSourceArrowWriter  # type: ignore[assignment,misc]


class _Pickled(SinkWrite):
    """Begins the write when Spark pickles its writer for the tasks. (It pickles twice.)"""

    def __getstate__(self) -> dict[str, Any]:
        self.begin()
        return self.__dict__


class KafkaBatchWriter(_Pickled, DataSourceArrowWriter):
    """Pickled once per job; ``commit`` or ``abort`` runs in another process of the driver."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.end(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.give_up(messages)


class KafkaStreamWriter(_Pickled, DataSourceStreamArrowWriter):
    """Spark makes one per micro-batch, and another for its ``commit`` or ``abort``.

    The other one is never pickled, so it plans nothing: planning would fence the tasks' transactional ids.
    """

    _is_batch = False

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
