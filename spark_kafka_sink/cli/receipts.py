"""``spark-kafka-sink receipts``: what was written, from a receiptsPath or a receiptsTopic."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from spark_kafka_sink.cli.arguments import add_client_options, add_command, client_config
from spark_kafka_sink.errors import ConfigError, KafkaError
from spark_kafka_sink.exactly_once.receipts import WriteReceipt

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

    from spark_kafka_sink.cli.arguments import Subparsers

_COLUMNS = ("query", "batch", "task", "topic", "partition", "first_offset", "last_offset", "count", "bytes")
_DEADLINE_S = 30.0


def add_to(commands: Subparsers) -> None:
    command = add_command(commands, run, "receipts", "show what was written: query, batch, offsets, counts")
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--path", type=Path, help="a receiptsPath on this machine")
    source.add_argument("--topic", help="a receiptsTopic (needs confluent-kafka)")
    command.add_argument("--bootstrap-server", metavar="HOST:PORT", help="brokers, for --topic")
    add_client_options(command)
    command.add_argument("--query", help="only this query id or txnAppId")
    command.add_argument("--json", action="store_true", help="JSON lines instead of a table")


def run(arguments: argparse.Namespace) -> int:
    lines = _from_path(arguments.path) if arguments.path else _from_topic(arguments)
    receipts = [each for each in map(_parsed, lines) if arguments.query in (None, each.query)]
    receipts.sort(key=lambda each: (each.query, each.batch, each.topic, each.partition, each.first_offset))
    print("\n".join(each.line() for each in receipts) if arguments.json else _table(receipts))
    return 0


def _parsed(line: str) -> WriteReceipt:
    try:
        return WriteReceipt.parse(line)
    except ValueError as error:
        raise KafkaError(f"not a receipt: {error}") from error


def _table(receipts: list[WriteReceipt]) -> str:
    rows = [_COLUMNS, *(tuple(str(getattr(each, name)) for name in _COLUMNS) for each in receipts)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _from_path(path: Path) -> Iterator[str]:
    if not path.is_dir():
        raise ConfigError([f"--path {path} is not a directory."])
    for file in sorted(path.glob("*.jsonl")):
        yield from file.read_text().splitlines()


def _from_topic(arguments: argparse.Namespace) -> Iterator[str]:
    """The committed values up to the end of every partition, or to its first open transaction, named on stderr."""
    topic: str = arguments.topic
    if arguments.bootstrap_server is None:
        raise ConfigError(["--topic needs --bootstrap-server."])
    try:
        from confluent_kafka import Consumer, KafkaException
        from confluent_kafka import KafkaError as ClientError
    except ImportError:
        raise KafkaError("--topic needs confluent-kafka: pip install 'spark-kafka-sink[demo]'") from None
    reading = {"group.id": "receipts", "enable.partition.eof": True, "enable.auto.commit": False}
    consumer = Consumer({**_client(arguments), **reading, "isolation.level": "read_committed"})
    try:
        left = _assign(consumer, topic)
        while left:
            message = consumer.poll(_DEADLINE_S)
            if message is None:
                raise KafkaError(f"{topic} cannot be read: no response within {_DEADLINE_S:.0f} s")
            error = message.error()
            if error is None:
                yield (message.value() or b"").decode(errors="replace")
            elif error.code() == ClientError._PARTITION_EOF:
                left.discard(message.partition())
                _warn_of_open_transaction(consumer, message)
            else:
                raise KafkaError(f"{topic} cannot be read: {error.str()}")
    except KafkaException as error:
        raise KafkaError(f"{topic} cannot be read: {error}") from error
    finally:
        consumer.close()


def _client(arguments: argparse.Namespace) -> dict[str, str]:
    from spark_kafka_sink.security.librdkafka import librdkafka_options

    return librdkafka_options(client_config(arguments))


def _assign(consumer: Consumer, topic: str) -> set[int | None]:
    """Assigns all partitions from their beginning; returns their numbers."""
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition

    found = consumer.list_topics(topic, timeout=_DEADLINE_S).topics[topic]
    if found.error is not None:
        raise KafkaError(f"--topic {topic}: {found.error.str()}")
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in found.partitions])
    return set(found.partitions)


def _warn_of_open_transaction(consumer: Consumer, end: Message) -> None:
    from confluent_kafka import TopicPartition

    partition = TopicPartition(end.topic() or "", end.partition() or 0)
    _, high_watermark = consumer.get_watermark_offsets(partition, cached=True)
    offset = end.offset()
    if offset is not None and offset < high_watermark:
        name = f"{partition.topic}-{partition.partition}"
        print(f"{name}: an open transaction hides the records from offset {offset} on", file=sys.stderr)
