"""Values that cross processes: frozen and picklable."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Self
from uuid import UUID

from spark_kafka_sink.producer.transaction_requests import PreparedTransaction, TransactionalIdentity

DRIVER_TIMEOUT_MS: Final = 10_000
"""Transaction timeout of the driver's id, whose transactions hold a few records and are ended at once."""

CHECKSUM: Final = 2
"""The kind of checksum that this release computes (``checksum.py``). An entry without a kind has the first one."""

APPLICATION: Final = "txn-"
"""Prefix of the name of a txnAppId (``SinkOptions.parse`` adds it)."""


class WriteKind(Enum):
    """How a write is numbered, and whether it is replayed."""

    MICRO_BATCH = "a micro-batch: its query has run every smaller number"
    VERSION = "txnVersion of txnAppId: numbers grow, with gaps; one below the last is refused"


class Repeat(Enum):
    """How a failed write is run again."""

    STREAM = "stream"
    FOREACH_BATCH = "`foreachBatch` with `txnAppId`"
    VERSION = "batch job with `txnAppId`"


class TaskAction(Enum):
    """What a task does with its rows."""

    WRITE = "write them and prepare"
    SKIP = "consume them: the batch is committed"
    VERIFY = "consume them, and prove that they are the committed rows"
    REWRITE = "write them again, and prove that they are the lost rows"


class RecoveryMode(Enum):
    """Which of checkpoint and ledger is right when they disagree."""

    NEITHER = "strict"
    CHECKPOINT = "trust-checkpoint"
    LEDGER = "trust-ledger"


