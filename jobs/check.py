"""``spark-kafka-sink selftest --no-write`` on the cluster of ``spark-submit``. See ``--help``."""

from __future__ import annotations

import sys

from spark_kafka_sink.tools.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["selftest", "--no-write", *sys.argv[1:]]))
