"""Carrying out what was decided: every process that finds an intent may do it, as often as it likes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once.decisions import done
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.markers import lost_tasks
from spark_kafka_sink.exactly_once.session import Session
from spark_kafka_sink.exactly_once.values import DriverIdentity, Entry, EntryState
from spark_kafka_sink.transactions.committer import EndVerdict


@dataclass(frozen=True, slots=True)
class Completed:
    """What the ledger says when nothing of it stands half done any more; ``driver`` is the fence for what follows.

    ``lost``: query → the tasks of its entry whose rows are gone from Kafka.
    """

    driver: DriverIdentity
    entries: Mapping[str, Entry]
    lost: Mapping[str, frozenset[int]]


def complete_intents(
    session: Session, driver: DriverIdentity, entries: Mapping[str, Entry], deadline: float
) -> Completed:
    """Under the fence: carries out every intent among ``entries``, as they were read under it."""
    settled = dict(entries)
    lost: dict[str, frozenset[int]] = {}
    for query, entry in entries.items():
        if entry.state is EntryState.DONE:
            continue
        missing = finish(session, entry, deadline)
        if missing:
            lost[query] = missing
        else:
            settled[query] = done(entry)
            driver = session.record(driver, settled[query], deadline)
    return Completed(driver, settled, lost)


def finish(session: Session, entry: Entry, deadline: float) -> frozenset[int]:
    """Commits every transaction the entry names; gives the tasks whose rows are gone from Kafka.

    A transaction that is not open any more may have been committed before: its marker tells. Raises
    ``ExactlyOnceError`` when a broker does not answer or refuses: some transactions may be committed then, and the next
    process to read the ledger goes on.
    """
    tasks = [task for task, share in enumerate(entry.tasks) if share.prepared is not None]
    endings = [(share.prepared, True) for share in entry.tasks if share.prepared is not None]
    outcomes = session.committer.end(endings, deadline - session.clock.now())
    undecided = [outcome for outcome in outcomes if outcome.verdict is EndVerdict.UNDECIDED]
    if undecided:
        raise ExactlyOnceError(
            f"Batch {entry.number} of {entry.query} (name {session.settings.name}) is decided, but "
            f"{len(undecided)} of its {len(endings)} transactions could not be committed yet: {undecided[0].error}. "
            "Start the query again: it commits them first. Do so before kafka.transaction.timeout.ms has passed."
        )
    gone = {
        task: outcome.prepared
        for task, outcome in zip(tasks, outcomes, strict=True)
        if outcome.verdict is EndVerdict.GONE
    }
    if not gone:
        return frozenset()
    try:
        return lost_tasks(session.ledger, entry, gone, deadline)
    except ExactlyOnceError:
        raise
    except KafkaError as error:
        raise ExactlyOnceError(
            f"Batch {entry.number} of {entry.query} (name {session.settings.name}) is decided, but the ledger does "
            f"not say whether the rows of task {', '.join(map(str, sorted(gone)))} are committed: {error}. Start the "
            "query again: it finds out, and writes them again if they are gone."
        ) from error
