"""The commands of ``spark-kafka-sink``, a file each."""
