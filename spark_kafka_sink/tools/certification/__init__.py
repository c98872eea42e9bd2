"""``spark-kafka-sink certify`` and ``spark_kafka_sink.certify``: batch and stream, both guarantees, on the user's own
Spark and brokers."""

from __future__ import annotations

from typing import Final

ROWS: Final = 100_000
TIMEOUT_S: Final = 300.0
