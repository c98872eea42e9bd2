"""``Inbox``: the list into which callers put records and orders, and from which the sender thread takes them in turn.

A caller extends the list by one entry of ``ENTRY`` fields. This is an atomic step, which no other thread, signal
handler or finalizer divides, so what a thread puts first comes first. Nothing waits in the list: a caller has whatever
a record needs (its topic's partitions, memory) before it puts the record. Only the sender thread takes entries.

A caller puts an entry, then reads ``alert``. The sender thread sets ``alert`` before it sleeps, then looks at the list
again. One of them sees the other.
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
"""The number of fields of an entry. A record's fields: its ``TopicRecords``, number, key and value; if it has other
fields, ``FullRecords``, number, key, and a pair of value and ``OtherFields``. An order's fields: None, the order, None,
None. An order that is a number is the time of the records that follow (epoch ms).
"""

RECORD_OVERHEAD: Final = 40
"""An upper bound of a record's bytes without its key, value and headers."""


class KnownTopic:
    """A topic as callers know it when they put records. ``transaction``: the number of the open transaction, 0 without
    one. ``open``: the records that ``send`` adds to; replaced when they are encoded. It keeps no snapshot, because ten
    thousand topics, each from another snapshot, would keep all these snapshots in memory.
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
        """The newest snapshot if it has the partitions that the callers know, else a snapshot of the topic as it
        was."""
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
        """The mark of entries whose records have more than key and value."""
        full = None if self._full is None else self._full()
        if full is None:
            full = FullRecords(self)
            self._full = ref(full)
        return full


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class FullRecords:
    records: TopicRecords


class OtherFields(NamedTuple):
    """The fields of a record that most records lack. ``headers``: encoded. ``given``: key and value before their
    serializers, if the sender thread asks a ``RecordPartitioner``.
    """

    partition: int | None
    timestamp: int | None
    headers: bytes | None
    given: tuple[object, object] | None = None


NO_OTHERS: Final = OtherFields(None, None, None)


class Room:
    """Memory for records on their way through the inbox, ``left`` bytes of it. Any thread takes from it.

    ``left`` is an estimate: if two threads take at once, one of them may not count. The sender thread charges what it
    finds. ``spare``: bytes of its grants, or of an earlier room's grants, that are left for the next room.
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
    """A columns call with too few rows for batches of their own. ``rows``: copies, which refer to no memory of the
    caller's. ``numbers``: the numbers of these rows in the call.
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

    ``alert``: whether a caller that has put a record must call ``after_put``, because the sender thread sleeps without
    records, or has ended. ``ended_by``: why the sender thread has ended.
    """

    entries: list[Any] = field(default_factory=list)
    urgent: deque[TransactionalCall] = field(default_factory=deque)
    names: dict[str, KnownTopic] = field(default_factory=dict)
    room: Room = NO_ROOM
    rooms: deque[Room] = field(default_factory=deque)
    next_ms_at: float = 0.0
    """The end of the last mark's ms (epoch s). A caller puts a mark, then sets this, then puts its record, so that
    another thread that reads this puts its record behind the mark.
    """
    alert: bool = False
    ended_by: KafkaError | None = None

    def put(self, order: object) -> None:
        """Puts an order. The caller then wakes the sender thread."""
        self.entries.extend((None, order, None, None))

    def mark_time(self, epoch_ms: int) -> None:
        """Puts a mark: the records that follow are sent in this ms."""
        self.put(epoch_ms)
        self.next_ms_at = (epoch_ms + 1) / 1000.0

    def put_call(self, call: TransactionalCall) -> None:
        """Puts a transactional call. The caller then wakes the sender thread. An abort overtakes the list, in which the
        rows of its transaction fail.
        """
        if call.step is Step.ABORT:
            self.urgent.append(call)
        else:
            self.put(call)

    def take_room(self, pool: BufferPool, size: int, most: int, max_wait_ms: float) -> bool:
        """Take room for ``size`` bytes; waits for memory. A new room has up to ``most`` bytes.

        Returns whether a room was full, in which case there are too many records to wait for the end of linger.ms.
        Raises as ``BufferPool.take``.
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
            # Two threads may open rooms at once, so one gets no records; the sender thread closes all that are here.
            self.rooms.append(opened)
            self.room = opened
        room.left -= size
        return is_full

    def end_rooms(self) -> None:
        """Closes each room behind the records that are in the list, which the sender thread charges when it takes
        them."""
        # A thread that has read the room may still put behind it; the record is charged all the same.
        self.room = NO_ROOM
        while self.rooms:
            if (room := self.rooms.popleft()).grants:
                self.put(room)

    def close_rooms(self) -> None:
        """Gives all rooms back. Called by the sender thread when it ends, and by callers after that."""
        self.room = NO_ROOM
        with suppress(IndexError):  # another caller has taken the last one
            while self.rooms:
                self.rooms.popleft().close()


def count_records(entries: Sequence[Any]) -> int:
    """Number of records in the entries."""
    marked = zip(entries[::ENTRY], entries[1::ENTRY], strict=True)
    return sum(1 if topic is not None else getattr(order, "count", 0) for topic, order in marked)
