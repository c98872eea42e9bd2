"""The command ``spark-kafka-sink``. Each subcommand is a module with ``add_to(subparsers)``."""
