"""The commands of ``spark-kafka-sink``, one file for each."""
