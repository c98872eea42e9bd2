"""The decision tables: what a process does, given the ledger. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from spark_kafka_sink.common.shell import option
from spark_kafka_sink.exactly_once.errors import ADVICE, ExactlyOnceError, LostRowsError, Progress, ReplayMismatchError
from spark_kafka_sink.exactly_once.values import (
    DRIVER_TIMEOUT_MS,
    Entry,
    EntryState,
    LedgerStart,
    RecoveryMode,
    RowChecksum,
    SchemaId,
    Target,
    TaskAction,
    TaskReport,
    TopicId,
    WriteId,
    WriteKind,
    WritePlan,
    list_numbers,
    shown_query,
)


class Comparison(Enum):
    """The result of comparing a batch with its query's entry in the ledger."""

    FIRST = "no entry, and the batch is the query's first"
    UNKNOWN = "no entry, though the query has run batches before"
    OLDER = "the ledger is ahead of the batch"
    SAME = "the ledger's batch, all of it committed"
    SAME_PARTLY_LOST = "the ledger's batch, with transactions lost"
    SAME_LOST = "the ledger's batch, of which no row is in Kafka: it had none, or all transactions are lost"
    NEXT = "the batch after the ledger's, as expected"
    BEYOND = "the ledger is more than one batch behind"
    AFTER_LOSS = "the ledger is behind the batch, and rows of the ledger's batch are lost"


class Verdict(Enum):
    """The verdict on a write. The value of a verdict that fails the write is the error's text."""

    WRITE = "write"
    SKIP = "consume and write nothing"
    REPAIR = "write the lost tasks again, verify the others"
    OLD_CHECKPOINT = (
        "is older than the last batch in the ledger: {entry} was committed. The checkpoint is an older copy, or "
        "another query used it. Continuing would write rows twice. Restore the latest checkpoint, or start a new "
        "checkpoint under a new transactionalIdPrefix."
    )
    NO_LEDGER = (
        "has no entry in the ledger, though it is not the first. The ledger was lost, transactionalIdPrefix or "
        "ledgerTopic changed (set it back), or the query wrote at-least-once before. This batch may be in Kafka "
        "already. If it is not, or twice is acceptable this once, set ledgerStart=trust-checkpoint:{number}."
    )
    GAP = (
        "does not follow the ledger: {entry} was the last that was committed exactly once. The query wrote the batches "
        "in between at-least-once, or the ledger was rolled back. This batch may be in Kafka already. If it is not, or "
        "twice is acceptable this once, set ledgerStart=trust-checkpoint:{number}."
    )
    OLD_VERSION = (
        "is smaller than the last one in the ledger: {entry} was committed. The ledger no longer knows whether this "
        "version was. If it was, drop this write. Otherwise use a larger txnVersion, or for a day that was left out, a "
        "txnAppId of its own. If the last version was mistyped, `{forget}` "
        "removes its entry, and any txnVersion is the first one again."
    )
    LOST_BEFORE = (
        "cannot be written: rows of {entry} (tasks {tasks}) are gone from Kafka, and only a replay of that batch can "
        "bring them back. Restore the checkpoint as it was at that batch, or accept the loss with "
        "ledgerStart=trust-ledger:{before}."
    )
    LOST_VERSION = (
        "cannot be written: rows of {entry} (tasks {tasks}) are gone from Kafka, and only the same write can bring "
        "them back. Run it again with txnVersion {before}, then this one, or accept the loss with "
        "ledgerStart=trust-ledger:{before}."
    )


_OVERRIDABLE: Final = frozenset({Verdict.NO_LEDGER, Verdict.GAP})
"""Errors that ledgerStart=trust-checkpoint and replaces turn into WRITE."""

_LOST: Final = frozenset({Verdict.LOST_BEFORE, Verdict.LOST_VERSION})
_ERRORS: Final = _OVERRIDABLE | {Verdict.OLD_CHECKPOINT, Verdict.OLD_VERSION, *_LOST}

