"""Values that cross processes: frozen and picklable."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, NamedTuple, Self
from uuid import UUID

from spark_kafka_sink.common.model import RegistryId
from spark_kafka_sink.producer.transaction_requests import PreparedTransaction, TransactionalIdentity

_DRIVER: Final = "-driver"
_TASK: Final = re.compile(r"(?P<name>.+)-(?:0|[1-9][0-9]{0,9})")

DRIVER_TIMEOUT_MS: Final = 10_000
"""Transaction timeout of the driver's id, whose transactions hold a few records and are ended at once."""


class WriteKind(Enum):
    """The kind of write that a name belongs to, which determines how its writes are numbered. Values are part of the
    ledger's format."""

    MICRO_BATCH = "query"
    """A streaming query, whose micro-batches have every number, one after the other."""
    VERSION = "batch write"
    """An application (txnAppId), whose txnVersion grows with gaps; a version below the last one is refused."""


class TaskAction(Enum):
    """The ways in which a task treats its rows."""

    WRITE = "write them and prepare"
    SKIP = "consume them: the batch is committed"
    VERIFY = "consume them, and prove that they are the committed rows"
    REWRITE = "write them again, and prove that they are the lost rows"


class RecoveryMode(Enum):
    """The side to trust when checkpoint and ledger disagree."""

    NEITHER = "strict"
    CHECKPOINT = "trust-checkpoint"
    LEDGER = "trust-ledger"
    HAND_OVER = "replaces"


class LedgerStart(NamedTuple):
    """The option ``ledgerStart``. The option applies to batch (or txnVersion) ``number`` only, or ends the turn
    ``replaced`` of another query (``Entry.turn_name``)."""

    source: RecoveryMode = RecoveryMode.NEITHER
    number: int = -1
    replaced: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses ``strict``, ``trust-checkpoint:N``, ``trust-ledger:N`` or ``replaces:QUERY``."""
        word, _, named = text.partition(":")
        source = RecoveryMode(word.lower())
        return cls(source, replaced=named) if source is RecoveryMode.HAND_OVER else cls(source, int(named or -1))

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

    ``target``: the topics written to (None: not known). A txnAppId writes to one target only, a query may change its
    target.
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
class RowChecksum:
    """Number of rows, and their order-independent checksum (mod 2^64)."""

    count: int = 0
    checksum: int = 0

    def __add__(self, other: RowChecksum) -> RowChecksum:
        return RowChecksum(self.count + other.count, (self.checksum + other.checksum) % (1 << 64))

    def __str__(self) -> str:
        return f"{self.count} rows (checksum {self.checksum:016x})"


class SchemaId(NamedTuple):
    """The schema that rows of a subject were written with. ``side``: key or value."""

    side: str
    subject: str
    id: RegistryId


class TopicId(NamedTuple):
    """A topic that rows, dead letters or receipts were written to. A topic that is created again has another id."""

    name: str
    id: UUID


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """One task's rows, and the transaction that holds them.

    ``prepared``: the open transaction; None if the task had no rows, or they are committed. ``marker``: the offset of
    the transaction's marker.
    """

    rows: RowChecksum
    prepared: PreparedTransaction | None = None
    marker: int | None = None


class EntryState(Enum):
    """The progress of a decided batch. Callers ask ``Entry`` instead of comparing states. Values are part of the
    ledger's format."""

    INTENT = "intent"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Entry:
    """The ledger's entry of a query: its last decided batch."""

    query: str
    number: int
    state: EntryState
    """The batch's progress. DONE: all its transactions are known to be committed."""
    tasks: tuple[TaskOutcome, ...]
    decided_at: int = 0
    kind: WriteKind = WriteKind.MICRO_BATCH
    target: Target | None = None
    """The same as in ``WriteId``."""
    marker_partition: int | None = field(default=None, compare=False)
    """The partition of the tasks' markers. None in an entry that was read as DONE."""
    old_marker_count: int = field(default=0, compare=False)
    """The number of tasks that may have left a marker in earlier batches."""
    schemas: tuple[SchemaId, ...] = ()
    """The registry's schemas with which a replay encodes its rows."""
    topics: tuple[TopicId, ...] = ()
    """The topics that the batch was written to, without the ledger's topic."""
    query_name: str = ""
    """The streaming query's name, printable; "" if it has none."""
    ledger_id: UUID | None = field(default=None, compare=False)
    """The topic id of the ledger that has the markers, which only an intent needs. None from brokers without topic
    ids."""
    turn: int = 1
    """The number of times that the query was given the name: once at first, and once by each hand-over."""

    def __str__(self) -> str:
        return f"{self.numbered} of {self.query}"

    @property
    def numbered(self) -> str:
        """The batch by its number, in the words of the write's options."""
        return f"{'txnVersion' if self.kind is WriteKind.VERSION else 'batch'} {self.number}"

    @property
    def must_be_completed(self) -> bool:
        """Whether transactions that the entry names may still be open, and must be committed."""
        return self.state is EntryState.INTENT

    @property
    def is_done(self) -> bool:
        """Whether all transactions that the entry names are known to be committed, so that it may be replaced or
        removed."""
        return self.state is EntryState.DONE

    def done(self) -> Entry:
        """The entry once its transactions are committed, without their names."""
        return replace(self, state=EntryState.DONE, tasks=tuple(TaskOutcome(outcome.rows) for outcome in self.tasks))

    @property
    def turn_name(self) -> str:
        """The name for ``ledgerStart=replaces:``, such as ``q`` in the query's first turn and ``q:2`` in its second.
        The number keeps an option that stays set from ending a later turn."""
        return self.query if self.turn == 1 else f"{self.query}:{self.turn}"

    @property
    def total(self) -> RowChecksum:
        """The sum over all tasks. It is the same for each division of the rows into tasks."""
        return sum((outcome.rows for outcome in self.tasks), RowChecksum())

    def has_rows_besides(self, lost: Collection[int]) -> bool:
        """Whether tasks other than the ``lost`` ones have rows."""
        return any(outcome.rows.count for task, outcome in enumerate(self.tasks) if task not in lost)

    @property
    def prepared(self) -> dict[int, PreparedTransaction]:
        """Task → its prepared transaction."""
        return {task: outcome.prepared for task, outcome in enumerate(self.tasks) if outcome.prepared is not None}

    @property
    def transaction_keys(self) -> frozenset[tuple[str, int, int]]:
        """The ``key`` of each transaction that the entry names."""
        return frozenset(prepared.key for prepared in self.prepared.values())

    @property
    def marker_count(self) -> int:
        """The number of tasks that may have left a marker, in this batch or an earlier one."""
        return max(len(self.tasks), self.old_marker_count)


