"""``spark-kafka-sink transactions``: lists and ends the transactions that exactly-once writes left open."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Final

import numpy as np

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.task_figures import count_noun
from spark_kafka_sink.errors import ConfigError, error_list, sanitize
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError, LostRowsError
from spark_kafka_sink.exactly_once.operator_commands import (
    FoundWrite,
    abort_undecided,
    commit_decided,
    discover,
    foreign_ledger,
    forget_done,
    forgettable,
    refuse_decided,
    refuse_foreign,
    similar_names,
)
from spark_kafka_sink.exactly_once.session import CommitSettings, Session
from spark_kafka_sink.exactly_once.values import Entry, driver_id
from spark_kafka_sink.spark.options import LEDGER_TOPIC
from spark_kafka_sink.tools.cli.command_line import above_zero, add_client_options, add_cluster, client_config

DECLINED: Final = 1

_UNDECIDED: Final = "not decided: its run is still writing, or is dead; abort would end it"

_DAY_MS: Final = 86_400_000

_FORGOTTEN: Final = (
    "A txnVersion that runs again after its entry was removed writes its rows twice. A query that continues from its "
    "checkpoint is refused until ledgerStart=trust-checkpoint:N names its batch."
)

SUMMARY = "list, commit or abort transactions that exactly-once writes left open, and remove old ledger entries"

DESCRIPTION = """\
Shows and ends transactions that exactly-once writes left open, which block readers with
isolation.level=read_committed. A batch is decided by a record in the ledger.

  list     shows the last batch of each write in the ledger, and open transactions, with their age and
           whether they will be committed. Changes nothing
  commit   commits the transactions of decided batches
  abort    aborts the transactions of batches that are not decided. It is refused while a decided batch is not
           committed, or if another ledger than --ledger-topic may have decided the batch
  forget   removes entries of batches that are done from the ledger, for jobs and queries that will not run
           again. If a txnVersion runs again after its entry was removed, it writes its rows twice

commit, abort and forget fence a running query with that name: the query fails and must be restarted. They
ask for confirmation; without a terminal they need --yes.

As long as the checkpoint exists, prefer to restart the query, or to run the job again with the same txnVersion
and rows: it commits and aborts by itself, and writes lost rows again."""


EXAMPLES = """\
examples:
  spark-kafka-sink transactions list --bootstrap-server broker:9092
  spark-kafka-sink transactions commit --bootstrap-server broker:9092 --prefix orders --dry-run
  spark-kafka-sink transactions abort --bootstrap-server broker:9092 --prefix orders --yes
  spark-kafka-sink transactions forget --bootstrap-server broker:9092 --prefix 'run-*' --older-than 30 --dry-run"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("action", choices=("list", "commit", "abort", "forget"))
    add_cluster(command)
    command.add_argument(
        "--prefix",
        help="name of the write: its transactionalIdPrefix, or its txnAppId; optional for list. For forget it may end "
        r"in *, to match every name with that beginning; write \* for the * of a name",
    )
    command.add_argument(
        "--older-than", type=above_zero, metavar="DAYS", help="for forget: only entries that were decided longer ago"
    )
    command.add_argument(
        "--ledger-topic",
        default=LEDGER_TOPIC,
        metavar="TOPIC",
        help="the write's ledgerTopic (default: %(default)s)",
    )
    command.add_argument(
        "--force",
        action="store_true",
        help="for abort: commit the rest of a decided batch, and give up its missing rows; abort also what another "
        "ledger may have decided",
    )
    command.add_argument("--dry-run", action="store_true", help="show what commit, abort or forget would do")
    command.add_argument("--yes", action="store_true", help="do not ask before fencing a query")
    add_client_options(command)


def _check(arguments: argparse.Namespace) -> None:
    forgets = arguments.action == "forget"
    if arguments.older_than is not None and not forgets:
        raise ConfigError(["--older-than is for forget only."])
    if arguments.action != "list" and arguments.prefix is None and arguments.older_than is None:
        wanted = "--prefix, --older-than or both" if forgets else "--prefix"
        raise ConfigError([f"{arguments.action} needs {wanted}; the action list shows them."])


