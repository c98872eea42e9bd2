"""``spark-kafka-sink receipts``: what queries wrote, from a receiptsPath or a receiptsTopic."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.common.clock import Clock, SystemClock
from spark_kafka_sink.errors import ConfigError, KafkaError
from spark_kafka_sink.exactly_once.receipts import WriteReceipt
from spark_kafka_sink.spark.receipts.receipt_reader import FolderReceipts, TopicReceipts
from spark_kafka_sink.tools.cli.command_line import (
    Subparsers,
    above_zero,
    add_client_options,
    add_command,
    client_config,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_COLUMNS: Final = (
    "query", "query_name", "batch", "task", "topic", "partition", "first_offset", "last_offset", "count", "bytes",
)  # fmt: skip
_HOUR_MS: Final = 3_600_000
_MOST_NAMED: Final = 5
_CLEAR: Final = "\033[H\033[2J"

DESCRIPTION = """\
Draws charts of what each query wrote in the last 24 hours (--hours), from its first write to its last: rows
and bytes per second, latency, rows sent again, what its tasks spent their time on, and how its rows are spread
over partitions. Latency is the time from a Produce request to its response.

The command reads receipts, which the sink writes if the query or batch job has the option receiptsPath or
receiptsTopic."""

EXAMPLES = """\
examples:
  the last 24 hours, from a receiptsPath or a receiptsTopic:
    spark-kafka-sink receipts --path s3://bucket/receipts
    spark-kafka-sink receipts --topic receipts --bootstrap-server broker:9092 --command-config client.properties
  the last two hours of one query, redrawn every 5 s:
    spark-kafka-sink receipts --path /data/receipts --query orders --hours 2 --follow
  each task and partition, as a table or as JSON lines; every new receipt as it is written:
    spark-kafka-sink receipts --path /data/receipts --list
    spark-kafka-sink receipts --path /data/receipts --json --follow | jq .figures"""


def add_to(commands: Subparsers) -> None:
    command = add_command(commands, run, "receipts", "show what queries wrote, and how fast", DESCRIPTION, EXAMPLES)
    add_source(command)
    command.add_argument("--query", help="show only this query (its name or id), txnAppId or batch job")
    command.add_argument(
        "--hours",
        type=above_zero,
        help="show only writes of the last HOURS hours (default: 24 for charts, else all)",
    )
    shown = command.add_mutually_exclusive_group()
    shown.add_argument("--list", action="store_true", help="print a table with a row per task and partition")
    shown.add_argument("--json", action="store_true", help="print the receipts as JSON lines")
    command.add_argument("--follow", action="store_true", help="keep running, and show receipts as they are written")
    command.add_argument(
        "--interval",
        type=above_zero,
        default=5.0,
        metavar="SECONDS",
        help="time between updates of --follow (default: 5)",
    )


def add_source(command: argparse.ArgumentParser) -> None:
    """Where receipts are read."""
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--path", help="a receiptsPath: a folder, or a URI such as s3://bucket/receipts")
    source.add_argument("--topic", help="a receiptsTopic")
    command.add_argument("--bootstrap-server", metavar="HOST:PORT", help="brokers, for --topic")
    add_client_options(command)


def open_source(arguments: argparse.Namespace, clock: Clock, since: int | None) -> TopicReceipts | FolderReceipts:
    """``since``: epoch ms. Raises ``ConfigError``."""
    if arguments.path is not None:
        return FolderReceipts(arguments.path, clock, since)
    if arguments.bootstrap_server is None:
        raise ConfigError(["--topic needs --bootstrap-server."])
    return TopicReceipts(client_config(arguments), arguments.topic, clock, since)


def run(arguments: argparse.Namespace) -> int:
    clock = SystemClock()
    drawn = not (arguments.list or arguments.json)
    hours = arguments.hours or (24.0 if drawn else None)
    since = None if hours is None else clock.epoch_ms() - round(hours * _HOUR_MS)
    with closing(open_source(arguments, clock, since)) as source:
        read = [*source.read()]
        _warn(source, bool(read), arguments.follow)
        held = _chosen(read, arguments.query)
        if read and not (held or arguments.follow or arguments.json):
            raise ConfigError([_no_query(arguments.query, read)])
        if drawn:
            _draw(held, clock, hours or 0.0, arguments.follow)
        else:
            _print(held, arguments.json, head=True)
        while arguments.follow:
            sys.stdout.flush()
            time.sleep(arguments.interval)
            new = _chosen(source.read(), arguments.query)
            if drawn:
                begin = clock.epoch_ms() - round((hours or 0.0) * _HOUR_MS)
                held = [each for each in (*held, *new) if each.ended_at >= begin]
                _draw(held, clock, hours or 0.0, True)
            elif new:
                _print(new, arguments.json, head=False)
    return 0


def _chosen(receipts: Iterable[WriteReceipt], query: str | None) -> list[WriteReceipt]:
    """The receipts of the query, by its id or name, or of all; sorted."""
    found = [each for each in receipts if query in (None, each.query, each.query_name)]
    return sorted(found, key=lambda each: (each.query, each.batch, each.topic, each.partition, each.first_offset))


def _no_query(query: str, read: Iterable[WriteReceipt]) -> str:
    there = sorted({each.query_name or each.query for each in read})
    others = f" and {len(there) - _MOST_NAMED} others" if len(there) > _MOST_NAMED else ""
    return f"--query {query}: no receipt is of this query; there are {', '.join(there[:_MOST_NAMED])}{others}."


def _warn(source: TopicReceipts | FolderReceipts, any_receipts: bool, follow: bool) -> None:
    """Says on stderr what is not shown. Raises ``KafkaError`` if there is no receipt at all and none may follow."""
    foreign = source.foreign
    if foreign.count and not (any_receipts or follow):
        raise KafkaError(f"not a receipt: {foreign.first}")
    if foreign.count == 1:
        print(f"1 record is not a receipt: {foreign.first}", file=sys.stderr)
    elif foreign.count:
        print(f"{foreign.count} records are not receipts, the first: {foreign.first}", file=sys.stderr)
    if isinstance(source, TopicReceipts) and not follow:
        for partition, offset in source.hidden.items():
            print(f"{partition}: an open transaction hides the records from offset {offset} on", file=sys.stderr)


def _print(receipts: Iterable[WriteReceipt], as_json: bool, head: bool) -> None:
    if as_json:
        for each in receipts:
            print(each.line())
        return
    rows = [tuple(str(getattr(each, name)) for name in _COLUMNS) for each in receipts]
    rows = [_COLUMNS, *rows] if head else rows
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _draw(receipts: list[WriteReceipt], clock: Clock, hours: float, again: bool) -> None:
    from spark_kafka_sink.tools.cli.receipt_charts import drawer, histories, span_count

    now = clock.epoch_ms()
    found = histories(receipts, now - round(hours * _HOUR_MS), now, span_count())
    if again and sys.stdout.isatty():
        print(_CLEAR, end="")
    if not found:
        print(f"No write ended in the last {hours:g} hours; --hours looks further back")
    drawer()(found)