_VERDICTS: Final[Mapping[Comparison, tuple[Verdict, Verdict]]] = MappingProxyType({
    Comparison.FIRST: (Verdict.WRITE, Verdict.WRITE),
    Comparison.UNKNOWN: (Verdict.NO_LEDGER, Verdict.WRITE),
    Comparison.OLDER: (Verdict.OLD_CHECKPOINT, Verdict.OLD_VERSION),
    Comparison.SAME: (Verdict.SKIP, Verdict.SKIP),
    Comparison.SAME_PARTLY_LOST: (Verdict.REPAIR, Verdict.REPAIR),
    Comparison.SAME_LOST: (Verdict.WRITE, Verdict.WRITE),
    Comparison.NEXT: (Verdict.WRITE, Verdict.WRITE),
    Comparison.BEYOND: (Verdict.GAP, Verdict.WRITE),
    Comparison.AFTER_LOSS: (Verdict.LOST_BEFORE, Verdict.LOST_VERSION),
})  # fmt: skip
"""Comparison → the verdict on a query's micro-batch, and the verdict on a batch write."""


def compare(write_id: WriteId, entry: Entry | None, lost: frozenset[int]) -> Comparison:
    """How a batch compares with its query's entry. ``lost`` are the entry's tasks whose rows are lost."""
    if entry is None:
        return Comparison.FIRST if write_id.number == 0 else Comparison.UNKNOWN
    if write_id.number < entry.number:
        return Comparison.OLDER
    if write_id.number > entry.number:
        if lost:
            return Comparison.AFTER_LOSS
        return Comparison.NEXT if write_id.number == entry.number + 1 else Comparison.BEYOND
    if not entry.has_rows_besides(lost):
        return Comparison.SAME_LOST
    return Comparison.SAME_PARTLY_LOST if lost else Comparison.SAME


def task_action(plan: WritePlan, write_id: WriteId, task: int) -> TaskAction:
    """The task's action. Raises ``ExactlyOnceError`` before anything is written if the batch must not be written."""
    check_owner(plan.run.name, write_id.query, plan.entries, plan.ledger_start, plan.query_name)
    for query, lost in plan.lost.items():
        if query != write_id.query and lost:
            raise LostRowsError(_error_text(plan, write_id, Verdict.LOST_BEFORE, query))
    lost, entry = plan.lost.get(write_id.query, frozenset()), plan.entries.get(write_id.query)
    accepted = plan.ledger_start.trusts(RecoveryMode.LEDGER, write_id.number)
    if accepted and entry is not None and entry.number == write_id.number:
        return TaskAction.SKIP
    verdict = _VERDICTS[compare(write_id, entry, lost)][write_id.kind is WriteKind.VERSION]
    last = last_entry(plan.entries)
    replaces = last is not None and last.query != write_id.query
    if verdict in _OVERRIDABLE and (replaces or plan.ledger_start.trusts(RecoveryMode.CHECKPOINT, write_id.number)):
        verdict = Verdict.WRITE
    if verdict in _ERRORS:
        error = LostRowsError if verdict in _LOST else ExactlyOnceError
        raise error(_error_text(plan, write_id, verdict, write_id.query))
    if verdict is Verdict.REPAIR:
        return TaskAction.REWRITE if task in lost else TaskAction.VERIFY
    return TaskAction.WRITE if verdict is Verdict.WRITE else TaskAction.SKIP


_ENTRY_BYTES_PER_TASK: Final = 25
"""The bytes of a task in a compressed intent: 22, with a margin."""


def check_size(plan: WritePlan, write_id: WriteId, task: int, servers: str) -> None:
    """Raises ``ExactlyOnceError`` for a task that no intent has room for, because the one record that decides a batch
    names each task. A task checks this itself, because Spark does not say earlier how many tasks there are.
    ``servers``: the options that Kafka's tools need to connect, for the error's text."""
    limit = plan.max_entry_bytes
    if limit is None or task * _ENTRY_BYTES_PER_TASK < limit:
        return
    topic = plan.run.ledger.topic
    raise ExactlyOnceError(
        f"{_write(plan, write_id)} has a task {task}. One record of the ledger decides a batch, and with "
        f"max.message.bytes={limit} of ledgerTopic {topic} it names up to {limit // _ENTRY_BYTES_PER_TASK} tasks. "
        "Nothing is committed. Write with fewer partitions (coalesce), or raise the limit: kafka-configs.sh "
        f"{servers} --alter --entity-type topics {option('--entity-name', topic)} --add-config "
        f"max.message.bytes={max(2 * limit, 8 << 20)}"
    )


