"""The stages of a batch, each a type of its own: ``OpenBatch`` → ``SealedBatch`` → ``StampedBatch``.

An open batch takes rows (callers, under the accumulator's lock). A sealed one is bytes that never change (made by
whoever closes it). A stamped one has a header with producer id, epoch, sequence and CRC, and belongs to the sender
thread; a retry sends the same stamped bytes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from spark_kafka_sink.model import TopicPartition
from spark_kafka_sink.records.batch import HEADER_SIZE

Buffer: TypeAlias = bytes | memoryview

UNKNOWN_OFFSET = -1
NO_TIMESTAMP = -1


class BatchOutcome(NamedTuple):
    """What became of one listener's rows of a batch.

    ``base_offset`` is the offset of the batch's first record, ``UNKNOWN_OFFSET`` for acks=0 and for duplicates the
    broker no longer remembers; ``rows`` of the listener's are its records ``first`` and following, ``size`` bytes
    before compression. ``skipped`` of the listener's rows come before these, in other parts of a batch that was split.
    ``log_append_time`` is the broker's time (epoch ms) on topics with LogAppendTime, else ``NO_TIMESTAMP``.
    """

    partition: TopicPartition
    base_offset: int
    log_append_time: int
    first: int
    rows: int
    size: int
    skipped: int
    error: Exception | None


class BatchListener(Protocol):
    def batch_completed(self, outcome: BatchOutcome) -> None:
        """Called on the sender thread, once for each part of a share; must not block."""


class Share(NamedTuple):
    """The rows of one append within a batch, and who wants to know what became of them."""

    listener: BatchListener
    first: int
    rows: int
    size: int
    skipped: int = 0

    def within(self, start: int, end: int) -> Share | None:
        """What of it lies in records ``start .. end - 1`` when these become a batch of their own."""
        first, last = max(self.first, start), min(self.first + self.rows, end)
        if first >= last:
            return None
        size = self.size * (last - first) // self.rows
        return Share(self.listener, first - start, last - first, size, self.skipped + first - self.first)


class Hold:
    """Bytes of ``buffer.memory`` that several batches share because their segments lie in one encoded slice.

    Guarded by the buffer pool's lock; the bytes are free again when the last user lets go.
    """

    __slots__ = ("size", "users")

    def __init__(self, size: int) -> None:
        self.size = size
        self.users = 0


@dataclass(slots=True, eq=False)
class Memory:
    """What one batch keeps of ``buffer.memory``: bytes of its own and its part in shared holds."""

    own: int = 0
    holds: list[Hold] = field(default_factory=list)


class BatchCompletion:
    """The fate of one batch: the same object through all its stages, completed exactly once, by the sender thread.

    ``memory`` is released when it is complete. A batch that is split never completes itself: its parts do.
    """

    __slots__ = ("done", "memory", "partition", "parts", "shares")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.memory = Memory()
        self.shares: list[Share] = []
        self.done = False
        self.parts: tuple[BatchCompletion, BatchCompletion] | None = None

    @property
    def settled(self) -> bool:
        """Whether it is complete, or all that it was split into."""
        return self.done or (self.parts is not None and all(part.settled for part in self.parts))

    def split_at(self, count: int, end: int) -> tuple[BatchCompletion, BatchCompletion]:
        """Two completions in place of this one: of records ``0 .. count - 1`` and ``count .. end - 1``."""
        self.parts = (BatchCompletion(self.partition), BatchCompletion(self.partition))
        for part, (start, stop) in zip(self.parts, ((0, count), (count, end)), strict=True):
            part.shares = [share for each in self.shares if (share := each.within(start, stop)) is not None]
        return self.parts

    def complete(self, base_offset: int, log_append_time: int, error: Exception | None) -> None:
        self.done = True
        for listener, first, rows, size, skipped in self.shares:
            listener.batch_completed(
                BatchOutcome(self.partition, base_offset, log_append_time, first, rows, size, skipped, error)
            )


class OpenBatch:
    """A batch that takes rows. Every field is guarded by the accumulator's lock.

    ``size`` is an upper bound of the encoded bytes, header included; ``limit`` how far it may grow. While ``claimed``,
    one caller is encoding rows for it and nothing may drain it; ``filled`` means no further row fits; ``due`` that
    linger.ms has passed. A sealed batch keeps its open batch's place in the queue: ``sealed`` is what goes out then.
    """

    __slots__ = (
        "base_timestamp",
        "claimed",
        "completion",
        "count",
        "created",
        "due",
        "filled",
        "limit",
        "max_timestamp",
        "sealed",
        "segments",
        "size",
    )

    def __init__(self, partition: TopicPartition, created: float, limit: int, base_timestamp: int) -> None:
        self.completion = BatchCompletion(partition)
        self.created = created
        self.limit = limit
        self.base_timestamp = base_timestamp
        self.max_timestamp = base_timestamp
        self.count = 0
        self.size = HEADER_SIZE
        self.segments: list[Buffer] = []
        self.claimed = False
        self.filled = False
        self.due = False
        self.sealed: SealedBatch | None = None

    @property
    def partition(self) -> TopicPartition:
        return self.completion.partition


@dataclass(slots=True, eq=False)
class SealedBatch:
    """Records that will not change any more. ``codec`` is the attribute bits of the compression, 0 for none.

    ``payload`` are the record bytes (compressed, if they are) in segments; ``size`` counts them and the header,
    ``plain_size`` what they would be without compression.
    """

    completion: BatchCompletion
    created: float
    count: int
    base_timestamp: int
    max_timestamp: int
    codec: int
    payload: Sequence[Buffer]
    size: int
    plain_size: int

    @property
    def partition(self) -> TopicPartition:
        return self.completion.partition


class ProducerIdentity(NamedTuple):
    """Producer id and epoch as InitProducerId gave them (KIP-98); (-1, -1) without idempotence."""

    producer_id: int
    epoch: int


NO_IDENTITY = ProducerIdentity(-1, -1)
NO_SEQUENCE = -1


@dataclass(slots=True, eq=False)
class StampedBatch:
    """A sealed batch under its header: what is in flight, or waits for a retry. Owned by the sender thread.

    ``attempts`` counts the times it was sent; ``last_error`` is what the latest attempt came to.
    """

    sealed: SealedBatch
    identity: ProducerIdentity
    base_sequence: int
    header: bytes
    attempts: int = 0
    last_error: Exception | None = None

    @property
    def completion(self) -> BatchCompletion:
        return self.sealed.completion

    @property
    def partition(self) -> TopicPartition:
        return self.sealed.completion.partition

    @property
    def count(self) -> int:
        return self.sealed.count

    @property
    def created(self) -> float:
        return self.sealed.created

    @property
    def size(self) -> int:
        return self.sealed.size
