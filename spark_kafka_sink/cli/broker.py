"""``spark-kafka-sink broker``: a real Kafka in the foreground, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from typing import TYPE_CHECKING

from spark_kafka_sink.testing.local_kafka import DEFAULT_VERSION, LocalKafka, LocalKafkaError

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

DESCRIPTION = """\
Starts a real Apache Kafka (KRaft) on this machine and runs it until Ctrl-C. Needs Java 17 and
nothing else: no containers, no ZooKeeper. The first start of a version fetches it from Maven
Central (43 MB) into ~/.cache/spark-kafka-sink, or $SPARK_KAFKA_SINK_CACHE.

It listens on 127.0.0.1 only. Its data live in a temporary folder that goes when it ends."""

EXAMPLES = """\
examples:
  spark-kafka-sink broker                                 one node on port 9092
  spark-kafka-sink broker --port 19092 --nodes 3          three nodes on 19092, 19093 and 19094
  spark-kafka-sink broker --version 3.9.1 --set auto.create.topics.enable=false"""

USAGE = """\
Apache Kafka {version} is up: {servers}

  df.write.format("pykafka") \\
      .option("kafka.bootstrap.servers", "{servers}") \\
      .option("topic", "try-it").mode("append").save()

Ctrl-C ends it and removes its data."""


def add_to(commands: Subparsers) -> None:
    broker = commands.add_parser(
        "broker",
        help="run a real Kafka on this machine until Ctrl-C",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    broker.add_argument("--port", type=int, default=9092, help="port of the first node (default: %(default)s)")
    broker.add_argument("--nodes", type=int, default=1, help="number of nodes, on ports upwards (default: %(default)s)")
    broker.add_argument("--version", default=DEFAULT_VERSION, help="3.9.x or 4.x.y (default: %(default)s)")
    broker.add_argument(
        "--set", type=_property, action="append", default=[], metavar="NAME=VALUE", dest="properties",
        help="a line for server.properties; may be given several times",
    )  # fmt: skip
    broker.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a service manager's Ctrl-C
    kafka = LocalKafka(arguments.nodes, arguments.version, dict(arguments.properties), arguments.port)
    with kafka:
        print(USAGE.format(version=kafka.version, servers=kafka.bootstrap_servers), flush=True)
        try:
            while all(kafka.alive(node) for node in kafka.node_ids):
                time.sleep(0.5)
        except KeyboardInterrupt:
            print("\nKafka has ended.", file=sys.stderr)
            return 0
        ended = next(node for node in kafka.node_ids if not kafka.alive(node))
        raise LocalKafkaError(f"Node {ended} ended by itself:\n{kafka.log_tail(ended)}")


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value
