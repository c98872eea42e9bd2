"""``spark-kafka-sink check --from-workers`` on the cluster of ``spark-submit``. See ``--help``."""

from __future__ import annotations

import sys

from spark_kafka_sink.tools.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["check", "--from-workers", *sys.argv[1:]]))