class LedgerStart(NamedTuple):
    """The option ``ledgerStart``, which applies to batch (or txnVersion) ``number`` only."""

    source: RecoveryMode = RecoveryMode.NEITHER
    number: int = -1

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses ``strict``, ``trust-checkpoint:N`` or ``trust-ledger:N``."""
        source, _, number = text.partition(":")
        return cls(RecoveryMode(source), int(number or -1))

    def trusts(self, source: RecoveryMode, number: int) -> bool:
        """Whether the option says that ``source`` is right about batch (or txnVersion) ``number``."""
        return self == LedgerStart(source, number)


STRICT: Final = LedgerStart()


class Target(NamedTuple):
    """The option ``topic``; None when each row names its topic."""

    topic: str | None

    def __str__(self) -> str:
        return "the topics that its rows name" if self.topic is None else f"topic {self.topic}"


class WriteId(NamedTuple):
    """A write that is committed as a whole: a micro-batch of a query, or a version of an application.

    ``target``: of a txnAppId, which writes to one target only; else None.
    """

    query: str
    number: int
    kind: WriteKind
    target: Target | None = None

    def __str__(self) -> str:
        return {
            WriteKind.MICRO_BATCH: f"micro-batch {self.number} of query {self.query}",
            WriteKind.VERSION: f"txnVersion {self.number} of txnAppId {self.query}",
        }[self.kind]


@dataclass(frozen=True, slots=True)
class RowSum:
    """Number of rows, and their order-independent checksum (mod 2^64)."""

    count: int = 0
    checksum: int = 0

    def __add__(self, other: RowSum) -> RowSum:
        return RowSum(self.count + other.count, (self.checksum + other.checksum) % (1 << 64))

    def __str__(self) -> str:
        return f"{self.count} rows (checksum {self.checksum:016x})"


class SchemaId(NamedTuple):
    """The schema that rows of a subject were written with. ``side``: key or value."""

    side: str
    subject: str
    id: int


class TopicId(NamedTuple):
    """A topic that rows, dead letters or receipts were written to. A topic that is created again has another id."""

    name: str
    id: UUID


@dataclass(frozen=True, slots=True)
class TaskShare:
    """One task's rows, and the transaction that holds them.

    ``prepared`` None: the task had no rows, or they are committed. ``marker``: offset of the transaction's marker.
    """

    rows: RowSum
    prepared: PreparedTransaction | None = None
    marker: int | None = None


class EntryState(Enum):
    INTENT = "intent"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Entry:
    """The ledger's entry of a query: its last decided batch. DONE: all its transactions are known to be committed.

    ``target`` None: not recorded (streams). ``marker_partition``: of the tasks' markers, which an entry that is read as
    DONE does not have. ``markers_before``: number of tasks that may have left a marker in earlier batches.
    ``schemas``: of a registry; a replay encodes its rows with them. ``topics``: those that the batch was written to,
    without the ledger's. ``query_name``: of a streaming query, printable; "" if it has none.
    ``ledger_id``: the topic id of the ledger that has the markers, of an intent; None from brokers without topic ids.
    ``checksum``: the kind that its tasks' rows have.
    """

    query: str
    number: int
    state: EntryState
    tasks: tuple[TaskShare, ...]
    decided_at: int = 0
    target: Target | None = None
    marker_partition: int | None = field(default=None, compare=False)
    markers_before: int = field(default=0, compare=False)
    schemas: tuple[SchemaId, ...] = ()
    topics: tuple[TopicId, ...] = ()
    query_name: str = ""
    ledger_id: UUID | None = field(default=None, compare=False)
    checksum: int = CHECKSUM

    def __str__(self) -> str:
        return f"batch {self.number} of {self.query}"

    @property
    def repeat(self) -> Repeat:
        return Repeat.STREAM if self.target is None else Repeat.VERSION

    @property
    def total(self) -> RowSum:
        """The sum over all tasks, however the rows are divided into tasks."""
        return sum((share.rows for share in self.tasks), RowSum())

    def has_rows_besides(self, lost: Collection[int]) -> bool:
        """Whether tasks other than these have rows."""
        return any(share.rows.count for task, share in enumerate(self.tasks) if task not in lost)

    @property
    def prepared(self) -> dict[int, PreparedTransaction]:
        """Task → its transaction."""
        return {task: share.prepared for task, share in enumerate(self.tasks) if share.prepared is not None}


@dataclass(frozen=True, slots=True)
class Marker:
    """A record in a task's transaction: committed exactly when the task's rows are."""

    query: str
    number: int
    task: int
    rows: RowSum


@dataclass(frozen=True, slots=True)
class LedgerPartitions:
    """The ledger's topic, and the partitions in it that hold a name's entries and markers."""

    topic: str
    partition: int
    marker_partition: int


@dataclass(frozen=True, slots=True)
class DriverIdentity:
    """``<name>-driver`` as InitProducerId returned it, with its next sequence numbers in the partitions of the entries
    and of the markers.

    ``end_unanswered``: an EndTxn of this epoch never had a response. Arriving late, it would end the next transaction
    of the epoch, which therefore needs another one.
    """

    identity: TransactionalIdentity
    sequence: int = 0
    marker_sequence: int = 0
    end_unanswered: bool = False


class OpenTransaction(NamedTuple):
    """A task's transaction as its coordinator describes it. ``started_at``: epoch ms, -1 if unknown. ``topics``: each
    with the partitions that are part of the transaction, without those that this principal may not describe.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    started_at: int = -1
    topics: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def key(self) -> tuple[str, int, int]:
        """Identifies the transaction; equal to the ``key`` of a ``TransactionalIdentity`` of the same transaction."""
        return self.transactional_id, self.producer_id, self.epoch


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The result of planning; tasks get it, and pass on to commit what it needs.

    ``prefix``: of the tasks' transactional ids. ``entries``: query → its last entry under this name. ``lost``: query →
    the tasks of that entry whose rows are lost. ``write_id`` None: only the tasks know it (streaming).
    ``max_entry_bytes``: the largest record that the ledger takes; None: not known. ``open_before``: without entries,
    the tasks' transactions that were open before this run, which another ledger may have decided, so that abort must
    spare them; None: not known, so that abort ends only what the tasks report.
    """

    name: str
    prefix: str
    ledger: LedgerPartitions
    driver: DriverIdentity
    entries: Mapping[str, Entry] = field(default_factory=dict)
    lost: Mapping[str, frozenset[int]] = field(default_factory=dict)
    write_id: WriteId | None = None
    ledger_start: LedgerStart = STRICT
    max_entry_bytes: int | None = None
    open_before: tuple[OpenTransaction, ...] | None = ()


@dataclass(frozen=True, slots=True)
class TaskReport:
    """One task's result.

    ``name`` and ``prefix``: as in ``WritePlan``. ``began_at``: epoch ms on the executor's clock, before its transaction
    began. ``tasks_before``: number of tasks of the batch when it was decided, if it is being repaired; else 0.
    ``decided``: all rows of the committed batch, which a skipped replay must have too; None: not compared.
    ``markers_before``: as in ``Entry``. ``topics``: those that this task wrote to. ``decided_topics``: those of the
    decided batch that this is a replay of; empty: not compared. ``schemas``: as in ``Entry``. ``other_queries``: the
    last batches of other queries under the name, if this is a query's first batch. ``in_foreach_batch``: False
    if Spark does not say so. ``open_before``: as in ``WritePlan``, because the abort of a stream has no plan.
    ``ledger_id``: as in ``Entry``.
    """

    name: str
    prefix: str
    ledger: LedgerPartitions
    driver: DriverIdentity
    write_id: WriteId
    action: TaskAction
    share: TaskShare
    began_at: int = 0
    tasks_before: int = 0
    decided: RowSum | None = None
    markers_before: int = 0
    topics: tuple[TopicId, ...] = ()
    schemas: tuple[SchemaId, ...] = ()
    decided_topics: tuple[TopicId, ...] = ()
    other_queries: tuple[str, ...] = ()
    in_foreach_batch: bool = False
    open_before: tuple[OpenTransaction, ...] | None = ()
    ledger_id: UUID | None = None

    @property
    def write(self) -> str:
        """The write, for error messages."""
        return f"{self.write_id} (name {self.name})"

    @property
    def repeat(self) -> Repeat:
        if self.write_id.kind is WriteKind.MICRO_BATCH:
            return Repeat.STREAM
        return Repeat.FOREACH_BATCH if self.in_foreach_batch else Repeat.VERSION


class TaskAttempt(NamedTuple):
    """``task``: Spark's partition id. ``retried``: an earlier attempt of the task was given up."""

    write_id: WriteId
    task: int
    retried: bool = False


def driver_id(name: str) -> str:
    return f"{name}-driver"


def task_id(prefix: str, task: int) -> str:
    """The transactional id of a task."""
    return f"{prefix}-{task}"


def listed(tasks: Iterable[int]) -> str:
    """Task numbers in an error message, such as ``0, 2-5``."""
    runs: list[list[int]] = []
    for task in sorted(tasks):
        if runs and task == runs[-1][-1] + 1:
            runs[-1].append(task)
        else:
            runs.append([task])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)
