"""``format("pykafka")``: ``KafkaDataSource`` makes the writers.

Every PySpark session of an environment with this package imports this file when it looks up a data source, so the file
imports nothing of the sink but errors. Its methods run in processes that write, and import the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from spark_kafka_sink.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spark_kafka_sink.spark.sink_write import KafkaBatchWriter, KafkaStreamWriter

_NO_OPTIONS = (
    "No option reached the sink, because Spark does not pass the OPTIONS of a table to INSERT INTO. Write INSERT INTO "
    "name WITH ('kafka.bootstrap.servers' = '…', 'topic' = '…') SELECT …, use df.write or df.writeTo with options, or "
    "insert into a temporary view: CREATE TEMPORARY VIEW name (value STRING) USING pykafka OPTIONS (…)."
)


class KafkaDataSource(DataSource):
    """The data source, which only writes. To read a topic, use Spark's own ``format("kafka")``."""

    @classmethod
    def name(cls) -> str:
        return "pykafka"

    def schema(self) -> StructType:
        raise NotImplementedError('pykafka only writes; read the topic with Spark\'s own source, format("kafka")')

    def writer(self, schema: StructType, overwrite: bool) -> KafkaBatchWriter:
        """The writer of a batch job. Runs on the driver before any task. Raises ``ConfigError`` or ``SchemaError``."""
        from spark_kafka_sink.spark.schema import check_shippable
        from spark_kafka_sink.spark.sink_write import KafkaBatchWriter, config_warnings_logged

        check_shippable(schema)
        if overwrite:
            raise ConfigError([
                "Save mode Overwrite not allowed for Kafka. "
                'The allowed save mode is Append: .mode("append").'
            ])  # fmt: skip
        with config_warnings_logged():
            return KafkaBatchWriter.of(schema, self.options, () if self.options else (_NO_OPTIONS,))

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:  # noqa: N802 (Spark's name)
        """The writer of a micro-batch. Runs on the driver before every micro-batch, and before its commit or abort.

        ``overwrite`` is Spark's complete mode: as in Spark's Kafka sink, the whole result is appended each time.
        Raises ``ConfigError`` or ``SchemaError``.
        """
        from spark_kafka_sink.spark.schema import check_shippable
        from spark_kafka_sink.spark.sink_write import KafkaStreamWriter, config_warnings_logged

        check_shippable(schema)
        with config_warnings_logged():
            return KafkaStreamWriter.of(schema, self.options)
