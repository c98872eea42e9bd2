"""``spark-kafka-sink console-producer``: lines of standard input as records."""

from __future__ import annotations

import argparse
import sys

from spark_kafka_sink.common.compression import CODECS
from spark_kafka_sink.common.config.rules import OLD_NAMES, SERIALIZERS
from spark_kafka_sink.kafka08.console import LineReader, Lines, handle_signals, send_all, send_each
from spark_kafka_sink.kafka08.options import overridden
from spark_kafka_sink.kafka08.sync_producer import open_producer
from spark_kafka_sink.producer.producer import KafkaProducer
from spark_kafka_sink.tools.cli.command_line import add_client_options, add_pairs, client_options

SUMMARY = "send the lines of standard input as records"

DESCRIPTION = """\
Sends each line of standard input as a record, like Kafka's kafka-console-producer. The command reads to
the end of the input, or until Ctrl-C, SIGTERM or SIGHUP, and delivers all lines that it has read. A line
that is not a valid record ends the reading. The exit code is 1 after such a line, or if a record could not
be delivered, 143 after SIGTERM and 129 after SIGHUP."""

EXAMPLES = """\
properties (--property NAME=VALUE, may be repeated):
  parse.key=true                 a line is KEY, key.separator, VALUE         (default: only VALUE)
  key.separator=TEXT             default: a tab
  parse.headers=true             a line begins with NAME:VALUE,NAME:VALUE, headers.delimiter
  headers.delimiter=TEXT         after the headers (default: a tab)
  headers.separator=TEXT         between two headers (default: ,)
  headers.key.separator=TEXT     between name and value of a header (default: :)
  null.marker=TEXT               a key, value or header value that equals TEXT is null

examples:
  seq 1000 | spark-kafka-sink console-producer --bootstrap-server localhost:9092 --topic numbers
  spark-kafka-sink console-producer --bootstrap-server localhost:9092 --topic people \\
      --property parse.key=true --property key.separator=: --property null.marker=- < people.txt
  spark-kafka-sink console-producer --bootstrap-server localhost:9092 --topic t --sync \\
      --request-required-acks 1 --compression-codec zstd --producer-property client.id=me"""

_CODECS = tuple(CODECS)


def add_arguments(console: argparse.ArgumentParser) -> None:
    console.add_argument(
        "--bootstrap-server", "--broker-list", required=True, metavar="HOST:PORT",
        help="one or more brokers, separated by commas",
    )  # fmt: skip
    console.add_argument("--topic", required=True, help="topic to write to")
    console.add_argument(
        "--request-required-acks", metavar="ACKS", choices=("all", "-1", "0", "1"),
        help="acknowledgements to wait for: of all in-sync replicas (all, the default), of the leader (1), or none (0)",
    )  # fmt: skip
    console.add_argument(
        "--compression-codec", nargs="?", const="gzip", choices=_CODECS, metavar="CODEC",
        help=f"{', '.join(_CODECS)} (default: none; without a value: gzip)",
    )  # fmt: skip
    add_client_options(console, "--producer.config", "--producer-property")
    console.add_argument(
        "--sync", action="store_true",
        help="send one line at a time and wait for its acknowledgement (slow)",
    )  # fmt: skip
    add_pairs(console, "--property", "--reader-property", dest="properties", text="how to read lines (see below)")


def run(arguments: argparse.Namespace) -> int:
    reader = LineReader.parse(arguments.topic, arguments.properties)
    lines = Lines(sys.stdin.buffer, prompt=sys.stdin.isatty())
    config = _producer_options(arguments)
    with handle_signals(lines.interrupt):
        try:
            with open_producer(config, "sync") if arguments.sync else open_producer(config) as producer:
                if isinstance(producer, KafkaProducer):
                    send_all(lines, reader, producer)
                else:
                    send_each(lines, reader, producer)
        except KeyboardInterrupt:
            if not lines.exit_code:
                raise
    return lines.exit_code


def _producer_options(arguments: argparse.Namespace) -> dict[str, object]:
    """The options of file, properties and flags; later ones override. Raises ``ConfigError`` for an unreadable file.

    Java serializers are dropped, because the command sends bytes.
    """
    flags = {"bootstrap.servers": arguments.bootstrap_server}
    if arguments.request_required_acks is not None:
        flags["acks"] = arguments.request_required_acks
    if arguments.compression_codec is not None:
        flags["compression.type"] = arguments.compression_codec
    sent_as_bytes = {
        name: value
        for name, value in client_options(arguments).items()
        if ":" in str(value) or OLD_NAMES.get(name, name) not in SERIALIZERS
    }
    return overridden(sent_as_bytes, flags)
