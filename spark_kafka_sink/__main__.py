"""``python -m spark_kafka_sink``: the command ``spark-kafka-sink``."""

import sys

from spark_kafka_sink.cli.main import main

sys.exit(main())
