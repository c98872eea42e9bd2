"""``spark-kafka-sink certify`` and ``spark_kafka_sink.certify``: batch and stream, both guarantees, on the user's own
Spark and brokers."""
