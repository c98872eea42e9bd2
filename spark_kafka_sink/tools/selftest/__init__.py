"""``spark-kafka-sink selftest`` and ``spark_kafka_sink.selftest``: the sink on the user's own Spark and brokers."""
