"""``spark-kafka-sink broker --in-process``: a TestBroker in the foreground, until Ctrl-C, for machines without Java."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack

from spark_kafka_sink.errors import KafkaError

USAGE = """\
A test broker that responds like Kafka {release} is up: {servers}
It is not Kafka: it keeps everything in memory, and all data is lost when it stops.

  df.write.format("pykafka") \\
      .option("kafka.bootstrap.servers", "{servers}") \\
      .option("topic", "try-it").mode("append").save()

Ctrl-C stops it."""


def run(arguments: argparse.Namespace) -> int:
    from spark_kafka_sink.testing.broker import TestBroker  # loads kio, which a real Kafka does not need

    release = ".".join(arguments.version.split(".")[:2])
    broker = TestBroker(arguments.nodes, port=arguments.port, like=release, config=dict(arguments.properties))
    with ExitStack() as running:
        try:
            running.enter_context(broker)
        except OSError as error:
            raise KafkaError(f"The broker cannot listen on port {arguments.port}: {error}") from error
        try:
            print(USAGE.format(release=release, servers=broker.bootstrap_servers), flush=True)
            while True:
                time.sleep(0.5)
        except KeyboardInterrupt:
            print("\nThe test broker has stopped.", file=sys.stderr)
            return 0
