"""``python -m spark_kafka_sink``: the command ``spark-kafka-sink``."""

import sys

from spark_kafka_sink.tools.cli.main import main

sys.exit(main())
