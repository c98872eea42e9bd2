"""What each process has to do, given what the ledger says. Tables; no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Final

from spark_kafka_sink.exactly_once.errors import ExactlyOnceError, LostRowsError, ReplayMismatchError
from spark_kafka_sink.exactly_once.values import (
    DRIVER_TIMEOUT_MS,
    Entry,
    EntryState,
    LedgerStart,
    RecoveryMode,
    RowSum,
    TaskAction,
    TaskReport,
    TaskShare,
    WriteId,
    WriteKind,
    WritePlan,
)

_MARGIN_SHARE: Final = 10


class Comparison(Enum):
    """How a batch stands to its query's entry in the ledger."""

    FIRST = "no entry, and the batch is the query's first"
    UNKNOWN = "no entry, though the query has run batches before"
    OLDER = "the ledger is ahead of the batch"
    SAME = "the ledger's batch, all of it committed"
    SAME_PARTLY_LOST = "the ledger's batch, with transactions gone"
    SAME_LOST = "the ledger's batch, with all its transactions gone"
    NEXT = "the ledger is at the batch before it, as it should be"
    BEYOND = "the ledger is more than one batch behind"
    AFTER_LOSS = "the ledger is behind the batch, and rows of the batch before it are gone"


class Verdict(Enum):
    WRITE = "write"
    SKIP = "consume and write nothing"
    REPAIR = "write what is gone, prove the rest"
    OLD_CHECKPOINT = (
        "is behind what the ledger says is in Kafka: {entry} was committed. The checkpoint is an older copy, or "
        "another query used it. Going on would write rows twice. Restore the latest checkpoint, or start a new one "
        "under a new transactionalIdPrefix."
    )
    NO_LEDGER = (
        "has no entry in the ledger, though it is not the first. The ledger was lost, transactionalIdPrefix or "
        "commitLogTopic changed, or the query wrote at-least-once before. Nobody can tell whether this batch is in "
        "Kafka already. If it is not, or twice is acceptable this once, set ledgerStart=trust-checkpoint:{number}."
    )
    GAP = (
        "does not follow on what the ledger says: {entry} was the last that was committed exactly once. The query "
        "wrote the batches in between at-least-once, or the ledger was rolled back. Nobody can tell whether this "
        "batch is in Kafka already. If it is not, or twice is acceptable this once, set "
        "ledgerStart=trust-checkpoint:{number}."
    )
    OLD_VERSION = (
        "is smaller than the last one in the ledger: {entry} was committed. Whether this one ever was, the ledger does "
        "not say any more. Write under a larger txnVersion, or leave this write out if it is done."
    )
    LOST_BEFORE = (
        "cannot be written: rows of {entry} (tasks {tasks}) are gone from Kafka, and only a replay of that batch can "
        "bring them back. Restore the checkpoint as it was at that batch, or accept the loss with "
        "`spark-kafka-sink transactions abort --force`."
    )


_TRUSTING_THE_CHECKPOINT: Final = frozenset({Verdict.NO_LEDGER, Verdict.GAP})
_REFUSALS: Final = _TRUSTING_THE_CHECKPOINT | {Verdict.OLD_CHECKPOINT, Verdict.OLD_VERSION, Verdict.LOST_BEFORE}

VERDICTS: Final[Mapping[tuple[WriteKind, Comparison], Verdict]] = MappingProxyType(
    {
        (WriteKind.MICRO_BATCH, Comparison.FIRST): Verdict.WRITE,
        (WriteKind.MICRO_BATCH, Comparison.UNKNOWN): Verdict.NO_LEDGER,
        (WriteKind.MICRO_BATCH, Comparison.OLDER): Verdict.OLD_CHECKPOINT,
        (WriteKind.MICRO_BATCH, Comparison.SAME): Verdict.SKIP,
        (WriteKind.MICRO_BATCH, Comparison.SAME_PARTLY_LOST): Verdict.REPAIR,
        (WriteKind.MICRO_BATCH, Comparison.SAME_LOST): Verdict.WRITE,
        (WriteKind.MICRO_BATCH, Comparison.NEXT): Verdict.WRITE,
        (WriteKind.MICRO_BATCH, Comparison.BEYOND): Verdict.GAP,
        (WriteKind.MICRO_BATCH, Comparison.AFTER_LOSS): Verdict.LOST_BEFORE,
        (WriteKind.VERSION, Comparison.FIRST): Verdict.WRITE,
        (WriteKind.VERSION, Comparison.UNKNOWN): Verdict.WRITE,
        (WriteKind.VERSION, Comparison.OLDER): Verdict.OLD_VERSION,
        (WriteKind.VERSION, Comparison.SAME): Verdict.SKIP,
        (WriteKind.VERSION, Comparison.SAME_PARTLY_LOST): Verdict.REPAIR,
        (WriteKind.VERSION, Comparison.SAME_LOST): Verdict.WRITE,
        (WriteKind.VERSION, Comparison.NEXT): Verdict.WRITE,
        (WriteKind.VERSION, Comparison.BEYOND): Verdict.WRITE,
        (WriteKind.VERSION, Comparison.AFTER_LOSS): Verdict.LOST_BEFORE,
        (WriteKind.ONCE, Comparison.FIRST): Verdict.WRITE,
    }
)
"""What becomes of a batch. A job that nobody replays has a name of its own, so there is never an entry for it."""