def run(arguments: argparse.Namespace) -> int:
    _check(arguments)
    config = client_config(arguments)
    found = _discover(config, arguments)
    if arguments.action == "forget":
        return _forget(found, config, arguments)
    if arguments.action == "list":
        print(_list(found, SystemClock().epoch_ms(), arguments.ledger_topic))
        return 0
    for write in found:
        if write.unreadable is not None:
            raise ExactlyOnceError(write.unreadable)
    decided = arguments.action == "commit"
    todo = [write for write in found if (write.intents if decided else _to_abort(write, arguments))]
    if not todo:
        print(f"nothing to {arguments.action}")
        return 0
    would = "would " if arguments.dry_run else ""
    print("\n".join(f"{would}{line}" for write in todo for line in _steps(write, decided)))
    if (code := _exit_code_before(todo, arguments)) is not None:
        return code
    if decided:
        _commit(todo, config, arguments)
    else:
        _abort(todo, config, arguments)
    return 0


def _discover(config: ProducerConfig, arguments: argparse.Namespace) -> list[FoundWrite]:
    with closing(Session(CommitSettings(config, "", arguments.ledger_topic), SystemClock())) as session:
        deadline = session.deadline(config.max_block_ms)
        if session.cluster.topic(session.settings.topic, deadline) is None:
            raise ConfigError([
                f"--ledger-topic {session.settings.topic}: there is no such topic. Set it to the write's option "
                "ledgerTopic, which has the decisions."
            ])  # fmt: skip
        return _meant(discover(session, deadline), arguments.prefix, arguments.action)


def _meant(found: list[FoundWrite], prefix: str | None, action: str) -> list[FoundWrite]:
    """The writes that ``--prefix`` names. Raises ``ConfigError`` if it names no write but is similar to the name of a
    write."""
    if prefix is None:
        return found
    pattern = action == "forget" and prefix.endswith("*")
    if pattern:
        prefix = prefix[:-1]
        if prefix.endswith("\\"):
            prefix, pattern = f"{prefix[:-1]}*", False
    named = [write for write in found if write.name == prefix or (pattern and write.name.startswith(prefix))]
    if not named and (names := similar_names(found, prefix)):
        raise ConfigError([
            f"--prefix {prefix}: no entry of the ledger and no open transaction has this name; did you mean "
            f"{' or '.join(names)}?"
        ])  # fmt: skip
    return named


def _to_abort(found: FoundWrite, arguments: argparse.Namespace) -> bool:
    """Whether anything is left to abort. Raises ``ExactlyOnceError`` if an intent exists, here or perhaps in another
    ledger, unless ``--force`` is given."""
    if not arguments.force:
        refuse_decided(found.name, found.intents)
        refuse_foreign(found.name, arguments.ledger_topic, found.transactions)
    return bool(found.undecided or found.intents)


def _steps(found: FoundWrite, decided: bool) -> list[str]:
    batches = [
        f"commit {entry.numbered} of {_query(entry)}: "
        + ", ".join(share.prepared.transactional_id for share in entry.tasks if share.prepared is not None)
        for entry in found.intents
    ]
    return (
        batches if decided else batches + [f"abort {transaction.transactional_id}" for transaction in found.undecided]
    )


def _exit_code_before(todo: Sequence[FoundWrite], arguments: argparse.Namespace) -> int | None:
    """The exit code of a dry run, or if the user declines; None to continue."""
    if arguments.dry_run:
        return 0
    if arguments.yes or _ask(todo):
        return None
    print("nothing done")
    return DECLINED