@dataclass(frozen=True, slots=True)
class Marker:
    """A record in a task's transaction: committed exactly when the task's rows are."""

    query: str
    number: int
    task: int
    rows: RowChecksum


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

    ``end_unanswered``: an EndTxn of this epoch never had a response. Arriving late, this EndTxn would end the next
    transaction of the epoch, which therefore needs another epoch.
    """

    identity: TransactionalIdentity
    sequence: int = 0
    marker_sequence: int = 0
    end_unanswered: bool = False


class OpenTransaction(NamedTuple):
    """A task's transaction as its coordinator describes it. ``started_at``: epoch ms, -1 if unknown. ``topics``: each
    topic with the partitions that are part of the transaction, except for topics that this principal may not describe.
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
class WriteRun:
    """One planned run of a write: what its tasks, commit and abort share."""

    name: str
    ledger: LedgerPartitions
    driver: DriverIdentity
    has_entry: bool
    """Whether planning found an entry of the name. If it did not, ``ledgerTopic`` may name the wrong topic, and the
    open transactions may have been decided in another ledger."""


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The result of planning, which tasks get."""

    run: WriteRun
    entries: Mapping[str, Entry] = field(default_factory=dict)
    """Query → its last entry under this name, in the ledger's order: the name belongs to the query of the last one."""
    lost: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Query → the tasks of that entry whose rows are lost."""
    write_id: WriteId | None = None
    """The write; None if only the tasks know it (streaming)."""
    ledger_start: LedgerStart = STRICT
    max_entry_bytes: int | None = None
    """The largest record that the ledger takes; None: not known."""
    forget: str = ""
    """The command that removes the name's entries."""
    query_name: str = ""
    """The same as in ``Entry``."""


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The result of one task."""

    run: WriteRun
    write_id: WriteId
    action: TaskAction
    outcome: TaskOutcome
    began_at: int = 0
    """The time (epoch ms, on the executor's clock) before the task's transaction began."""
    tasks_before: int = 0
    """The number of tasks of the batch when it was decided, if it is being repaired; otherwise 0."""
    decided: RowChecksum | None = None
    """The checksum of all rows of the committed batch, which a skipped replay must have, too. None: do not compare."""
    old_marker_count: int = 0
    """The same as in ``Entry``."""
    topics: tuple[TopicId, ...] = ()
    """The topics that this task wrote to."""
    schemas: tuple[SchemaId, ...] = ()
    """The same as in ``Entry``."""
    decided_topics: tuple[TopicId, ...] = ()
    """The topics of the decided batch that this task replays. Empty: do not compare."""
    turn: int = 1
    """The same as in ``Entry``."""
    ledger_id: UUID | None = None
    """The same as in ``Entry``."""

    @property
    def write(self) -> str:
        """The write, for error messages."""
        return f"{self.write_id} (name {self.run.name})"


class TaskAttempt(NamedTuple):
    """An attempt of a task. ``task``: Spark's partition id. ``retried``: whether an earlier attempt of the task was
    given up."""

    write_id: WriteId
    task: int
    retried: bool = False


def shown_query(query: str, name: str) -> str:
    """A query by its id and, if it has one, its name."""
    return f"{query} ({name})" if name else query


def driver_id(name: str) -> str:
    return f"{name}{_DRIVER}"


def task_id(name: str, task: int) -> str:
    """The transactional id of a task. Its last hyphen ends the name, so no two names have an id in common: ``x-3`` is
    task 3 of ``x``, and ``x-3-7`` task 7 of ``x-3``."""
    return f"{name}-{task}"


def name_of_task(transactional_id: str) -> str | None:
    """The name of the write whose task may have this id; None for an id that no task has."""
    match = _TASK.fullmatch(transactional_id)
    return match["name"] if match is not None and transactional_id.isprintable() else None


def name_of_driver(transactional_id: str) -> str | None:
    return transactional_id.removesuffix(_DRIVER) if transactional_id.endswith(_DRIVER) else None


def list_numbers(tasks: Iterable[int]) -> str:
    """Task numbers in an error message, such as ``0, 2-5``."""
    runs: list[list[int]] = []
    for task in sorted(tasks):
        if runs and task == runs[-1][-1] + 1:
            runs[-1].append(task)
        else:
            runs.append([task])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)