_NAMED_BY: Final = MappingProxyType({WriteKind.MICRO_BATCH: "transactionalIdPrefix", WriteKind.VERSION: "txnAppId"})


def check_kind(name: str, kind: WriteKind, entries: Mapping[str, Entry], forget: str) -> None:
    """Raises ``ExactlyOnceError`` if the name has an entry of the other kind of write. ``forget``: the command that
    removes this entry."""
    for entry in entries.values():
        if entry.kind is not kind:
            raise ExactlyOnceError(
                f"The name {name} is that of a {entry.kind.value} in the ledger ({entry}), and this is a {kind.value}: "
                f"give this one another name ({_NAMED_BY[kind]}), or, if nothing writes under the other one any more, "
                f"remove its entry: {forget}"
            )


def check_owner(
    name: str, query: str, entries: Mapping[str, Entry], ledger_start: LedgerStart, query_name: str = ""
) -> int:
    """The turn with which the query writes under the name. Raises ``ExactlyOnceError`` if the name belongs to another
    query, whose entry is the last one, and which this query does not replace."""
    turn, last = entries[query].turn if query in entries else 0, last_entry(entries)
    if last is None or last.query == query:
        return max(turn, 1)
    if ledger_start == LedgerStart(RecoveryMode.HAND_OVER, replaced=last.turn_name):
        return turn + 1
    time = f"{datetime.fromtimestamp(last.decided_at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    raise ExactlyOnceError(
        f"Query {shown_query(query, query_name)} is refused, because the name {name} belongs to query "
        f"{shown_query(last.query, last.query_name)}, whose last batch, {last.number}, was decided at {time}. Under "
        "one name, two queries would fence each other, and one with a new checkpoint would write rows again. If both "
        "are to run, give this one a transactionalIdPrefix of its own. If this one takes the place of the other one, "
        f"set ledgerStart=replaces:{last.turn_name}, which may stay set: this one then writes from where its "
        "checkpoint is, whatever is in Kafka, and the other one is refused from then on."
    )


def last_entry(entries: Mapping[str, Entry]) -> Entry | None:
    """The name's last entry in the ledger."""
    return next(iter([*entries.values()][-1:]), None)


def check_target(write_id: WriteId, entry: Entry | None) -> None:
    """Raises ``ExactlyOnceError`` if a txnAppId changes its target: versions are counted for one target."""
    if entry is None or not changes_target(entry, write_id.target):
        return
    raise ExactlyOnceError(
        f"txnAppId {write_id.query} writes to {entry.target} (the last version is {entry.number}) and is now to write "
        f"to {write_id.target}: a version written to one would count as written to the other. Use one txnAppId for "
        f"each, such as txnAppId={write_id.query}-{(write_id.target and write_id.target.topic) or 'topics'}."
    )


def changes_target(entry: Entry, target: Target | None) -> bool:
    """Whether the next write goes elsewhere than the entry's. False if one of the two targets is not known."""
    return None not in (entry.target, target) and entry.target != target


def check_ledger_of_foreach_batch(plan: WritePlan, write_id: WriteId, batch: int) -> None:
    """Raises ``ExactlyOnceError`` if the ledger lacks the entry that the txnAppId's write in an earlier micro-batch of
    the same foreachBatch has left. ``batch``: the micro-batch's number.

    A foreachBatch function that skipped its writes until now cannot be told from a lost ledger, because it has left
    nothing in Kafka, not even a ledger.
    """
    trusted = plan.ledger_start.trusts(RecoveryMode.CHECKPOINT, write_id.number)
    if write_id.kind is not WriteKind.VERSION or batch == 0 or write_id.query in plan.entries or trusted:
        return
    raise ExactlyOnceError(
        f"{_write(plan, write_id)} has no entry in the ledger, though micro-batch {batch} of its foreachBatch is not "
        "the first. If the ledger was lost, or ledgerTopic or txnAppId changed, this version may be in Kafka already. "
        "If the function has skipped this write until now (`if batch.isEmpty(): return`, or a write only if there are "
        "bad rows), it is not: take the condition out, because a micro-batch without rows must be written, too. To "
        f"write this version, once more if it is in Kafka, set ledgerStart=trust-checkpoint:{write_id.number}."
    )


