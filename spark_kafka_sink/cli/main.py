"""``spark-kafka-sink``: parses the command line and runs one subcommand."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

import spark_kafka_sink
from spark_kafka_sink.cli import broker, check, console_producer, demo, exporter, perf, receipts, transactions
from spark_kafka_sink.cli.arguments import VERBOSE
from spark_kafka_sink.cli.config_warnings import plain_config_warnings
from spark_kafka_sink.config.option import did_you_mean
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.network.diagnosis import diagnosis

COMMANDS = (demo, broker, check, console_producer, perf, transactions, receipts, exporter)

INTERRUPTED = 130
CHECK = "spark-kafka-sink check, with the same --bootstrap-server and --command-config"


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="spark-kafka-sink",
        description='Commands around the PySpark Kafka sink format("pykafka").',
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {spark_kafka_sink.__version__}")
    top.add_argument(*VERBOSE, action="store_true", help="log what the client does, also as COMMAND --verbose")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_to(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0, 1 after one ``error:`` line, 2 for a wrong command line, 130 after Ctrl-C."""
    words = sys.argv[1:] if argv is None else argv
    top = parser()
    _refuse_unknown_command(top, words)
    arguments = top.parse_args(words)
    logging.basicConfig(
        level=logging.DEBUG if arguments.verbose else logging.INFO, format="%(message)s", stream=sys.stderr
    )
    try:
        with plain_config_warnings():
            code: int = arguments.run(arguments)
    except KafkaError as error:
        print(f"error: {error}", file=sys.stderr)
        if note := diagnosis(error, CHECK):
            print(note, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _refuse_unknown_command(top: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Ends with a suggestion (argparse has one from Python 3.14 on)."""
    names = [command.__name__.rpartition(".")[2].replace("_", "-") for command in COMMANDS]
    given = next((word for word in words if word not in VERBOSE), "-")
    if not given.startswith("-") and given not in names:
        top.error(f"invalid choice: {given!r}{did_you_mean(given, names) or '; choose from ' + ', '.join(names)}")


if __name__ == "__main__":
    sys.exit(main())
