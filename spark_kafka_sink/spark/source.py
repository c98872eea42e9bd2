"""``format("pykafka")``: the data source that Spark asks for writers.

The driver imports it to look up any Python data source, so it imports neither the engine nor Arrow nor kio.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import EncodedFields, RowLayout, encoded_fields
from spark_kafka_sink.spark.writers import KafkaBatchWriter, KafkaStreamWriter

_REPEATABLE: Final = (
    "An exactly-once batch write needs txnAppId and txnVersion, or neverRepeated=true. The sink cannot see whether the "
    "write is part of a foreachBatch or of a job that a scheduler repeats, and a repeated write without txnAppId "
    "writes its rows again. Set txnAppId to a name that this write keeps (one for each topic), and txnVersion to a "
    "number that grows from run to run and is the same when a run is repeated: in foreachBatch the batch id, in a "
    "nightly job the date, such as 20250131. Set neverRepeated=true if nothing runs this write a second time."
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
        if overwrite:
            raise ConfigError([
                "Save mode Overwrite not allowed for Kafka. "
                'The allowed save mode is Append: .mode("append").'
            ])  # fmt: skip
        layout, options, fields = self._plan(schema)
        asked = options.exactly_once
        if asked is not None and asked.version is None and not asked.never_replayed:
            raise ConfigError([_REPEATABLE])
        return KafkaBatchWriter(layout, options, fields)

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:  # noqa: N802 (Spark's name)
        """Runs on the driver before every micro-batch.

        ``overwrite`` is Spark's complete mode: as in Spark's Kafka sink, the whole result is appended each time.
        """
        layout, options, fields = self._plan(schema)
        asked = options.exactly_once
        if asked is not None and asked.version is not None:
            raise ConfigError(["txnAppId and txnVersion are for batch writes; a query's micro-batches are numbered."])
        if asked is not None and asked.never_replayed:
            raise ConfigError(["neverRepeated is for batch writes; a query repeats a micro-batch after a failure."])
        if options.dead_letters is not None and options.dead_letters.name is not None:
            raise ConfigError(["deadLetterName is for batch writes; a query's files are named by query and batch."])
        if asked is not None and asked.name is None:
            raise ConfigError([
                "transactionalIdPrefix is required: the query has neither a checkpointLocation option nor a name. "
                "Set one that is unique per query and stable across restarts."
            ])  # fmt: skip
        return KafkaStreamWriter(layout, options, fields)

    def _plan(self, schema: StructType) -> tuple[RowLayout, SinkOptions, EncodedFields | None]:
        options = SinkOptions.parse(self.options)
        layout = RowLayout.of(schema, options.topic, options.timestamp_column, options.formats)
        return layout, options, None if options.formats is None else encoded_fields(schema, layout, options.formats)