def replayed_schemas(plan: WritePlan, write_id: WriteId) -> tuple[SchemaId, ...]:
    """The schemas that a replay of a decided batch is encoded with. Empty if the replay's rows are not compared."""
    entry = plan.entries.get(write_id.query)
    trusted = plan.ledger_start.trusts(RecoveryMode.LEDGER, write_id.number)
    return () if entry is None or entry.number != write_id.number or trusted else entry.schemas


def prove(plan: WritePlan, write_id: WriteId, task: int, rows: RowChecksum) -> None:
    """Raises ``ReplayMismatchError`` unless a replayed task has the rows that were decided."""
    tasks = plan.entries[write_id.query].tasks
    if task >= len(tasks):
        mismatch = f"it had {len(tasks)} tasks, but now there is a task {task}"
    elif tasks[task].rows != rows:
        mismatch = f"task {task} had {tasks[task].rows}, but now it has {rows}"
    else:
        return
    raise ReplayMismatchError(
        f"{_write(plan, write_id)} lost the rows of task {list_numbers(plan.lost.get(write_id.query, ()))} in Kafka "
        f"and cannot be repaired from its replay, which distributes its rows differently: {mismatch}. "
        f"{_NOT_REPEATABLE.format(number=write_id.number)}"
    )


_NOT_REPEATABLE: Final = (
    "The source is not repeatable. The other tasks' rows are committed: write the missing rows yourself, then accept "
    "the loss with ledgerStart=trust-ledger:{number}."
)


@dataclass(frozen=True, slots=True)
class CommitOrder:
    """The order for commit: record ``entry`` (None: nothing to commit), then commit the transactions that it names. No
    EndTxn of the intent is sent after ``decide_by`` (epoch ms; None: nothing can time out).
    """

    entry: Entry | None
    decide_by: int | None = None


