"""``spark-kafka-sink transactions``: what exactly-once writes have left open, and what to do about it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from spark_kafka_sink.cli.producer_options import name_and_value
from spark_kafka_sink.cli.properties import read_properties
from spark_kafka_sink.clock import SystemClock
from spark_kafka_sink.commit.operating import Survey, abort_undecided, commit_decided, survey
from spark_kafka_sink.commit.session import CommitSettings, Session
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import ConfigError

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

LEDGER_TOPIC = "__pykafka_commits"

DESCRIPTION = """\
An exactly-once write leaves transactions prepared until its batch is decided, and carries the decision
out. Between these, a driver may die: readers then wait at what is open.

  list     what is open, and under which intent; disturbs nobody
  commit   carries out what is decided; a query that runs under the prefix is fenced and must be restarted
  abort    aborts what is open and not decided; refuses while an intent stands. With --force what is left
           of a decided batch is committed, and its rows that are gone are given up

Starting the query again does the first two by itself, and is the better way while its checkpoint is there."""


def add_to(commands: Subparsers) -> None:
    command = commands.add_parser(
        "transactions",
        help="list, commit or abort what exactly-once writes have left open",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("action", choices=("list", "commit", "abort"))
    command.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT", help="brokers, commas between")
    command.add_argument("--prefix", required=True, help="the write's transactionalIdPrefix")
    command.add_argument("--commit-log-topic", default=LEDGER_TOPIC, metavar="TOPIC", help="default: %(default)s")
    command.add_argument("--force", action="store_true", help="for abort: although a batch is decided")
    command.add_argument(
        "--command-property", type=name_and_value, action="append", default=[], metavar="NAME=VALUE",
        help="an option of Kafka's producer, such as security.protocol; may be given several times",
    )  # fmt: skip
    command.add_argument("--command-config", type=Path, metavar="FILE", help="a .properties file of such options")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    session = Session(_settings(arguments), SystemClock())
    try:
        deadline = session.deadline(session.settings.producer.max_block_ms)
        _check_ledger(session, deadline)
        if arguments.action == "commit":
            finished = commit_decided(session, deadline)
            print(
                "\n".join(f"committed batch {each.number} of {each.query}" for each in finished) or "nothing to commit"
            )
        elif arguments.action == "abort":
            print(f"aborted {abort_undecided(session, arguments.force, deadline)} transactions")
        else:
            print(_told(survey(session, deadline), session.clock.epoch_ms()))
    finally:
        session.close()
    return 0


def _check_ledger(session: Session, deadline: float) -> None:
    topic = session.settings.topic
    if session.cluster.topic(topic, deadline) is None:
        raise ConfigError(
            [
                f"--commit-log-topic {topic}: there is no such topic, so nobody can tell what is decided. Name the one "
                "of the write (its option commitLogTopic)."
            ]
        )


def _settings(arguments: argparse.Namespace) -> CommitSettings:
    options: dict[str, object] = {}
    if arguments.command_config is not None:
        try:
            options.update(read_properties(arguments.command_config))
        except OSError as error:
            raise ConfigError([f"--command-config {arguments.command_config}: {error.strerror}."]) from error
    options.update(arguments.command_property)
    options["bootstrap.servers"] = arguments.bootstrap_server
    name = arguments.prefix
    return CommitSettings(ProducerConfig.parse(options), name, name, arguments.commit_log_topic)


def _told(found: Survey, now_ms: int) -> str:
    lines = [
        f"{entry.query}: batch {entry.number}, {entry.stage.value}, {len(entry.tasks)} tasks, {entry.total.count} rows"
        for entry in found.entries.values()
    ] or ["the ledger has no entry under this prefix"]
    if found.listed is None:
        return "\n".join([*lines, "these brokers cannot list transactions (before Kafka 3.0)"])
    for each in found.listed:
        intent = found.intent_of(each)
        fate = (
            "not decided: abort" if intent is None else f"decided with batch {intent.number} of {intent.query}: commit"
        )
        age = "" if each.started_at < 0 else f", open for {(now_ms - each.started_at) / 1000:.0f} s"
        lines.append(f"{each.transactional_id} (producer id {each.producer_id}, epoch {each.epoch}){age}: {fate}")
    return "\n".join([*lines, f"{len(found.listed)} transactions open"])
