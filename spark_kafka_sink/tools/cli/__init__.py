"""The command ``spark-kafka-sink``: ``commands/`` has a file for each subcommand; ``job`` is for ``jobs/``."""