def compare(write_id: WriteId, entry: Entry | None, lost: frozenset[int]) -> Comparison:
    """``lost``: the entry's tasks whose transactions are gone."""
    if entry is None:
        return Comparison.FIRST if write_id.number == 0 else Comparison.UNKNOWN
    if write_id.number < entry.number:
        return Comparison.OLDER
    if write_id.number > entry.number:
        if lost:
            return Comparison.AFTER_LOSS
        return Comparison.NEXT if write_id.number == entry.number + 1 else Comparison.BEYOND
    if not lost:
        return Comparison.SAME
    in_kafka = any(share.rows.count for task, share in enumerate(entry.tasks) if task not in lost)
    return Comparison.SAME_PARTLY_LOST if in_kafka else Comparison.SAME_LOST


def task_action(plan: WritePlan, write_id: WriteId, task: int) -> TaskAction:
    """What a task does with its rows; ``ExactlyOnceError`` before anything is written when none of it is safe."""
    for query, lost in plan.lost.items():
        if query != write_id.query and lost:
            raise LostRowsError(_refusal(plan, write_id, Verdict.LOST_BEFORE, query))
    entry = plan.entries.get(write_id.query)
    lost = plan.lost.get(write_id.query, frozenset())
    verdict = VERDICTS[write_id.kind, compare(write_id, entry, lost)]
    if verdict in _TRUSTING_THE_CHECKPOINT and plan.ledger_start == LedgerStart(
        RecoveryMode.CHECKPOINT, write_id.number
    ):
        verdict = Verdict.WRITE
    if verdict in _REFUSALS:
        kind = LostRowsError if verdict is Verdict.LOST_BEFORE else ExactlyOnceError
        raise kind(_refusal(plan, write_id, verdict, write_id.query))
    if verdict is not Verdict.REPAIR:
        return TaskAction.WRITE if verdict is Verdict.WRITE else TaskAction.SKIP
    return TaskAction.REWRITE if task in lost else TaskAction.VERIFY


def check_target(write_id: WriteId, entry: Entry | None) -> None:
    """A txnAppId writes to one target: the versions of another would count as its own. Raises ``ExactlyOnceError``."""
    if entry is None or None in (entry.target, write_id.target) or entry.target == write_id.target:
        return
    raise ExactlyOnceError(
        f"txnAppId {write_id.query} writes to {entry.target} (the last version is {entry.number}) and is now to write "
        f"to {write_id.target}: a version written to one would count as written to the other. Use one txnAppId for "
        f"each, such as txnAppId={write_id.query}-{(write_id.target and write_id.target.topic) or 'topics'}."
    )


def prove(plan: WritePlan, write_id: WriteId, task: int, rows: RowSum) -> None:
    """The replayed rows of a task are those that were decided; raises ``ReplayMismatchError``."""
    tasks = plan.entries[write_id.query].tasks
    if task >= len(tasks):
        raise ReplayMismatchError(_mismatch(plan, write_id, f"it had {len(tasks)} tasks, now there is a task {task}"))
    was = tasks[task].rows
    if was != rows:
        told = f"task {task} had {was.count} rows (checksum {was.checksum:016x}), now it has {rows.count}"
        raise ReplayMismatchError(_mismatch(plan, write_id, f"{told} ({rows.checksum:016x})"))


@dataclass(frozen=True, slots=True)
class CommitOrder:
    """What commit does: record ``entry``, then end what it names. None: there is nothing to commit.

    ``decide_by`` (epoch ms): no EndTxn of the intent is sent later. None: nothing can time out.
    """

    report: TaskReport
    entry: Entry | None
    decide_by: int | None = None


