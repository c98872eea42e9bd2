"""What crosses processes: plain frozen values, picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Self
from uuid import UUID

from spark_kafka_sink.transactions.values import PreparedTransaction, TransactionalIdentity

DRIVER_TIMEOUT_MS: Final = 10_000
"""Transaction timeout of the driver's id: its transactions hold one record and are ended at once."""


APPLICATION: Final = "txn-"
"""What the name of a txnAppId begins with (``SinkOptions.parse`` puts it there)."""


class WriteKind(Enum):
    """What a number means to whoever replays it."""

    MICRO_BATCH = "a micro-batch: its query has run every number before it"
    VERSION = "txnVersion of txnAppId: numbers grow, with gaps; an older one was committed and is skipped"
    ONCE = "a batch job that nobody replays"


class TaskAction(Enum):
    """What a task does with its rows."""

    WRITE = "write them and prepare"
    SKIP = "consume them: the batch is committed"
    VERIFY = "consume them, and prove that they are the rows that were committed"
    REWRITE = "write them again, and prove that they are the rows that were lost"


class RecoveryMode(Enum):
    """Which of two is believed when they do not agree."""

    NEITHER = "strict"
    CHECKPOINT = "trust-checkpoint"
    LEDGER = "trust-ledger"


class LedgerStart(NamedTuple):
    """The option ``ledgerStart``: it holds for batch (or txnVersion) ``number`` alone."""

    source: RecoveryMode = RecoveryMode.NEITHER
    number: int = -1

    @classmethod
    def parse(cls, text: str) -> Self:
        """Of ``strict``, ``trust-checkpoint:N`` or ``trust-ledger:N``."""
        source, _, number = text.partition(":")
        return cls(RecoveryMode(source), int(number or -1))


STRICT: Final = LedgerStart()


class Target(NamedTuple):
    """Where the rows of a write go: the option ``topic``, None when each row names its own."""

    topic: str | None

    def __str__(self) -> str:
        return "the topics that its rows name" if self.topic is None else f"topic {self.topic}"


class WriteId(NamedTuple):
    """What is committed as a whole: micro-batch ``number`` of the query, version of the application, or one job.

    ``target``: of a txnAppId, which writes to one alone; else None.
    """

    query: str
    number: int
    kind: WriteKind
    target: Target | None = None

    def __str__(self) -> str:
        return {
            WriteKind.MICRO_BATCH: f"micro-batch {self.number} of query {self.query}",
            WriteKind.VERSION: f"txnVersion {self.number} of txnAppId {self.query}",
            WriteKind.ONCE: f"batch job {self.query}",
        }[self.kind]


@dataclass(frozen=True, slots=True)
class RowSum:
    """How many rows, and their order-independent checksum (mod 2^64)."""

    count: int = 0
    checksum: int = 0

    def __add__(self, other: RowSum) -> RowSum:
        return RowSum(self.count + other.count, (self.checksum + other.checksum) % (1 << 64))


@dataclass(frozen=True, slots=True)
class TaskShare:
    """One task's part of a batch: its rows, and the transaction that holds them.

    ``prepared`` None: there is nothing to end, because the task had no rows or they are committed already. ``marker``:
    the offset of the transaction's marker; None where version 1 of the ledger's format had none.
    """

    rows: RowSum
    prepared: PreparedTransaction | None = None
    marker: int | None = None


class EntryState(Enum):
    INTENT = "intent"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Entry:
    """What the ledger says of a query: the last batch that was decided, and whether all of it is known to be ended.

    ``target`` None: not recorded, as for a stream. ``marker_partition``: where the tasks' markers are (None in version
    1: in the entry's). ``markers_before``: how many tasks may have left one in batches before. ``once``: of a plain
    batch job, which leaves nothing in the ledger once it is done.
    """

    query: str
    number: int
    state: EntryState
    tasks: tuple[TaskShare, ...]
    decided_at: int = 0
    target: Target | None = None
    marker_partition: int | None = field(default=None, compare=False)
    markers_before: int = field(default=0, compare=False)
    once: bool = False

    @property
    def total(self) -> RowSum:
        """Of all tasks: the same however the rows are cut into tasks."""
        return sum((share.rows for share in self.tasks), RowSum())


@dataclass(frozen=True, slots=True)
class Marker:
    """A record in a task's own transaction: visible exactly when the task's rows are."""

    query: str
    number: int
    task: int
    rows: RowSum


@dataclass(frozen=True, slots=True)
class LedgerPartitions:
    """Where the ledger of a name is: a topic, its partition with the entries, and the one with the markers."""

    topic: str
    partition: int
    marker_partition: int


@dataclass(frozen=True, slots=True)
class DriverIdentity:
    """``<name>-driver`` as initialised, and the sequence numbers of its next batches, in the partition of the entries
    and in that of the markers."""

    identity: TransactionalIdentity
    sequence: int = 0
    marker_sequence: int = 0


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What planning hands to the tasks, and through their messages to commit.

    ``entries``: query → its last entry under this name. ``lost``: query → the tasks of that entry whose transactions
    are gone. ``write_id`` is None where only the tasks know it (streaming). ``driver`` is passed on to
    commit. ``prefix``: of the tasks' transactional ids.
    """

    name: str
    prefix: str
    ledger: LedgerPartitions
    driver: DriverIdentity
    entries: Mapping[str, Entry] = field(default_factory=dict)
    lost: Mapping[str, frozenset[int]] = field(default_factory=dict)
    write_id: WriteId | None = None
    ledger_start: LedgerStart = STRICT


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one task of an exactly-once write did: ``action`` as decided for its batch, ``share`` what came of it.

    ``began_at`` (epoch ms, the executor's clock) is when its transaction was about to be opened. ``tasks_before``: of a
    batch that is being repaired, how many tasks it had when it was decided; else 0. ``decided``: of a batch that is
    skipped, all rows it had then, which its replay must have too; None where nobody asks. ``markers_before``: as in
    ``Entry``. ``topics``: what rows were written to, and its id.
    """

    name: str
    ledger: LedgerPartitions
    driver: DriverIdentity
    write_id: WriteId
    action: TaskAction
    share: TaskShare
    began_at: int = 0
    tasks_before: int = 0
    decided: RowSum | None = None
    markers_before: int = 0
    topics: tuple[tuple[str, UUID], ...] = ()


class TaskAttempt(NamedTuple):
    """``task``: Spark's partition id; ``attempt``: a number that no other attempt of the application has."""

    write_id: WriteId
    task: int
    attempt: int


def driver_id(name: str) -> str:
    return f"{name}-driver"


def task_id(prefix: str, task: int, attempt: int | None = None) -> str:
    """The transactional id of a task; ``task`` is Spark's partition id.

    With ``attempt``, of one attempt alone: where nobody replays, an attempt that wakes late must not take the id of
    another whose rows are decided.
    """
    return f"{prefix}-{task}" if attempt is None else f"{prefix}-{task}.{attempt}"
