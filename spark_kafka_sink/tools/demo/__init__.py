"""``spark-kafka-sink demo``: the sink shown on this machine."""
