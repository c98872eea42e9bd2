"""``spark-kafka-sink``: parses the command line and runs one subcommand."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from pkgutil import iter_modules

import spark_kafka_sink
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.network.diagnosis import diagnosis
from spark_kafka_sink.tools.cli import commands
from spark_kafka_sink.tools.cli.command_line import VERBOSE, CommandParser, plain_config_warnings

COMMANDS = [import_module(f"{commands.__name__}.{found.name}") for found in iter_modules(commands.__path__)]
"""The commands, each a file with SUMMARY, DESCRIPTION and EXAMPLES (printed as they are), ``add_arguments`` and
``run``."""

INTERRUPTED = 130
PIPE_CLOSED = 141
DETAILED = "%(asctime)s %(levelname)s %(name)s: %(message)s"
CHECK = "spark-kafka-sink check, with the same --bootstrap-server and --command-config"

_BYTES = "surrogateescape"

EXAMPLES = """\
examples:
  spark-kafka-sink broker --help    what a command does, with examples"""


def parser() -> CommandParser:
    top = CommandParser(
        prog="spark-kafka-sink",
        description='Tools for the PySpark Kafka sink format("pykafka").',
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {spark_kafka_sink.__version__}")
    top.set_defaults(error_code=1)
    top.add_argument(*VERBOSE, action="store_true", help="log what the client does; also accepted after COMMAND")
    parsers = top.add_subparsers(metavar="COMMAND", required=True)
    for each in COMMANDS:
        command = parsers.add_parser(
            each.__name__.rpartition(".")[2].replace("_", "-"),
            help=each.SUMMARY,
            description=each.DESCRIPTION,
            epilog=each.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_argument(*VERBOSE, action="store_true", default=argparse.SUPPRESS, help="log what the client does")
        command.set_defaults(run=each.run)
        each.add_arguments(command)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command. Returns the exit code: 0, 1 after one ``error:`` line (selftest: 2), 2 for a wrong command line,
    130 after Ctrl-C, and 141 if the reader of stdout has gone, as in ``spark-kafka-sink check | head``.
    """
    words = sys.argv[1:] if argv is None else argv
    # With an ASCII locale, Python passes the bytes of other letters on as surrogates, and cannot print such letters.
    arguments = parser().parse_args([word.encode(errors=_BYTES).decode(errors=_BYTES) for word in words])
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    failed: int = arguments.error_code
    _log_to_stderr(arguments.verbose)
    try:
        with plain_config_warnings():
            code: int = arguments.run(arguments)
            sys.stdout.flush()
    except KafkaError as error:
        print(f"error: {error}", file=sys.stderr)
        if note := diagnosis(error, CHECK):
            print(note, file=sys.stderr)
        return failed
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout at its end
        return PIPE_CLOSED
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return failed
    return code


def _log_to_stderr(verbose: bool) -> None:
    """Sets up logging. ``verbose``: only this package's loggers are at DEBUG, because at that level py4j and botocore
    log secrets."""
    logging.basicConfig(level=logging.INFO, format=DETAILED if verbose else "%(message)s", stream=sys.stderr)
    if verbose:
        logging.getLogger("spark_kafka_sink").setLevel(logging.DEBUG)


if __name__ == "__main__":
    sys.exit(main())