def decision_margin_ms(timeout_ms: int) -> int:
    """The time that the oldest transaction must have left when the intent's last EndTxn is sent. This EndTxn may take
    effect until the driver's own transaction times out."""
    return max(timeout_ms // 10, DRIVER_TIMEOUT_MS)


def commit_order(reports: Sequence[TaskReport], timeout_ms: int, now_ms: int) -> CommitOrder:
    """The order for these tasks. ``reports``: the reports of all tasks. ``timeout_ms``: their transactions' timeout.
    ``now_ms``: the current time (epoch ms).

    Raises ``ExactlyOnceError`` if an intent could not be carried out.
    """
    first = reports[0]
    actions = {report.action for report in reports}
    if actions == {TaskAction.SKIP}:
        _check_replay(reports)
        return CommitOrder(None)
    if len({(report.run, report.write_id) for report in reports}) != 1 or TaskAction.SKIP in actions:
        raise ExactlyOnceError(
            f"The tasks of {first.write} were planned by different drivers, so nothing is committed. {_again(first)}"
        )
    if first.tasks_before not in (0, len(reports)):
        raise ReplayMismatchError(
            f"{first.write} cannot be repaired: it had {first.tasks_before} tasks, but its replay has {len(reports)}. "
            f"{_NOT_REPEATABLE.format(number=first.write_id.number)}"
        )
    prepared = [report for report in reports if report.outcome.prepared is not None]
    entry = Entry(
        query=first.write_id.query,
        number=first.write_id.number,
        state=EntryState.INTENT if prepared else EntryState.DONE,
        tasks=tuple(report.outcome for report in reports),
        decided_at=now_ms,
        kind=first.write_id.kind,
        target=first.write_id.target,
        marker_partition=first.run.ledger.marker_partition,
        old_marker_count=max(report.old_marker_count for report in reports),
        schemas=_schemas(reports),
        topics=_topics(reports),
        ledger_id=next((report.ledger_id for report in prepared if report.ledger_id is not None), None),
        turn=first.turn,
    )
    if not prepared:
        return CommitOrder(entry)
    oldest = min(report.began_at for report in prepared)
    decide_by = oldest + timeout_ms - decision_margin_ms(timeout_ms)
    if now_ms > decide_by:
        raise ExactlyOnceError(
            f"{first.write} with {len(prepared)} prepared transactions is not committed: its oldest transaction is "
            f"{(now_ms - oldest) / 1000:.0f} s old, and the broker ends it after "
            f"kafka.transaction.timeout.ms={timeout_ms}. Write less per batch, use more cores, or raise "
            "kafka.transaction.timeout.ms (and the broker's transaction.max.timeout.ms). "
            f"{_again(first)}"
        )
    return CommitOrder(entry, decide_by)


def _topics(reports: Sequence[TaskReport]) -> tuple[TopicId, ...]:
    """The topics of all tasks and, in a repair, of the rows that are already committed."""
    written = {topic for report in reports for topic in report.topics}
    names = {report.name for report in written}
    return tuple(sorted(written | {topic for topic in reports[0].decided_topics if topic.name not in names}))


def _schemas(reports: Sequence[TaskReport]) -> tuple[SchemaId, ...]:
    """The schemas of all tasks.

    Raises ``ExactlyOnceError`` if a subject has two schemas, because a replay could not know which row was written with
    which schema.
    """
    schemas = sorted({schema for report in reports for schema in report.schemas})
    for one, other in pairwise(schemas):
        if one[:2] == other[:2]:
            raise ExactlyOnceError(
                f"{reports[0].write} is not committed: its tasks asked the registry for subject {one.subject} before "
                f"and after it changed, and have schemas {one.id} and {other.id}. {_again(reports[0])}"
            )
    return tuple(schemas)


_SAME_NUMBER: Final[Mapping[WriteKind, str]] = MappingProxyType({
    WriteKind.MICRO_BATCH: "Either the checkpoint is an older copy, and its next batch is another one under the "
    "same number: restore the latest.",
    WriteKind.VERSION: "Either two writes have one txnAppId and txnVersion, and this one's rows are not in Kafka: "
    "give each write a txnAppId of its own, and each run a txnVersion that is larger than the last.",
})  # fmt: skip
"""An explanation of how other rows come to have the number of a committed batch."""


def _check_replay(reports: Sequence[TaskReport]) -> None:
    """Raises ``ReplayMismatchError`` if the tasks' rows are not the decided ones. The batch number alone does not prove
    a replay, because an older checkpoint gives the number to a new batch."""
    first = reports[0]
    rows = sum((report.outcome.rows for report in reports), RowChecksum())
    if first.decided not in (None, rows):
        raise ReplayMismatchError(
            f"{first.write} is committed with {first.decided}, but is now to be written with {rows}; nothing is "
            f"written. {_SAME_NUMBER[first.write_id.kind]} Or the rows are not repeatable (rand(), uuid(), a source "
            f"that changes): then ledgerStart=trust-ledger:{first.write_id.number} accepts this batch, and no other, "
            "as committed."
        )


def _again(report: TaskReport) -> str:
    """The advice for a write that is not decided."""
    return ADVICE[report.write_id.kind, Progress.NOT_DECIDED]


def _error_text(plan: WritePlan, write_id: WriteId, verdict: Verdict, query: str) -> str:
    entry, tasks = plan.entries.get(query), list_numbers(plan.lost.get(query, ()))
    known = {"before": entry and entry.number, "forget": plan.forget}
    text = verdict.value.format(entry=entry, tasks=tasks, number=write_id.number, **known)
    return f"{_write(plan, write_id)} {text}"


def _write(plan: WritePlan, write_id: WriteId) -> str:
    return f"{write_id} (name {plan.run.name}, ledgerTopic {plan.run.ledger.topic})"
