"""``spark-kafka-sink exporter``: the receipts of a topic as metrics for Prometheus."""
