"""``Inbox``: where callers put records and orders, and the sender thread takes them in turn.

It is one list. A caller extends it by one entry of ``ENTRY`` fields, an atomic step, which no other thread, signal
handler or finalizer divides; so what a thread puts first comes first. Nothing waits in it: whatever a record needs (its
topic's partitions, memory) its caller has when it puts the record. Only the sender thread takes.

After its put a caller reads ``alert``. The sender thread sets it before it sleeps, then looks at the list again: one of
them sees the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from weakref import ref

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.model import ClusterSnapshot
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.producer.buffer_pool import BufferPool, Grant
from spark_kafka_sink.producer.callbacks import Callbacks
from spark_kafka_sink.producer.future_record_metadata import SentRecords
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.producer.rows import Rows
from spark_kafka_sink.producer.transaction_manager import Step, TransactionalCall

ENTRY: Final = 4
"""Fields of an entry. Of a record: its ``TopicRecords``, number, key and value; if it has other fields,
``FullRecords``, number, key, and a pair of value and ``OtherFields``. Of an order: None, the order, and two more None.
An order that is a number is the time of the records behind it (epoch ms).
"""

RECORD_OVERHEAD: Final = 40
"""An upper bound of a record's bytes without its key, value and headers."""


class KnownTopic:
    """A topic as callers know it when they put records. ``transaction``: the number of the open one, 0 without any.

    ``open``: the records that ``send`` adds to; others once they are encoded. It keeps no snapshot: with a topic of
    each of ten thousand snapshots, these would all exist at once.
    """

    def __init__(
        self, name: str, callbacks: Callbacks, snapshot: ClusterSnapshot, clock: Clock, transaction: int
    ) -> None:
        self.name = name
        self.callbacks = callbacks
        self.info = snapshot.topics[name]
        self.partitions = snapshot.partition_counts[name]
        self.transaction = transaction
        self.epoch_s = clock.epoch_s
        self.open = TopicRecords(self)

    def within(self, newest: ClusterSnapshot) -> ClusterSnapshot:
        """The newest snapshot, if it has the partitions that the callers know; else one of the topic as it was."""
        if newest.partition_counts.get(self.name, 0) >= self.partitions:
            return newest
        return ClusterSnapshot(nodes=newest.nodes, topics={self.name: self.info})


class TopicRecords(SentRecords):
    """The records of a topic that are encoded together."""

    def __init__(self, topic: KnownTopic) -> None:
        super().__init__(topic.name, topic.callbacks)
        self.topic = topic
        self._full: ref[FullRecords] | None = None  # a cycle would keep these and their results

    @property
    def full(self) -> FullRecords:
        """Marks entries of records that have more than key and value."""
        full = None if self._full is None else self._full()
        if full is None:
            full = FullRecords(self)
            self._full = ref(full)
        return full


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class FullRecords:
    records: TopicRecords


class OtherFields(NamedTuple):
    """What few records have. ``headers``: encoded. ``given``: key and value before their serializers, where the sender
    thread asks a ``RecordPartitioner``.
    """

    partition: int | None
    timestamp: int | None
    headers: bytes | None
    given: tuple[object, object] | None = None


NO_OTHERS: Final = OtherFields(None, None, None)


class Room:
    """Memory for records on their way through the inbox, ``left`` bytes of it. Any thread takes from it.

    It is an estimate: if two threads take at once, one of them may not count. The sender thread charges what it finds.
    ``spare``: bytes of its grants, or of an earlier room's, for the next room.
    """

    __slots__ = ("grants", "left", "spare")

    def __init__(self, grants: Sequence[Grant], left: int, spare: int) -> None:
        self.grants = grants
        self.left = left
        self.spare = spare

    def close(self) -> None:
        """Called by the sender thread, or once it has ended."""
        for grant in self.grants:
            grant.give_back()


NO_ROOM: Final = Room((), -1, -1)


@dataclass(slots=True, eq=False)
class SealedBatches:
    """The batches of one slice of columns, and the memory that their caller was granted for them."""

    topics: Sequence[str]
    batches: Sequence[ProducerBatch]
    grants: Sequence[Grant]
    transaction: int

    @property
    def count(self) -> int:
        return sum(batch.count for batch in self.batches)


@dataclass(slots=True, eq=False)
class SmallCall:
    """A call of columns with too few rows for batches of their own. ``rows`` refer to nothing of the caller's.

    ``numbers``: of these rows in the call.
    """

    rows: Rows
    numbers: Any
    snapshot: ClusterSnapshot
    receipt: SendReceipt
    first_row: int | None
    created: float
    transaction: int

    @property
    def count(self) -> int:
        return len(self.rows.columns)


@dataclass(eq=False)
class Inbox:
    """``names``: topics whose records ``send`` puts without further checks; empty once the producer is closed or is in
    the child of a fork. ``urgent``: calls that overtake what is in the list.

    ``alert``: a record wakes the sender thread, which sleeps and has none, or finds that the sender thread has ended.
    ``ended_by``: why it has.
    """

    entries: list[Any] = field(default_factory=list)
    urgent: deque[TransactionalCall] = field(default_factory=deque)
    names: dict[str, KnownTopic] = field(default_factory=dict)
    room: Room = NO_ROOM
    rooms: deque[Room] = field(default_factory=deque)
    next_ms_at: float = 0.0
    """When the time of the last mark ends (epoch s). A caller puts a mark, then sets this, then puts its record."""
    alert: bool = False
    ended_by: KafkaError | None = None

    def put(self, order: object) -> None:
        """The caller wakes the sender thread."""
        self.entries.extend((None, order, None, None))

    def mark_time(self, epoch_ms: int) -> None:
        """The records behind it are sent in this ms."""
        self.put(epoch_ms)
        self.next_ms_at = (epoch_ms + 1) / 1000.0

    def put_call(self, call: TransactionalCall) -> None:
        """The caller wakes the sender thread. An abort overtakes: the rows of its transaction that are in the list
        fail.
        """
        if call.step is Step.ABORT:
            self.urgent.append(call)
        else:
            self.put(call)

    def take_room(self, pool: BufferPool, size: int, most: int, max_wait_ms: float) -> bool:
        """Take room for ``size`` bytes; waits for memory. A new room has up to ``most`` bytes.

        Returns whether a room was full: so many records do not wait for the end of linger.ms. Raises as
        ``BufferPool.take``.
        """
        is_full = False
        while (room := self.room).left < size:
            is_full = is_full or room is not NO_ROOM
            grants: Sequence[Grant] = ()
            granted = room.spare
            if granted < size:
                grants, _waited = pool.take(max(size, min(most, pool.grant_size)), max_wait_ms)
                granted = sum(grant.size for grant in grants)
            left = max(size, min(granted, most))
            opened = Room(grants, left, granted - left)
            self.rooms.append(opened)  # first, so that the sender thread closes each
            self.room = opened
        room.left -= size
        return is_full

    def end_rooms(self) -> None:
        """Each room is closed behind the records that are there, which the sender thread charges when it takes them."""
        self.room = NO_ROOM
        while self.rooms:
            if (room := self.rooms.popleft()).grants:
                self.put(room)

    def close_rooms(self) -> None:
        """Called by the sender thread when it ends, and by callers after that."""
        self.room = NO_ROOM
        with suppress(IndexError):  # another caller has taken the last one
            while self.rooms:
                self.rooms.popleft().close()


def count_records(entries: Sequence[Any]) -> int:
    """Number of records in the entries."""
    marked = zip(entries[::ENTRY], entries[1::ENTRY], strict=True)
    return sum(1 if topic is not None else getattr(order, "count", 0) for topic, order in marked)
