"""Abort, the last of four processes: Spark has given a batch up, perhaps after commit decided it.

Abort acts only for its own run, whose identity is in the tasks' reports, or in the plan of a batch job. If another
driver has fenced the run since, every other open transaction may be that driver's. Then abort ends exactly those that
its tasks have reported, unless the ledger has an intent that names them: a fenced run decides nothing more.

Without an entry when the run was planned, this may be the wrong ledger, and another one may have decided what is open.
Then abort ends only what its tasks have reported, or have prepared with a marker in this ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_kafka_sink.common.model import ProducerIdentity
from spark_kafka_sink.exactly_once import failpoints
from spark_kafka_sink.exactly_once.commit import Completed, complete_intents
from spark_kafka_sink.exactly_once.ledger_view import LedgerView
from spark_kafka_sink.exactly_once.session import CommitSettings, session_for
from spark_kafka_sink.exactly_once.sweep import abort_all, left_open, list_open
from spark_kafka_sink.exactly_once.values import Entry, EntryState, TaskReport, WriteId, WritePlan, list_numbers
from spark_kafka_sink.producer.transaction_requests import END_TXN_V2


@dataclass(frozen=True, slots=True)
class AbortOutcome:
    """What abort did. ``skipped`` says why it ended at most the reported transactions, or is "". ``decided`` has a
    clause for each decided batch of the name.

    ``aborted`` is the number of transactions. ``gone`` is how many of the reported ones were no longer open, so that
    another process may have committed them.
    """

    skipped: str = ""
    decided: tuple[str, ...] = ()
    aborted: int = 0
    gone: int = 0


def abort_batch(
    settings: CommitSettings, reports: Sequence[TaskReport | None], plan: WritePlan | None = None
) -> AbortOutcome:
    """Completes decided batches and aborts everything else that the run left open, within delivery.timeout.ms.

    ``reports``: one for each task, None for a failed one. ``plan``: of a batch job.
    """
    present = [report for report in reports if report is not None]
    planned: WritePlan | TaskReport | None = plan or next(iter(present), None)
    if planned is None:
        return AbortOutcome("each task failed before it could report its transaction")
    with session_for(settings) as session:
        deadline = session.catch_up(session.deadline(settings.producer.delivery_timeout_ms))
        listing = list_open(session, deadline)
        if not planned.run.has_entry:
            listing = [transaction for transaction in listing if session.settings.topic in dict(transaction.topics)]
        reported = {prepared for report in present if (prepared := report.share.prepared) is not None}
        driver = session.bump_driver_epoch(planned.run.driver, deadline)
        if driver is None:
            view = session.ledger.read_acknowledged(session.clock.epoch_ms(), deadline)
            undecided = {
                transaction for transaction in reported if transaction.key not in _transactions_of(view.entries)
            }
            return _outcome_when_fenced(planned, view, len(abort_all(session, undecided, deadline)))
        failpoints.hit("abort fenced")
        view = session.read_ledger(driver, deadline)
        entries = dict(view.entries)
        state = complete_intents(session, driver, entries, deadline)
        decided = _transactions_of(entries)
        reported = {transaction for transaction in reported if transaction.key not in decided}
        known = decided | {prepared.key for prepared in reported}
        own = {transaction for transaction in left_open(listing, driver) if transaction.key not in known}
        aborted = abort_all(session, reported | own, deadline, driver)
        return AbortOutcome(
            decided=_decided_clauses(planned.write_id, entries, state),
            aborted=len(aborted),
            gone=len(reported - aborted),
        )


def _transactions_of(entries: Mapping[str, Entry]) -> set[tuple[str, int, int]]:
    return {prepared.key for entry in entries.values() for prepared in entry.prepared.values()}


def _outcome_when_fenced(planned: WritePlan | TaskReport, view: LedgerView, aborted: int) -> AbortOutcome:
    """The outcome of a run that was fenced, perhaps by its own commit: under transactions v2 a whole commit bumps the
    epoch twice, and its done record has the epoch between. The commit of another run has receipts of its own.
    """
    write_id, identity = planned.write_id, planned.run.driver.identity
    entry = None if write_id is None else view.entries.get(write_id.query)
    if write_id is None or entry is None or entry.number != write_id.number or entry.state is not EntryState.DONE:
        return AbortOutcome(f"another driver has fenced {identity.transactional_id} since", aborted=aborted)
    bumps = 1 if identity.end_txn_version >= END_TXN_V2 else 0
    own = ProducerIdentity(identity.producer_id, identity.epoch + bumps)
    if view.writer(entry.query) == own:
        return AbortOutcome(decided=(f"{entry} was committed before",))
    return AbortOutcome(decided=(f"{entry} was committed by another run",), aborted=aborted)


def _decided_clauses(write_id: WriteId | None, before: Mapping[str, Entry], state: Completed) -> tuple[str, ...]:
    clauses = []
    for query, entry in before.items():
        if query in state.lost:
            tasks = list_numbers(state.lost[query])
            clauses.append(f"{entry} is decided and the rows of task {tasks} are gone, which its replay writes again")
        elif entry.state is EntryState.INTENT:
            clauses.append(f"{entry} had been decided and is committed")
        elif write_id is not None and (query, entry.number) == (write_id.query, write_id.number):
            clauses.append(f"{entry} was committed before")
    return tuple(clauses)
