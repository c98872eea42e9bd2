"""A Kafka sink for PySpark, ``format("pykafka")``, on a Kafka producer engine of its own."""

__version__ = "0.1.0"
