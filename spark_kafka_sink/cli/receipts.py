"""``spark-kafka-sink receipts``: what was written, from a receiptsPath or a receiptsTopic."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from spark_kafka_sink.errors import ConfigError, KafkaError
from spark_kafka_sink.exactly_once.receipts import WriteReceipt

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_COLUMNS = ("query", "batch", "task", "topic", "partition", "first_offset", "last_offset", "count", "bytes")


def add_to(commands: Subparsers) -> None:
    command = commands.add_parser("receipts", help="show what was written: query, batch, offsets, counts")
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--path", type=Path, help="a receiptsPath on this machine")
    source.add_argument("--topic", help="a receiptsTopic (needs confluent-kafka)")
    command.add_argument("--bootstrap-server", metavar="HOST:PORT", help="for --topic")
    command.add_argument("--query", help="only this query's id or txnAppId")
    command.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    lines = _from_path(arguments.path) if arguments.path else _from_topic(arguments.bootstrap_server, arguments.topic)
    receipts = [each for each in map(_parsed, lines) if arguments.query in (None, each.query)]
    receipts.sort(key=lambda each: (each.query, each.batch, each.topic, each.partition, each.first_offset))
    print("\n".join(each.line() for each in receipts) if arguments.json else _table(receipts))
    return 0


def _parsed(line: str) -> WriteReceipt:
    try:
        return WriteReceipt.parse(line)
    except ValueError as error:
        raise KafkaError(f"not a receipt: {error}") from error


def _from_path(path: Path) -> Iterator[str]:
    if not path.is_dir():
        raise ConfigError([f"--path {path} is no directory."])
    for file in sorted(path.glob("*.jsonl")):
        yield from file.read_text().splitlines()


def _from_topic(servers: str | None, topic: str) -> Iterator[str]:
    if servers is None:
        raise ConfigError(["--topic needs --bootstrap-server."])
    try:
        from spark_kafka_sink.cli.receipts_topic import committed_values
    except ImportError:
        raise KafkaError("--topic is read with confluent-kafka: pip install 'spark-kafka-sink[demo]'") from None
    return committed_values(servers, topic)


def _table(receipts: list[WriteReceipt]) -> str:
    rows = [_COLUMNS, *(tuple(str(getattr(each, name)) for name in _COLUMNS) for each in receipts)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
