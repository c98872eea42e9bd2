"""``spark-kafka-sink broker``: a real Kafka in the foreground, until Ctrl-C; or a TestBroker, which needs no Java."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from contextlib import ExitStack

from spark_kafka_sink.errors import ConfigError, KafkaError
from spark_kafka_sink.tools.cli.command_line import add_pairs, at_least_one

_LAST_PORT = 65535

SUMMARY = "run a real Kafka on this machine until Ctrl-C"

DESCRIPTION = """\
Runs a real Apache Kafka (KRaft) on 127.0.0.1 until Ctrl-C, with its data in a temporary directory. It needs
Java 17. The first start of a version downloads it from Maven Central (45 MB) into
~/.cache/spark-kafka-sink, or $SPARK_KAFKA_SINK_CACHE.

With --in-process, it runs a test broker in Python instead, which starts in about a second. It speaks the Kafka
protocol to any client, and keeps all data in memory. It is not Kafka: it has one thread, and no retention, TLS
or SASL."""

EXAMPLES = """\
examples:
  spark-kafka-sink broker                                 one node on port 9092
  spark-kafka-sink broker --port 19092 --nodes 3          three nodes on 19092, 19093 and 19094
  spark-kafka-sink broker --version 3.9.1 --set auto.create.topics.enable=false
  spark-kafka-sink broker --in-process --set num.partitions=4    without Java, in memory"""

USAGE = """\
{broker} is up: {servers}{warning}

  df.write.format("pykafka") \\
      .option("kafka.bootstrap.servers", "{servers}") \\
      .option("topic", "try-it").mode("append").save()

Ctrl-C stops it{removes}."""
IN_MEMORY = "\nIt is not Kafka: it keeps everything in memory, and all data is lost when it stops."


def add_arguments(broker: argparse.ArgumentParser) -> None:
    broker.add_argument(
        "--port", type=port_number, metavar="PORT", default=9092, help="port of the first node (default: %(default)s)"
    )
    broker.add_argument(
        "--nodes",
        type=at_least_one,
        metavar="N",
        default=1,
        help="number of nodes, on consecutive ports (default: %(default)s)",
    )
    broker.add_argument(
        "--version",
        help="a release of Kafka from 2.1 on (default: that of the tests; --in-process: the newest it imitates)",
    )
    add_pairs(broker, "--set", dest="properties", text="a property for server.properties; may be repeated")
    broker.add_argument(
        "--in-process", action="store_true",
        help="run a test broker in memory, without Java, which imitates the release of --version",
    )  # fmt: skip


def port_number(text: str) -> int:
    """Argument type: a port."""
    if not text.isdecimal() or not 1 <= (port := int(text)) <= _LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: ports go from 1 to {_LAST_PORT}")
    return port


def run(arguments: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stop as on Ctrl-C
    if (last := arguments.port + arguments.nodes - 1) > _LAST_PORT:
        raise ConfigError([f"--nodes {arguments.nodes} needs ports up to {last}: ports go from 1 to {_LAST_PORT}."])
    if arguments.in_process:
        return _run_in_process(arguments)
    from spark_kafka_sink.testing.local_kafka import DEFAULT_VERSION, LocalKafka, LocalKafkaError

    kafka = LocalKafka(
        arguments.nodes, arguments.version or DEFAULT_VERSION, dict(arguments.properties), arguments.port
    )
    with kafka:
        name, servers = f"Apache Kafka {kafka.version}", kafka.bootstrap_servers
        print(USAGE.format(broker=name, servers=servers, warning="", removes=" and removes its data"), flush=True)
        try:
            while all(kafka.alive(node) for node in kafka.node_ids):
                time.sleep(0.5)
        except KeyboardInterrupt:
            print("\nKafka has stopped.", file=sys.stderr)
            return 0
        ended = next(node for node in kafka.node_ids if not kafka.alive(node))
        raise LocalKafkaError(f"Node {ended} has stopped unexpectedly:\n{kafka.log_tail(ended)}")


def _run_in_process(arguments: argparse.Namespace) -> int:
    # These load kio, which a real Kafka does not need.
    from spark_kafka_sink.testing.broker import TestBroker
    from spark_kafka_sink.testing.broker.versions import LATEST

    release = LATEST if arguments.version is None else ".".join(arguments.version.split(".")[:2])
    broker = TestBroker(arguments.nodes, port=arguments.port, like=release, config=dict(arguments.properties))
    with ExitStack() as running:
        try:
            running.enter_context(broker)
        except OSError as error:
            raise KafkaError(f"The broker cannot listen on port {arguments.port}: {error}") from error
        try:
            name, servers = f"A test broker that responds like Kafka {release}", broker.bootstrap_servers
            print(USAGE.format(broker=name, servers=servers, warning=IN_MEMORY, removes=""), flush=True)
            while True:
                time.sleep(0.5)
        except KeyboardInterrupt:
            print("\nThe test broker has stopped.", file=sys.stderr)
            return 0
