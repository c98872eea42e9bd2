"""Makes ``format("pykafka")`` known: PySpark imports every package named ``pyspark_*`` and takes its DefaultSource."""

from spark_kafka_sink.spark.source import KafkaDataSource as DefaultSource

__all__ = ["DefaultSource"]
