"""The command ``spark-kafka-sink``: a file for each subcommand, which ``main`` lists, and ``job`` for ``jobs/``."""
