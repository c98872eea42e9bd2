"""The fourth kind of process: Spark has given a batch up. It may be wrong: commit may have decided before.

It acts for its own run only, whose identity comes with the tasks' reports, or with the pickled writer of a batch job.
Where another driver has fenced since, everything that is open may be that driver's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_kafka_sink.exactly_once import steps
from spark_kafka_sink.exactly_once.complete import Completed, complete_intents
from spark_kafka_sink.exactly_once.ledger_view import LedgerView
from spark_kafka_sink.exactly_once.session import CommitSettings, session_for
from spark_kafka_sink.exactly_once.sweep import abort_all, left_open, list_open
from spark_kafka_sink.exactly_once.values import Entry, EntryState, TaskReport, WriteId, WriteKind, WritePlan
from spark_kafka_sink.model import ProducerIdentity
from spark_kafka_sink.transactions.values import END_TXN_V2


@dataclass(frozen=True, slots=True)
class AbortOutcome:
    """``skipped``: why nothing was done; "" when something was. ``decided``: a clause for the batch, or another of
    its name, that the ledger has decided. ``aborted``: how many transactions were; ``gone``: how many of those that the
    tasks reported were not open any more, so that another process may have committed them. ``committed``: the batch is,
    as a whole."""

    skipped: str = ""
    decided: tuple[str, ...] = ()
    aborted: int = 0
    gone: int = 0
    committed: bool = False


def abort_batch(
    settings: CommitSettings, reports: Sequence[TaskReport | None], plan: WritePlan | None = None
) -> AbortOutcome:
    """Under the run's own fence: finish what was decided, abort everything else that the run has left open.

    ``reports``: one for each task, None for those that failed. ``plan``: of a batch job. Within delivery.timeout.ms.
    """
    present = [report for report in reports if report is not None]
    known: WritePlan | TaskReport | None = plan or next(iter(present), None)
    if known is None:
        return AbortOutcome("no task has reported which run it was of")
    with session_for(settings) as session:
        deadline = session.catch_up(session.deadline(settings.producer.delivery_timeout_ms))
        listing = list_open(session, deadline)
        driver = session.bump_driver_epoch(known.driver, deadline)
        if driver is None:
            return _fenced(known, session.ledger.read(deadline))
        steps.reach("abort fenced")
        view = session.read_ledger(driver, deadline)
        entries = dict(view.entries)
        stock = complete_intents(session, driver, entries, deadline)
        decided = {share.prepared for entry in entries.values() for share in entry.tasks}
        shares = [report.share.prepared for report in present]
        reported = frozenset(each for each in shares if each is not None and each not in decided)
        listed = left_open(listing, driver) if entries or settings.per_attempt else []
        aborted = abort_all(session, reported.union(listed) - decided, deadline)
        return AbortOutcome(
            decided=_removed(known.write_id, view) or _clauses(known.write_id, entries, stock),
            aborted=len(aborted),
            gone=len(reported - aborted),
            committed=bool(_removed(known.write_id, view)) or _is_committed(known.write_id, stock.entries),
        )


def _fenced(known: WritePlan | TaskReport, view: LedgerView) -> AbortOutcome:
    """What the ledger says is done is done, whoever reads it. Under transactions v2 a whole commit has raised the epoch
    twice, so that the run's own is taken for another driver: its done record has the epoch between. Another run's
    commit has receipts of its own."""
    if gone := _removed(known.write_id, view):
        return AbortOutcome(decided=gone, committed=True)
    if known.write_id is None or not _is_committed(known.write_id, view.entries):
        return AbortOutcome(f"another driver has fenced {known.driver.identity.transactional_id} since")
    write_id, fence = known.write_id, known.driver.identity
    bumps = 1 if fence.end_txn_version >= END_TXN_V2 else 0
    ours = view.writer(write_id.query) == ProducerIdentity(fence.producer_id, fence.epoch + bumps)
    return AbortOutcome(decided=(f"batch {write_id.number} of {write_id.query} was committed before",), committed=ours)


def _removed(write_id: WriteId | None, view: LedgerView) -> tuple[str, ...]:
    """A batch job leaves a tombstone for its entry once it is done."""
    done = write_id is not None and write_id.kind is WriteKind.ONCE and write_id.query in view.removed
    return (f"{write_id} was committed before",) if done else ()


def _is_committed(write_id: WriteId | None, entries: Mapping[str, Entry]) -> bool:
    entry = None if write_id is None else entries.get(write_id.query)
    return (
        entry is not None and write_id is not None and (entry.number, entry.state) == (write_id.number, EntryState.DONE)
    )


def _clauses(write_id: WriteId | None, before: Mapping[str, Entry], stock: Completed) -> tuple[str, ...]:
    said = []
    for query, entry in before.items():
        batch = f"batch {entry.number} of {query}"
        if query in stock.lost:
            tasks = ", ".join(map(str, sorted(stock.lost[query])))
            said.append(f"{batch} is decided and the rows of task {tasks} are gone, which its replay writes again")
        elif entry.state is EntryState.INTENT:
            said.append(f"{batch} had been decided and is committed")
        elif write_id is not None and (query, entry.number) == (write_id.query, write_id.number):
            said.append(f"{batch} was committed before")
    return tuple(said)
