"""Abort, the last of four processes: Spark has given a batch up, perhaps after commit decided it.

Abort acts only for its own run, whose identity is in the tasks' reports, in the plan of a batch job, or in what a
query's planning has noted. It bumps the driver's epoch, so that no more tasks begin, lists what is open, and bumps the
epoch again. If that succeeds, no other run came between, and what was listed belongs to this run or to earlier ones.

If another driver has fenced the run, every other open transaction may be that driver's. Then abort ends exactly the
transactions that its tasks have reported, unless the ledger has an intent that names them, because a fenced run decides
nothing more. If the ledger had no entry when the run was planned, it may be the wrong ledger, and another ledger may
have decided the open transactions. Then abort ends only transactions that its tasks have reported, or have prepared
with a marker in this ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.common.model import ProducerIdentity
from spark_kafka_sink.exactly_once import failpoints
from spark_kafka_sink.exactly_once.commit import Completed, complete_intents
from spark_kafka_sink.exactly_once.ledger_view import LedgerView
from spark_kafka_sink.exactly_once.session import CommitSettings, session_for
from spark_kafka_sink.exactly_once.sweep import abort_all, left_open, list_open
from spark_kafka_sink.exactly_once.values import (
    Entry,
    OpenTransaction,
    TaskReport,
    WriteId,
    WriteKind,
    WritePlan,
    list_numbers,
)
from spark_kafka_sink.producer.transaction_requests import END_TXN_V2

_STOP_MS: Final = 10_000.0


@dataclass(frozen=True, slots=True)
class AbortOutcome:
    """The outcome of an abort. ``skipped``: why it ended at most the reported transactions, or "". ``decided`` has a
    clause for each decided batch of the name.

    ``aborted`` is the number of transactions. ``gone`` is how many of the reported transactions were no longer open, so
    that another process may have committed them. ``left`` is how many abort left open, because another ledger may have
    decided them.
    """

    skipped: str = ""
    decided: tuple[str, ...] = ()
    aborted: int = 0
    gone: int = 0
    left: int = 0


def abort_batch(
    settings: CommitSettings, reports: Sequence[TaskReport | None], plan: WritePlan | None = None
) -> AbortOutcome:
    """Completes decided batches and aborts everything else that the run left open, within delivery.timeout.ms; for a
    query within 10 s, because ``query.stop()`` waits for it.

    ``reports``: one report for each task, None for a failed task. ``plan``: the plan of a batch job, or the run of a
    query.
    """
    present = [report for report in reports if report is not None]
    planned: WritePlan | TaskReport | None = next(iter(present), plan)
    if planned is None:
        return AbortOutcome("each task failed before it could report its transaction")
    with session_for(settings) as session:
        timeout_ms = settings.producer.delivery_timeout_ms
        if planned.write_id is not None and planned.write_id.kind is WriteKind.VERSION:
            deadline = session.catch_up(session.deadline(timeout_ms))
        else:
            deadline = session.deadline(min(timeout_ms, _STOP_MS))
        reported = {prepared for report in present if (prepared := report.outcome.prepared) is not None}
        driver = session.bump_driver_epoch(planned.run.driver, deadline)
        listing: list[OpenTransaction] = []
        if driver is not None:
            failpoints.hit("abort fenced")
            listing = list_open(session, deadline)
            driver = session.bump_driver_epoch(driver, deadline)
        if driver is None:
            view = session.ledger.read_acknowledged(session.clock.epoch_ms(), deadline)
            undecided = {
                transaction for transaction in reported if transaction.key not in _transactions_of(view.entries)
            }
            return _outcome_when_fenced(planned, view, len(abort_all(session, undecided, deadline)))
        view = session.read_ledger(driver, deadline)
        entries = dict(view.entries)
        state = complete_intents(session, driver, entries, deadline)
        decided = _transactions_of(entries)
        reported = {transaction for transaction in reported if transaction.key not in decided}
        known = decided | {prepared.key for prepared in reported}
        others = [transaction for transaction in listing if transaction.key not in known]
        own = [each for each in others if planned.run.has_entry or settings.topic in dict(each.topics)]
        aborted = abort_all(session, reported.union(left_open(own, driver)), deadline, driver)
        return AbortOutcome(
            decided=_decided_clauses(planned.write_id, entries, state),
            aborted=len(aborted),
            gone=len(reported - aborted),
            left=len(others) - len(own),
        )


def _transactions_of(entries: Mapping[str, Entry]) -> set[tuple[str, int, int]]:
    return {key for entry in entries.values() for key in entry.transaction_keys}


def _outcome_when_fenced(planned: WritePlan | TaskReport, view: LedgerView, aborted: int) -> AbortOutcome:
    """The outcome of a run that was fenced, perhaps by its own commit. Under transactions v2 a whole commit bumps the
    epoch twice, and its done record has the epoch between the two. The commit of another run has receipts of its own.
    """
    write_id, identity = planned.write_id, planned.run.driver.identity
    entry = None if write_id is None else view.entries.get(write_id.query)
    if write_id is None or entry is None or entry.number != write_id.number or not entry.is_done:
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
        elif entry.must_be_completed:
            clauses.append(f"{entry} had been decided and is committed")
        elif write_id is not None and (query, entry.number) == (write_id.query, write_id.number):
            clauses.append(f"{entry} was committed before")
    return tuple(clauses)