def _ask(todo: Sequence[FoundWrite]) -> bool:
    ids = ", ".join(driver_id(write.name) for write in todo)
    warning = f"This fences {ids}: a running query or job with this transactional id fails and must be restarted."
    if not sys.stdin.isatty():
        raise ConfigError([f"{warning} There is no terminal to ask: confirm with --yes."])
    try:
        return input(f"{warning} Continue? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:  # Ctrl-D
        print()
        return False


def _commit(todo: Sequence[FoundWrite], config: ProducerConfig, arguments: argparse.Namespace) -> None:
    """Commits all writes; those with lost rows fail after the others."""
    lost: list[str] = []
    for write in todo:
        settings = CommitSettings(config, write.name, arguments.ledger_topic)
        with closing(Session(settings, SystemClock())) as session:
            try:
                for entry in commit_decided(session, session.deadline(config.max_block_ms)):
                    print(f"committed {entry.numbered} of {_query(entry)}")
            except LostRowsError as error:
                lost.append(str(error))
    if lost:
        raise ExactlyOnceError(error_list(lost))


def _abort(todo: Sequence[FoundWrite], config: ProducerConfig, arguments: argparse.Namespace) -> None:
    aborted = 0
    for write in todo:
        settings = CommitSettings(config, write.name, arguments.ledger_topic)
        with closing(Session(settings, SystemClock())) as session:
            deadline = session.deadline(config.max_block_ms)
            count, runs = abort_undecided(session, arguments.force, deadline, write.transactions)
            aborted += count
        if runs:
            print(f"{write.name} is still running: it has begun transactions meanwhile. It is fenced, so it will fail.")
    print(f"aborted {count_noun(aborted, 'transaction')}")


def _forget(found: Sequence[FoundWrite], config: ProducerConfig, arguments: argparse.Namespace) -> int:
    now_ms = SystemClock().epoch_ms()
    before = now_ms + _DAY_MS if arguments.older_than is None else now_ms - int(arguments.older_than * _DAY_MS)
    todo: list[FoundWrite] = []
    for write in found:
        if (reason := _reason_to_keep(write)) is not None:
            print(f"{write.name} is kept: {reason}")
        elif removed := forgettable(write.entries.values(), before):
            todo.append(write)
            would = "would " if arguments.dry_run else ""
            print("\n".join(f"{would}forget {write.name}: {_entry(entry, now_ms)}" for entry in removed))
    if not todo:
        print("nothing to forget")
        return 1 if any(write.intents for write in found) else 0
    print(_FORGOTTEN)
    if (code := _exit_code_before(todo, arguments)) is not None:
        return code
    count = 0
    for write in todo:
        settings = CommitSettings(config, write.name, arguments.ledger_topic)
        with closing(Session(settings, SystemClock())) as session:
            count += len(forget_done(session, before, session.deadline(config.max_block_ms)))
    print(f"removed {count_noun(count, 'entry', 'entries')}")
    return 0


def _reason_to_keep(found: FoundWrite) -> str | None:
    """Why no entry of the write may be removed; None if an entry may be."""
    if found.unreadable is not None:
        return found.unreadable
    if found.intents:
        batches = " and ".join(map(str, found.intents))
        return f"{batches} is decided and not committed yet: `commit` commits it, `abort --force` gives up lost rows"
    if found.transactions:
        are_open = count_noun(len(found.transactions), "transaction is open", "transactions are open")
        return f"{are_open}, so it may be running; if it is not, `abort` ends them"
    return None


def _list(found: Sequence[FoundWrite], now_ms: int, ledger: str) -> str:
    if not found:
        return "nothing is open, and the ledger has no entry"
    lines: list[str] = []
    for write in found:
        lines += [f"{write.name} ({write.kind})", *(f"  {line}" for line in _lines(write, now_ms, ledger))]
    return "\n".join([*lines, f"{count_noun(sum(len(write.transactions) for write in found), 'transaction')} open"])


def _lines(found: FoundWrite, now_ms: int, ledger: str) -> list[str]:
    lines = [f"cannot be read: {found.unreadable}"] if found.unreadable is not None else []
    lines += [_entry(entry, now_ms) for entry in found.entries.values()]
    for each in found.transactions:
        intent = found.intent_of(each)
        decided = intent and f"decided with {intent.numbered} of {_query(intent)}: commit"
        age = "" if each.started_at < 0 else f", open since {_since(each.started_at, now_ms)}"
        transaction = f"{each.transactional_id} (producer id {each.producer_id}, epoch {each.epoch})"
        lines.append(f"{transaction}{age}: {decided or foreign_ledger(found.name, ledger, each) or _UNDECIDED}")
    return lines


def _entry(entry: Entry, now_ms: int) -> str:
    to = f" to {sanitize(', '.join(topic.name for topic in entry.topics))}" if entry.topics else ""
    return (
        f"{_query(entry)}: {entry.numbered}, {entry.state.value}, {count_noun(len(entry.tasks), 'task')}, "
        f"{count_noun(entry.total.count, 'row')}{to}, decided {_since(entry.decided_at, now_ms)}"
    )


def _query(entry: Entry) -> str:
    """A stream by its id and, if it has one, its name."""
    return f"{entry.query} ({entry.query_name})" if entry.query_name else entry.query


def _since(ms: int, now_ms: int) -> str:
    """The time and its age as text. numpy's times hold any int64 of seconds; ``datetime`` ends with the year 9999."""
    return f"{np.datetime64(ms // 1000, 's')!s} UTC ({(now_ms - ms) / 1000:.0f} s ago)".replace("T", " ", 1)
