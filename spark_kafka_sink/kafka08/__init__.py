"""The producer of Kafka 0.8 and its console producer: ``SyncProducer``, ``open_producer``, old names of options."""
