"""Completes decided batches, by committing the transactions that an intent names. Any process that reads an intent may
do so, any number of times.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError, clause
from spark_kafka_sink.exactly_once.committer import EndTxnOutcome, EndVerdict
from spark_kafka_sink.exactly_once.decisions import done
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError, Progress
from spark_kafka_sink.exactly_once.ledger import Ledger
from spark_kafka_sink.exactly_once.ledger_view import LedgerView
from spark_kafka_sink.exactly_once.session import Session
from spark_kafka_sink.exactly_once.values import DriverIdentity, Entry, EntryState, list_numbers
from spark_kafka_sink.producer.transaction_requests import PreparedTransaction

_log = logging.getLogger("spark_kafka_sink.exactly_once")

# How long the ledger is read for the marker of a transaction before its EndTxn is sent again, twice as long each time.
_PATIENCE_MS: Final = 2_000.0


@dataclass(frozen=True, slots=True)
class Completed:
    """The ledger after its intents were completed, and the driver identity to go on with.

    ``lost``: query → the tasks of its entry whose rows are lost; that entry stays an intent.
    """

    driver: DriverIdentity
    entries: Mapping[str, Entry]
    lost: Mapping[str, frozenset[int]]


def complete_intents(
    session: Session, driver: DriverIdentity, entries: Mapping[str, Entry], deadline: float, lossy: Collection[str] = ()
) -> Completed:
    """Completes every intent. ``entries`` are those read under ``driver``. ``lossy``: the queries whose batch is
    recorded as done even if rows of it are lost.
    """
    completed = dict(entries)
    lost: dict[str, frozenset[int]] = {}
    for query, entry in entries.items():
        if entry.state is EntryState.DONE:
            continue
        missing = complete(session, entry, deadline)
        if missing and query not in lossy:
            lost[query] = missing
        else:
            if missing:
                _log.warning("%s counts as committed, but rows of its tasks %s are lost", entry, list_numbers(missing))
            completed[query] = done(entry)
            driver = session.record(driver, completed[query], deadline)
    return Completed(driver, completed, lost)


def complete(session: Session, entry: Entry, deadline: float) -> frozenset[int]:
    """Commits every transaction that the entry names. Returns the tasks whose rows are lost.

    A transaction that is no longer open may have been committed before; its marker shows whether it was. A coordinator
    that was deposed and does not know of it yet says the same of an open one, so transactions without a marker are
    asked to commit again. Raises ``ExactlyOnceError`` if a broker refuses or does not respond; some transactions may be
    committed then, and the next process to read the ledger completes the rest.
    """
    batch = f"Batch {entry.number} of {entry.query} (name {session.settings.name})"
    advice = session.settings.advice(entry.kind, Progress.DECIDED)
    outcomes: dict[int, EndTxnOutcome] = {}
    transactions = asked = entry.prepared
    patience_ms = _PATIENCE_MS
    while True:
        ended = session.committer.end(
            [(transaction, True) for transaction in asked.values()], deadline - session.clock.now()
        )
        outcomes.update(zip(asked, ended, strict=True))
        undecided = [outcome for outcome in ended if outcome.verdict is EndVerdict.UNDECIDED]
        if undecided:
            raise ExactlyOnceError(
                f"{batch} is decided, but {len(undecided)} of its {len(transactions)} "
                f"transactions could not be committed yet: {undecided[0].error}. {_states(outcomes)}. {advice}"
            )
        gone = {task: transactions[task] for task, each in outcomes.items() if each.verdict is EndVerdict.GONE}
        if not gone:
            return frozenset()
        try:
            return lost_tasks(session.ledger, entry, gone, _within(session.clock.now(), patience_ms, deadline))
        except ExactlyOnceError:
            raise
        except KafkaError as error:
            if isinstance(error, KafkaTimeoutError) and session.clock.now() < deadline:
                asked, patience_ms = gone, 2 * patience_ms
                continue
            raise ExactlyOnceError(
                f"{batch} is decided, but the ledger does not say whether the rows of task {list_numbers(gone)} are "
                f"committed: {clause(error)}. {_states(outcomes)}. {advice}"
            ) from error


def _within(now: float, patience_ms: float, deadline: float) -> float:
    """The end of the patience, or the deadline if there is no time for as much once more."""
    return now + patience_ms if now + 2 * patience_ms < deadline else deadline


def _states(outcomes: Mapping[int, EndTxnOutcome]) -> str:
    """Which transactions are committed, by task."""
    states: dict[str, list[int]] = {}
    for task, outcome in outcomes.items():
        state = "no longer open, committed or aborted" if outcome.verdict is EndVerdict.GONE else "committed"
        if outcome.verdict is EndVerdict.UNDECIDED:
            state = "open or committed, as a request had no response" if outcome.unanswered else "open"
        states.setdefault(state, []).append(task)
    return "Transactions by task: " + "; ".join(f"{list_numbers(tasks)}: {state}" for state, tasks in states.items())


def lost_tasks(
    ledger: Ledger, entry: Entry, gone: Mapping[int, PreparedTransaction], deadline: float
) -> frozenset[int]:
    """The tasks whose transaction was aborted; none if another process has completed the entry meanwhile. ``gone`` maps
    each task to its transaction, which is no longer open.
    """
    # A metadata response may lack the ledger, and its id, for a moment.
    while not _is_decided(view := ledger.read(deadline), entry) or (entry.ledger_id and not ledger.topic_id):
        ledger.await_control_records(deadline)
    found = view.entries.get(entry.query)
    if found is None or found.state is EntryState.DONE:
        return frozenset()
    if entry.ledger_id is not None and entry.ledger_id != ledger.topic_id:
        raise ExactlyOnceError(
            f"Batch {entry.number} of {entry.query} (name {ledger.view.name}) is decided, but ledgerTopic "
            f"{ledger.partitions.topic} was deleted and created again after its tasks had written to it, so it does "
            f"not say whether the rows of task {list_numbers(gone)} are committed. Look in Kafka whether they are "
            "there, then continue with a new name (transactionalIdPrefix, or txnAppId)."
        )
    assert entry.marker_partition is not None
    markers = {task: (entry.tasks[task].marker or 0, prepared) for task, prepared in gone.items()}
    return frozenset(gone) - ledger.committed_markers(entry.marker_partition, markers, deadline)


def _is_decided(view: LedgerView, entry: Entry) -> bool:
    """Whether this ledger has, or had, the intent. Only then does a missing marker mean lost rows."""
    found = view.entries.get(entry.query)
    if found is not None and found.number > entry.number:
        raise ExactlyOnceError(
            f"Batch {entry.number} of {entry.query} (name {view.name}) was overtaken: another driver is at batch "
            f"{found.number}. Stop the run that is not wanted."
        )
    return found.number == entry.number if found is not None else entry.query in view.removed