def decision_margin_ms(timeout_ms: int) -> int:
    """What is left of the oldest transaction's timeout for carrying out a decision. The last EndTxn of the intent that
    was sent in time may take effect until the driver's own transaction times out."""
    return max(timeout_ms // _MARGIN_SHARE, DRIVER_TIMEOUT_MS)


def commit_order(reports: Sequence[TaskReport], timeout_ms: int, now_ms: int) -> CommitOrder:
    """All tasks' reports → what to record. ``timeout_ms``: of their transactions; ``now_ms`` epoch.

    Raises ``ExactlyOnceError`` instead of an intent that cannot be carried out.
    """
    first = reports[0]
    actions = {report.action for report in reports}
    if actions == {TaskAction.SKIP}:
        _check_replay(reports)
        return CommitOrder(first, None)
    if len({(report.name, report.write_id, report.driver) for report in reports}) != 1 or TaskAction.SKIP in actions:
        raise ExactlyOnceError(
            f"The tasks of {first.write_id} (name {first.name}) were planned by different drivers: nothing is committed"
        )
    if first.tasks_before not in (0, len(reports)):
        raise ReplayMismatchError(
            f"{first.write_id} (name {first.name}) cannot be repaired: it had {first.tasks_before} tasks, its replay "
            f"has {len(reports)}. The source is not repeatable."
        )
    shares = tuple(report.share for report in reports)
    prepared = [report for report in reports if report.share.prepared is not None]
    state = EntryState.INTENT if prepared else EntryState.DONE
    write_id = first.write_id
    entry = Entry(
        query=write_id.query,
        number=write_id.number,
        state=state,
        tasks=shares,
        decided_at=now_ms,
        target=write_id.target,
        marker_partition=first.ledger.marker_partition,
        markers_before=max(report.markers_before for report in reports),
        once=write_id.kind is WriteKind.ONCE,
    )
    if not prepared:
        return CommitOrder(first, entry)
    oldest = min(report.began_at for report in prepared)
    decide_by = oldest + timeout_ms - decision_margin_ms(timeout_ms)
    if now_ms > decide_by:
        raise ExactlyOnceError(
            f"{first.write_id} (name {first.name}, {len(prepared)} prepared transactions) is not committed: its oldest "
            f"transaction is {(now_ms - oldest) / 1000:.0f} s old, and the broker ends it after "
            f"kafka.transaction.timeout.ms={timeout_ms}. Write less per batch, use more cores, or raise "
            "kafka.transaction.timeout.ms (and the broker's transaction.max.timeout.ms)."
        )
    return CommitOrder(first, entry, decide_by)


def _check_replay(reports: Sequence[TaskReport]) -> None:
    """A number that was committed is not yet the batch that was: a checkpoint one batch older plans it anew."""
    first = reports[0]
    rows = sum((report.share.rows for report in reports), RowSum())
    if first.decided is not None and first.decided != rows:
        was = first.decided
        raise ReplayMismatchError(
            f"{first.write_id} (name {first.name}) is committed with {was.count} rows (checksum {was.checksum:016x}), "
            f"but is now to be written with {rows.count} ({rows.checksum:016x}); nothing is written. Either the "
            "checkpoint is an older copy, and its next batch is another one under the same number: restore the latest. "
            "Or the rows are not repeatable (rand(), uuid(), a source that changes): then "
            f"ledgerStart=trust-ledger:{first.write_id.number} takes this batch, and no other, as committed."
        )


def done(entry: Entry) -> Entry:
    """The same entry, carried out: its transactions need no names any more."""
    shares = tuple(TaskShare(share.rows) for share in entry.tasks)
    return replace(entry, state=EntryState.DONE, tasks=shares)


def _refusal(plan: WritePlan, write_id: WriteId, verdict: Verdict, query: str) -> str:
    entry = plan.entries.get(query)
    tasks = ", ".join(map(str, sorted(plan.lost.get(query, ()))))
    about = "" if entry is None else f"batch {entry.number} of {query}"
    said = verdict.value.format(entry=about, tasks=tasks, number=write_id.number)
    return f"{write_id} (name {plan.name}, ledger {_place(plan)}) {said}"


def _mismatch(plan: WritePlan, write_id: WriteId, what: str) -> str:
    lost = ", ".join(map(str, sorted(plan.lost.get(write_id.query, ()))))
    return (
        f"{write_id} (name {plan.name}, ledger {_place(plan)}) lost the rows of task {lost} in Kafka and cannot be "
        f"repaired from its replay, which does not cut its rows as before: {what}. The source is not repeatable. The "
        "other tasks' rows are committed; rewrite the missing ones by hand, then accept the loss with "
        "`spark-kafka-sink transactions abort --force`."
    )


def _place(plan: WritePlan) -> str:
    return f"{plan.ledger.topic}-{plan.ledger.partition}"
