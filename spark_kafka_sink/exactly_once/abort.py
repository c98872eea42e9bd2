"""Abort, the last of four processes: Spark has given a batch up, perhaps after commit decided it.

Abort acts only for its own run, whose identity is in the tasks' reports, or in the plan of a batch job. If another
driver has fenced the run since, every other open transaction may be that driver's. Then abort ends exactly those that
its tasks have reported, unless the ledger has an intent that names them: a fenced run decides nothing more.

Without an entry when the run was planned, this may be the wrong ledger, and another one may have decided what was open
before. But only this run can decide what was opened after its fence, because a driver with another ledger has the same
driver id. So abort ends that, and spares the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_kafka_sink.common.foreign_text import clause
from spark_kafka_sink.common.model import ProducerIdentity
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once import steps
from spark_kafka_sink.exactly_once.commit import topic_changes
from spark_kafka_sink.exactly_once.complete import Completed, complete_intents
from spark_kafka_sink.exactly_once.ledger_view import LedgerView
from spark_kafka_sink.exactly_once.session import CommitSettings, Session, session_for
from spark_kafka_sink.exactly_once.sweep import abort_all, list_open, opened_since
from spark_kafka_sink.exactly_once.values import Entry, EntryState, TaskReport, WriteId, WriteKind, WritePlan, listed
from spark_kafka_sink.producer.transactions.values import END_TXN_V2


@dataclass(frozen=True, slots=True)
class AbortOutcome:
    """What abort did. ``skipped`` says why it ended at most what was reported, or is "". ``decided`` has a clause for
    each decided batch of the name.

    ``aborted`` is the number of transactions. ``gone`` is how many of the reported ones were no longer open, so that
    another process may have committed them. ``committed``: the whole batch is. ``all_lost``: the decided batch has lost
    all of its rows.
    """

    skipped: str = ""
    decided: tuple[str, ...] = ()
    aborted: int = 0
    gone: int = 0
    committed: bool = False
    all_lost: bool = False


def abort_batch(
    settings: CommitSettings, reports: Sequence[TaskReport | None], plan: WritePlan | None = None
) -> AbortOutcome:
    """Completes decided batches and aborts everything else that the run left open, within delivery.timeout.ms.

    ``reports``: one for each task, None for a failed one. ``plan``: of a batch job.
    """
    present = [report for report in reports if report is not None]
    run: WritePlan | TaskReport | None = plan or next(iter(present), None)
    if run is None:
        return AbortOutcome("no task has reported which run it belongs to")
    with session_for(settings) as session:
        deadline = session.catch_up(session.deadline(settings.producer.delivery_timeout_ms))
        listing = list_open(session, deadline, tasks=len(reports))
        reported = {prepared for each in present if (prepared := each.share.prepared) is not None}
        driver = session.bump_driver_epoch(run.driver, deadline)
        if driver is None:
            view = session.ledger.read_acknowledged(session.clock.epoch_ms(), deadline)
            undecided = {each for each in reported if each.key not in _decided(view.entries)}
            return _fenced(run, view, len(abort_all(session, undecided, deadline)))
        steps.reach("abort fenced")
        view = session.read_ledger(driver, deadline)
        entries = dict(view.entries)
        state = complete_intents(session, driver, entries, deadline)
        decided = _decided(entries)
        reported = {each for each in reported if each.key not in decided}
        known = decided | {prepared.key for prepared in reported}
        own = {each for each in opened_since(run.open_before, listing, driver) if each.key not in known}
        aborted = abort_all(session, reported | own, deadline, None if listing.derived else driver)
        committed = {query: entry for query, entry in entries.items() if query not in state.lost}
        gone = {query: _gone_topics(session, entry, deadline) for query, entry in committed.items()}
        return AbortOutcome(
            decided=_decided_clauses(run.write_id, entries, state, view, gone),
            aborted=len(aborted),
            gone=len(reported - aborted),
            committed=_is_committed(run.write_id, state.entries, view),
            all_lost=any(not entries[query].has_rows_besides(lost) for query, lost in state.lost.items()),
        )


def _decided(entries: Mapping[str, Entry]) -> set[tuple[str, int, int]]:
    """The transactions that the intents name."""
    return {prepared.key for entry in entries.values() for prepared in entry.prepared.values()}


def _fenced(run: WritePlan | TaskReport, view: LedgerView, aborted: int) -> AbortOutcome:
    """The outcome of a run that was fenced, perhaps by its own commit: under transactions v2 a whole commit bumps the
    epoch twice, and its done record has the epoch between. The commit of another run has receipts of its own.
    """
    write_id, identity = run.write_id, run.driver.identity
    if write_id is None or not _is_committed(write_id, view.entries, view):
        return AbortOutcome(f"another driver has fenced {identity.transactional_id} since", aborted=aborted)
    bumps = 1 if identity.end_txn_version >= END_TXN_V2 else 0
    own = ProducerIdentity(identity.producer_id, identity.epoch + bumps)
    if write_id.query in view.removed:
        return AbortOutcome(decided=(f"{write_id} was committed before",), committed=True)
    entry = view.entries[write_id.query]
    if view.writer(entry.query) == own:
        return AbortOutcome(decided=(f"{entry} was committed before",), committed=True)
    return AbortOutcome(decided=(f"{entry} was committed by another run",), aborted=aborted)


def _is_committed(write_id: WriteId | None, entries: Mapping[str, Entry], view: LedgerView) -> bool:
    """Whether the write is committed. A batch job's entry is removed when it is done."""
    if write_id is None:
        return False
    if write_id.kind is WriteKind.ONCE and write_id.query in view.removed:
        return True
    entry = entries.get(write_id.query)
    return entry is not None and entry.number == write_id.number and entry.state is EntryState.DONE


def _gone_topics(session: Session, entry: Entry, deadline: float) -> str:
    """A clause about topics that no longer hold what the intent, which is committed now, was written to, or ""."""
    if entry.state is EntryState.DONE:
        return ""
    try:
        gone = topic_changes(session, entry.topics, deadline).gone
    except KafkaError as error:
        return f" (no broker says whether its topics are still those that it was written to: {clause(error)})"
    if not gone:
        return ""
    return (
        f", but topic {', '.join(gone)} was deleted (and perhaps created again) meanwhile: the rows that were written "
        "to it are gone"
    )


def _decided_clauses(
    write_id: WriteId | None,
    before: Mapping[str, Entry],
    state: Completed,
    view: LedgerView,
    gone: Mapping[str, str],
) -> tuple[str, ...]:
    """``gone``: query → a clause about the topics of its batch."""
    if write_id is not None and write_id.query not in before and _is_committed(write_id, before, view):
        return (f"{write_id} was committed before",)
    clauses = []
    for query, entry in before.items():
        if query in state.lost:
            again = "and no run of it writes them again" if entry.once else "which its replay writes again"
            clauses.append(f"{entry} is decided and the rows of task {listed(state.lost[query])} are gone, {again}")
        elif entry.state is EntryState.INTENT:
            clauses.append(f"{entry} had been decided and is committed{gone[query]}")
        elif write_id is not None and (query, entry.number) == (write_id.query, write_id.number):
            clauses.append(f"{entry} was committed before")
    return tuple(clauses)
