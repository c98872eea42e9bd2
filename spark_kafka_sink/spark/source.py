"""``format("pykafka")``: what Spark asks for a writer.

Imported on the driver whenever any Python data source is looked up, so it stays light: the engine, Arrow and kio come
in with the first task that writes.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.spark.batch_writer import KafkaBatchWriter
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.stream_writer import KafkaStreamWriter


class KafkaDataSource(DataSource):
    """A sink only: to read a topic, use Spark's own ``format("kafka")``."""

    @classmethod
    def name(cls) -> str:
        return "pykafka"

    def schema(self) -> StructType:
        raise NotImplementedError('pykafka only writes; read the topic with Spark\'s own source, format("kafka")')

    def writer(self, schema: StructType, overwrite: bool) -> KafkaBatchWriter:
        """Runs on the driver. Raises ConfigError or SchemaError before any task starts."""
        if overwrite:
            raise ConfigError([
                "Save mode Overwrite not allowed for Kafka. "
                "Allowed save modes are Append and ErrorIfExists (default)."
            ])  # fmt: skip
        return KafkaBatchWriter(*self._plan(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:  # noqa: N802 (Spark's name)
        """Runs on the driver before every micro-batch.

        ``overwrite`` is Spark's complete mode: as in Spark's own sink the whole result is appended each time.
        """
        layout, options = self._plan(schema)
        asked = options.exactly_once
        if asked is not None and asked.version is not None:
            raise ConfigError(["txnAppId and txnVersion are for batch writes; a query's micro-batches are numbered."])
        if asked is not None and asked.name is None:
            raise ConfigError([
                "transactionalIdPrefix is required: neither a checkpointLocation option nor a query name tells this "
                "query from others. Give each query one of its own, and keep it."
            ])  # fmt: skip
        return KafkaStreamWriter(layout, options)

    def _plan(self, schema: StructType) -> tuple[RowLayout, SinkOptions]:
        options = SinkOptions.parse(self.options)
        return RowLayout.of(schema, options.topic, options.timestamp_column), options
