"""What ``send`` buffers: per topic one open ``PendingRecords``, and closed ones on their way into the accumulator.

They are closed by the caller that fills them, by ``flush`` and ``close``, or by the sender thread when linger.ms is
over. One thread at a time appends the closed ones of a topic, in order; other threads leave theirs to it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import get_ident
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from spark_kafka_sink.common.clock import NEVER
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.interrupts import interruptible, uninterrupted
from spark_kafka_sink.common.model import ClusterSnapshot
from spark_kafka_sink.common.waiting import Waiters
from spark_kafka_sink.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosedError,
    own_copy,
)
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.append import Appender, as_exception
from spark_kafka_sink.producer.buffer_pool import Reservation
from spark_kafka_sink.producer.claim import Claim
from spark_kafka_sink.producer.future_record_metadata import FutureRecordMetadata, ProduceRequestResult
from spark_kafka_sink.producer.partitioner import BatchRooms, CustomPartitioner, RecordFields
from spark_kafka_sink.producer.pending_records import (
    CLOSED,
    NO_OTHERS,
    RECORD_OVERHEAD,
    SHARED,
    OtherFields,
    PendingRecords,
)
from spark_kafka_sink.producer.record import ProducerRecord, as_bytes, check_partition_and_timestamp, encode_headers
from spark_kafka_sink.producer.rows import check_sizes
from spark_kafka_sink.records.columns import one_java_size_estimate, one_record_size_bound
from spark_kafka_sink.records.encode import NO_HEADERS

_MOST_BYTES = 512 << 10
_RESERVED_AT_LEAST = 128 << 10
_INTERRUPTING = (
    "The producer was called in the middle of its own send, flush or close, on the same thread: by a signal handler, a "
    "finalizer, a logging handler or a partitioner. Call it when that has returned."
)


class Row(NamedTuple):
    """A record that can be encoded, whatever is encoded with it. ``fields``: as in ``PendingRecords.rows``; ``size``:
    an upper bound of its bytes; ``sent_ms``: its timestamp if it has none (epoch ms).
    """

    future: FutureRecordMetadata
    fields: tuple[bytes | None, bytes | None, OtherFields | None]
    size: int
    sent_ms: int


class SendBuffers:
    """All topics of one producer. Callers ``append`` and ``flush``; the sender thread calls ``publish_due``."""

    def __init__(self, appender: Appender) -> None:
        self._appender = appender
        self.topics: dict[str, SendBuffer] = {}
        self._open: dict[SendBuffer, None] = {}
        """Those that may hold records, in the order in which they were opened."""
        self._all: WeakValueDictionary[str, SendBuffer] = WeakValueDictionary()
        """With forgotten ones that a caller has yet: a topic never has two."""
        self._forgets_at = 0.0

    def append(
        self, record: ProducerRecord, key: bytes | None, value: bytes | None, left_ms: float | None = None
    ) -> FutureRecordMetadata:
        """Append one record; waits for metadata and memory, together up to ``left_ms`` (None: max.block.ms).

        Raises ``InvalidRecordError`` for what is not bytes, ``RecordTooLargeError``, ``KafkaTimeoutError``.
        """
        return self.topic(record.topic).append(record, key, value, left_ms)

    def topic(self, name: str) -> SendBuffer:
        topic = self.topics.get(name)
        if topic is None:
            # setdefault: two threads with the first record of a topic get the same object.
            topic = self.topics.setdefault(name, self._all.get(name) or SendBuffer(name, self._appender, self))
            self._all[name] = topic
        return topic

    def note_open(self, topic: SendBuffer) -> None:
        """``topic`` may hold records from now on. With its lock."""
        self._open[topic] = None
        self.topics.setdefault(topic.name, topic)

    def note_idle(self, topic: SendBuffer, now: float) -> None:
        """``topic`` holds no records. With its lock."""
        self._open.pop(topic, None)
        topic.idle_since = now

    def _forget_idle(self, now: float) -> None:
        """Those that have held no record for metadata.max.idle.ms."""
        idle_ms = self._appender.config.metadata_max_idle_ms
        if now >= self._forgets_at:
            self._forgets_at = now + idle_ms
            for topic in tuple(self.topics.values()):
                with topic._lock:  # a caller may open it just now
                    if topic not in self._open and topic.idle_since <= now - idle_ms:
                        self.topics.pop(topic.name, None)

    def flush(self, timeout_ms: float = NEVER) -> bool:
        """Return when everything buffered so far is in the accumulator; False when the time is up before."""
        deadline = self._appender.clock.now() + timeout_ms
        return all(topic.flush(deadline) for topic in tuple(self._open))

    def go_before(self, topics: Sequence[str]) -> None:
        """What this thread has sent to ``topics`` is in the accumulator afterwards, so that columns come behind it.

        Raises ``KafkaTimeoutError`` if a thread that appends such records has not ended after max.block.ms.
        """
        waiting = [topic for name in topics if (topic := self.topics.get(name)) is not None and topic.may_hold_mine]
        if not waiting:
            return
        max_block_ms = self._appender.config.max_block_ms
        deadline = self._appender.clock.now() + max_block_ms
        for topic in waiting:
            if not topic.flush(deadline):
                raise KafkaTimeoutError(f"Earlier records of topic {topic.name} were not appended in {max_block_ms} ms")

    def publish_due(self, now: float) -> float:
        """Append what is due: by linger.ms, by batch.size, or as callers wait for memory. Returns when more is due."""
        self._forget_idle(now)
        all_of_it = self._appender.accumulator.pool.exhausted
        return min((topic.publish_due(now, all_of_it) for topic in tuple(self._open)), default=NEVER)

    @property
    def undelivered(self) -> int:
        """Number of records that are not in the accumulator yet."""
        return sum(topic.undelivered for topic in tuple(self._open))

    def abort(self, error: KafkaError) -> None:
        """Fail what is buffered, and refuse more."""
        for known in self._all.valuerefs():  # a list; values() breaks off when a thread adds a topic
            if (topic := known()) is not None:
                topic.abort(error)


class SendBuffer:
    """The pending records of one topic. Its lock is never held while they are appended."""

    def __init__(self, topic: str, appender: Appender, buffers: SendBuffers) -> None:
        self.name = topic
        self.idle_since = appender.clock.now()
        """While it holds no records (monotonic ms)."""
        self._appender = appender
        self._buffers = buffers
        self._config = appender.config
        self._clock = appender.clock
        self._epoch_s = appender.clock.epoch_s
        largest = min(self._config.max_request_size, self._config.buffer_memory) - 2 * RECORD_OVERHEAD
        # A larger record goes alone, and its size is checked.
        self._limit = max(1, min(_MOST_BYTES, appender.slice_limit, largest))
        self._lock = threading.RLock()
        self._appended = Waiters()
        self._open = CLOSED
        self._shared = False
        # The memory that the last ones needed and a little more: the next ones reserve it at once.
        self._expected = _RESERVED_AT_LEAST
        self._closed: deque[PendingRecords] = deque()
        self._appending: PendingRecords | None = None
        self._aborted_by: KafkaError | None = None
        self._batch_rooms: BatchRooms | None = None
        self._batch_rooms_of = CLOSED

    def append(
        self, record: ProducerRecord, key: bytes | None, value: bytes | None, left_ms: float | None = None
    ) -> FutureRecordMetadata:
        """The hot path of ``send``: no lock, a look at the clock, and the future. All else is in other methods.

        Only the owner of the open records adds without the lock; any thread may close them meanwhile. Closer: set
        ``closed``, then read the count. Owner: add, then read ``closed``. At least one sees the other. Code that
        interrupts this (a signal handler, a finalizer) may send or flush at any line.
        """
        pending = self._open
        if value.__class__ is not bytes or (key is not None and key.__class__ is not bytes):
            return self._append_checked(record, key, value, left_ms)
        size = RECORD_OVERHEAD + len(value)
        if key is not None:
            size += len(key)
        if (
            size > pending.room
            or record.partition is not None
            or record.timestamp is not None
            or record.headers is not None
            or pending.owner != get_ident()
        ):
            return self._append_checked(record, key, value, left_ms)
        pending.room -= size
        if self._epoch_s() >= pending.next_ms_at:
            pending.note_time(self._clock.epoch_ms())
        future = FutureRecordMetadata()
        future._result = pending.result
        rows = pending.rows
        rows += (key, value, None)
        future._end = len(rows)  # nothing has come in between: Python looks for signals and garbage at calls and jumps
        if pending.closed and not self._counts(pending, future):
            return self._append_checked(record, key, value, left_ms)
        return future

    def _append_checked(
        self, record: ProducerRecord, key: bytes | None, value: bytes | None, left_ms: float | None
    ) -> FutureRecordMetadata:
        """With partition, timestamp, headers or no value; or into records that are shared, full or another thread's; or
        with a key or value that is not bytes.
        """
        future, sent_ms = FutureRecordMetadata(), self._clock.epoch_ms()
        value, key = as_bytes("value", value), as_bytes("key", key)
        others = self._other_fields(record)
        size = RECORD_OVERHEAD + len(value or b"") + len(key or b"") + len(others.headers or b"")
        if size > self._limit:
            estimate = one_java_size_estimate(len(others.headers or NO_HEADERS), (key, value))
            check_sizes(np.array([estimate]), self._appender.size_limits)
        row = Row(future, (key, value, None if others == NO_OTHERS else others), size, sent_ms)
        remaining = self._config.max_block_ms if left_ms is None else left_ms
        try:
            while (wake := self._add(pending := self._open, row, others.partition)) is None:
                remaining = self._make_room(pending, size, others.partition, remaining)
        except BaseException:
            self._appender.sender_thread.wakeup()  # it may have been added, and must not wait for the next one
            raise
        if wake:
            self._appender.sender_thread.wakeup()
        return future

    def _other_fields(self, record: ProducerRecord) -> OtherFields:
        """Checked, so that nothing fails later that would fail the records that are pending with this one."""
        check_partition_and_timestamp(record)
        headers = None if record.headers is None else encode_headers(record.headers)
        return OtherFields(record.partition, record.timestamp, headers)

    def _add(self, pending: PendingRecords, row: Row, partition: int | None) -> bool | None:
        """Whether to wake the sender; None when the record cannot be added."""
        with self._lock_or_raise():
            if pending.closed or pending.owner not in (get_ident(), SHARED) or not pending.knows(partition):
                return None
            if row.size > pending.room + sum(pending.rooms_behind):
                return None
            wake = False
            while row.size > pending.room:
                pending.room += pending.rooms_behind.pop(0)
                wake = True
            pending.room -= row.size
            if not pending.sent or pending.sent[-1][1] != row.sent_ms:
                pending.note_time(row.sent_ms)
            row.future._result = pending.result
            pending.rows += row.fields
            row.future._end = len(pending.rows)
            return wake

    def _make_room(self, pending: PendingRecords, size: int, partition: int | None, remaining: float) -> float:
        """Make room for a record that could not be added; returns the rest of the ``remaining`` ms to wait.

        Closes records that are full, another thread's, or older than the partition; opens new ones where none are.
        """
        appender = self._appender
        if isinstance(error := appender.sender_thread.obstacle(), ProducerClosedError):
            raise error
        clock, pool, wake = self._clock, appender.accumulator.pool, appender.sender_thread.wakeup
        deadline = clock.now() + remaining
        snapshot = appender.metadata.wait_for_topic(self.name, partition, remaining)
        remaining = max(0.0, deadline - clock.now())
        if pending is not CLOSED:
            with uninterrupted():
                with self._lock_or_raise():
                    self._shared = self._shared or pending.owner not in (get_ident(), SHARED)
                    self._close(pending)
                    self._expected = 2 * self._limit  # callers are quicker than linger.ms
                self._append_closed()
            return remaining
        memory, opened = Reservation(), False
        with uninterrupted():
            try:
                pool.reserve(memory, self._bytes_to_reserve(size), remaining, wake)
                records = self._opened(snapshot, memory, size)
                with self._lock_or_raise():
                    if self._aborted_by is not None:
                        raise own_copy(self._aborted_by)
                    if self._open is CLOSED:
                        self._buffers.note_open(self)
                        self._open, opened = records, True
            finally:
                if not opened:
                    with uninterrupted():  # what ended the wait for memory may have left the outer one open
                        pool.cancel(memory)
        return max(0.0, deadline - clock.now())

    def _bytes_to_reserve(self, size: int) -> int:
        """Bytes of memory for records of which the first has ``size`` bytes. Twice the records' size: some of the
        encoded rows are copied. A record of more than half the memory goes alone. A wait is for no more than Java's.
        """
        pool = self._appender.accumulator.pool
        wanted = min(max(2 * size, min(self._expected, pool.total // 4)), pool.total)
        if wanted <= pool.available and not pool.exhausted:
            return wanted
        return min(wanted, max(size, self._config.batch_size))

    def _opened(self, snapshot: ClusterSnapshot, memory: Reservation, size: int) -> PendingRecords:
        result = ProduceRequestResult(self.name, self._appender.sender_thread.callbacks)
        owner = SHARED if self._shared else get_ident()
        opened = PendingRecords(result, snapshot, self._clock.now(), Claim(memory), owner)
        opened.open(max(size, min(self._limit, memory.size // 2)), self._config.batch_size)
        return opened

    def _counts(self, pending: PendingRecords, future: FutureRecordMetadata) -> bool:
        """Whether the record was added before its buffer was closed."""
        with self._lock_or_raise():
            return future._index < pending.count

    def _lock_or_raise(self) -> threading.RLock:
        """The lock. Raises ``IllegalStateError`` for code that has interrupted this thread while it has the lock."""
        if self._lock._is_owned():  # type: ignore[attr-defined]
            raise IllegalStateError(_INTERRUPTING)
        return self._lock

    def batch_rooms(self) -> BatchRooms:
        """Room in the open batches, for a partitioner that is asked again.

        Read from the accumulator once all earlier records are in it.
        """
        with self._lock:
            begun = self._open is CLOSED or self._open is not self._batch_rooms_of
            if self._batch_rooms is None or (begun and not self._closed and self._appending is None):
                self._batch_rooms = BatchRooms(self._appender.accumulator, self.name)
            return self._batch_rooms

    def keep_batch_rooms(self) -> None:
        """The open records are in ``batch_rooms``."""
        with self._lock:
            self._batch_rooms_of = self._open

    @property
    def may_hold_mine(self) -> bool:
        """Whether the calling thread may have sent records that are not in the accumulator yet. Read without the lock:
        other threads move this thread's records from open to closed to appending, and they are always in one of these.
        """
        pending = self._open
        if pending is not CLOSED and pending.owner in (get_ident(), SHARED):
            return True
        return bool(self._closed) or self._appending is not None

    @property
    def undelivered(self) -> int:
        with self._lock:
            return self._open.count + sum(pending.count for pending in self._closed)

    def flush(self, deadline: float = NEVER) -> bool:
        """Return when the records so far are in the accumulator, or failed; False when the time is up before."""
        with uninterrupted():
            with self._lock_or_raise():
                if self._appending is not None and self._appending.owner == get_ident():
                    raise IllegalStateError(_INTERRUPTING)
                self._close(self._open)
                last = self._closed[-1] if self._closed else self._appending
            self._append_closed()
        while True:
            with self._lock:
                if last is None or (last is not self._appending and last not in self._closed):
                    return True
            remaining = deadline - self._clock.now()
            if remaining <= 0:
                return False
            self._appended.wait_for(lambda: self._appending is None, remaining)
            self._append_closed()

    def publish_due(self, now: float, all_of_it: bool) -> float:
        """On the sender thread."""
        due = NEVER
        with self._lock:
            pending = self._open
            if pending is not CLOSED:
                deadline = pending.created + self._config.linger_ms
                if not all_of_it and now < deadline and pending.size < self._config.batch_size:
                    due = deadline
                else:
                    self._close(pending)
            closed = bool(self._closed)
            if self._open is CLOSED and self._appending is None and not closed:
                self._buffers.note_idle(self, now)
        if closed:
            self._append_closed()
        return due

    def abort(self, error: KafkaError) -> None:
        with self._lock:
            self._aborted_by = error
            self._close(self._open)
            aborted = tuple(self._closed)
            self._closed.clear()
            self._appended.notify_all()
        for pending in aborted:
            self._appender.accumulator.pool.cancel(pending.claim.memory)
            pending.result.fail(error)

    def _close(self, pending: PendingRecords) -> None:
        """Under the lock; another thread may have been first."""
        if pending is not self._open or pending is CLOSED:
            return
        pending.close()
        self._expected = 2 * min(pending.size * 9 // 8, self._limit)
        self._closed.append(pending)
        self._open = CLOSED

    def _append_closed(self) -> None:
        """Append what is closed, unless another thread does. These may be records of other calls, so signals wait."""
        with uninterrupted():
            while True:
                with self._lock:
                    if self._appending is not None or not self._closed:
                        return
                    self._appending = pending = self._closed.popleft()
                    pending.owner = get_ident()
                try:
                    self._append_one(pending)
                finally:
                    with self._lock:
                        self._appending = None
                        self._appended.notify_all()
                    if self._closed:
                        self._appender.sender_thread.wakeup()  # it appends the rest if a signal ends this
                        with interruptible():
                            pass

    def _append_one(self, pending: PendingRecords) -> None:
        """An error fails the records' futures. It is not raised: these may be another thread's records. What is no
        ``Exception`` (Ctrl-C of a signal handler, SystemExit of the user's partitioner) is raised, and the sender
        appends the records.
        """
        appender, claim = self._appender, pending.claim
        try:
            if pending.count:
                appender.append_pending(pending)
            else:
                appender.accumulator.pool.cancel(claim.memory)
        except BaseException as error:
            appender.undo(claim, pending.result, error)
            # No signal handler runs on the sender's thread: what it gets is the partitioner's own, such as SystemExit.
            if isinstance(error, Exception) or appender.sender_thread.is_current:
                self._fail(pending, as_exception(error))
                return
            if not self._put_back(pending):
                self._fail(pending, self._aborted_by or as_exception(error))
            raise

    def _put_back(self, pending: PendingRecords) -> bool:
        """Close the records again, with the same memory. False if they are published or have failed, or on abort."""
        with self._lock:
            if self._aborted_by is not None or pending.claim.published or pending.result.failed:
                return False
            pending.claim = Claim(pending.claim.memory)
            self._closed.appendleft(pending)
            return True

    def _fail(self, pending: PendingRecords, error: Exception) -> None:
        """Unless the records are published."""
        if not pending.claim.published:
            self._appender.records_lost(error)
            pending.result.fail(error)
        self._appender.accumulator.pool.cancel(pending.claim.memory)


@dataclass(frozen=True, slots=True, eq=False)
class RecordPartitioning:
    """The partition of a record of ``send`` by a ``RecordPartitioner`` (Java: ``doSend``).

    Asks on the caller's thread, before the record is pending: an error fails this record only.

    Any thread may call it. With threads that share a topic, a batch may be full before the partitioner learns of it.
    """

    _partitioner: CustomPartitioner
    _config: ProducerConfig
    _accumulator: RecordAccumulator
    _pending: SendBuffers

    def partition(
        self, record: ProducerRecord, key: bytes | None, value: bytes | None, cluster: ClusterSnapshot
    ) -> ProducerRecord:
        """The record with its partition; as it is if it names one."""
        key, value = as_bytes("key", key), as_bytes("value", value)
        rooms, size = None, 0
        if self._partitioner.asks_again:
            rooms = self._pending.topic(record.topic).batch_rooms()
            header_bytes = len(encode_headers(record.headers)) if record.headers else 1
            limit = self._accumulator.batch_limit(record.topic)
            size = one_record_size_bound(header_bytes, (key, value), limit, self._config.linger_ms)
        if record.partition is not None:
            if rooms is not None:
                rooms.take(record.partition, size)
            return record
        fields = RecordFields(record.topic, record.key, key, record.value, value)
        partition = self._partitioner.place(fields, size, cluster, rooms)
        return replace(record, partition=partition)

    def appended(self, topic: str) -> None:
        """The record whose partition was chosen last is pending."""
        if self._partitioner.asks_again:
            self._pending.topic(topic).keep_batch_rooms()
