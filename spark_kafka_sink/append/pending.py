"""Behind ``send``: records wait as columns, per topic, until somebody encodes them together.

A stage is closed by the caller who fills it, by ``flush`` and ``close``, or by the sender thread once it is due. The
stages of one topic are encoded one at a time and in order, by whoever comes first; the others hand theirs over and go
on.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from threading import get_ident

from spark_kafka_sink.accumulator.buffer_pool import BufferPool, Reservation
from spark_kafka_sink.append.append import ColumnarAppender, StagedColumns
from spark_kafka_sink.append.pending_records import (
    CLOSED_STAGE,
    RECORD_OVERHEAD,
    SHARED,
    PendingRecords,
    headers_size,
    java_estimate,
)
from spark_kafka_sink.append.publish import AppendParts, as_exception, undo
from spark_kafka_sink.append.record import ProducerRecord
from spark_kafka_sink.append.record_future import RecordFuture, StageOutcome
from spark_kafka_sink.append.values_only import StagedValues, ValueAppender
from spark_kafka_sink.clock import NEVER, Clock
from spark_kafka_sink.errors import InvalidRecordError, KafkaError, RecordTooLargeError
from spark_kafka_sink.model import ClusterSnapshot
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.sender.callbacks import Callbacks
from spark_kafka_sink.waiting import Waiters

_LARGEST_STAGE = 512 << 10
_RESERVED_AT_LEAST = 128 << 10
_NEVER_WAKE = sys.maxsize


@dataclass(frozen=True, slots=True)
class StagingConfig:
    """batch.size, max.request.size and buffer.memory in bytes, linger.ms and max.block.ms."""

    batch_size: int
    max_request_size: int
    buffer_memory: int
    linger_ms: float
    max_block_ms: float


@dataclass(frozen=True, slots=True)
class StagingParts:
    appender: ColumnarAppender
    value_appender: ValueAppender
    append: AppendParts
    metadata: Metadata
    pool: BufferPool
    clock: Clock
    callbacks: Callbacks
    wake_sender: Callable[[], None]
    call_sender: Callable[[], None]
    run_inline: Callable[[], AbstractContextManager[None]] = nullcontext
    """Around the work of a caller who is likely to go on: ``SenderThread.run_inline``."""


class Staging:
    """All topics of one producer. Callers ``append`` and ``flush``; the sender thread calls ``publish_due``."""

    def __init__(self, config: StagingConfig, parts: StagingParts) -> None:
        self._config = config
        self._parts = parts
        self.topics: dict[str, TopicPendingRecords] = {}

    def append(
        self, record: ProducerRecord, key: bytes | None, value: bytes | None, left_ms: float | None = None
    ) -> RecordFuture:
        """Append one record; waits for metadata and memory, together up to ``left_ms`` (None: max.block.ms).

        Raises ``InvalidRecordError`` for what is not bytes, ``RecordTooLargeError``, ``KafkaTimeoutError``.
        """
        stages = self.topics.get(record.topic)
        if stages is None:
            # Of two threads that come first with a topic, both get the one that stays.
            stages = self.topics.setdefault(record.topic, TopicPendingRecords(record.topic, self._config, self._parts))
        return stages.append(record, key, value, left_ms)

    def flush(self, timeout_ms: float = NEVER) -> bool:
        """Return when everything staged so far is in the accumulator; False when the time is up before."""
        deadline = self._parts.clock.now() + timeout_ms
        return all(stages.flush(deadline) for stages in tuple(self.topics.values()))

    def publish_due(self, now: float) -> float:
        """Encode what has lingered, is a batch's worth or holds memory others wait for; says when more comes due."""
        all_of_it = self._parts.pool.exhausted
        return min((stages.publish_due(now, all_of_it) for stages in tuple(self.topics.values())), default=NEVER)

    def abort(self, error: KafkaError) -> None:
        """Fail what is staged."""
        for stages in tuple(self.topics.values()):
            stages.abort(error)


class TopicPendingRecords:
    """The open stage of one topic, and those that wait to be encoded. Its lock is never held while encoding."""

    def __init__(self, topic: str, config: StagingConfig, parts: StagingParts) -> None:
        self._topic = topic
        self._config = config
        self._parts = parts
        self._limit = min(_LARGEST_STAGE, parts.appender.slice_limit)
        self._comfortable_size = config.max_request_size - 2 * RECORD_OVERHEAD
        self._lock = threading.Lock()
        self._encoded = Waiters()
        self._open = CLOSED_STAGE
        self._shared = False
        # The memory that the last stage could have done with and a little more: the next one asks for it at once.
        self._expected = 0
        self._waiting: deque[PendingRecords] = deque()
        self._encoding: PendingRecords | None = None
        self._aborted_by: KafkaError | None = None

    def append(
        self, record: ProducerRecord, key: bytes | None, value: bytes | None, left_ms: float | None = None
    ) -> RecordFuture:
        """The hot path of ``send``: two appends at most and the future, no lock. The rest goes other ways.

        Without a lock because only the stage's owner comes here. It may be closed all the same, by anybody: who closes
        it says so first and counts then, the owner appends first and looks then. One of the two sees the other.
        """
        size = RECORD_OVERHEAD
        if value is not None:
            if value.__class__ is not bytes:
                raise _not_bytes("value", value)
            size += len(value)
        if key is not None:
            if key.__class__ is not bytes:
                raise _not_bytes("key", key)
            size += len(key)
        stage = self._open
        room = stage.room - size
        if (
            room < 0
            or value is None
            or record.partition is not None
            or record.timestamp is not None
            or record.headers is not None
        ):
            return self._append_special(record, key, value, size, left_ms)
        if stage.owner != get_ident():
            return self._append_shared(record, key, value, size, left_ms)
        stage.room = room
        values = stage.values
        index = len(values)
        if key is None:
            values.append(value)
        else:
            stage.add_keyed(key, value)
        if stage.closed and not self._was_taken(stage, index):
            return self._append_special(record, key, value, size, left_ms)
        future = RecordFuture()
        future._stage = stage.outcome
        future._index = index
        return future

    def _append_shared(
        self, record: ProducerRecord, key: bytes | None, value: bytes, size: int, left_ms: float | None
    ) -> RecordFuture:
        """The same for a stage that several threads fill: with the lock."""
        with self._lock:
            stage = self._open
            fits = size <= stage.room and stage.owner == SHARED
            if fits:
                stage.room -= size
                index = len(stage.values)
                if key is None:
                    stage.values.append(value)
                else:
                    stage.add_keyed(key, value)
        return stage.outcome.future(index) if fits else self._append_special(record, key, value, size, left_ms)

    def _append_special(
        self, record: ProducerRecord, key: bytes | None, value: bytes | None, size: int, left_ms: float | None
    ) -> RecordFuture:
        """With partition, timestamp, headers or no value; or the stage must be looked after first."""
        if record.headers is not None:
            size += headers_size(record.headers)
        if size > self._comfortable_size:
            self._check_size(record, key, value)
        try:
            stage, index, wake = self._place(record, key, value, size, left_ms)
        except BaseException:
            self._parts.wake_sender()  # it may have been added, and must not wait for the next
            raise
        if wake:
            self._parts.wake_sender()
        return stage.outcome.future(index)

    def _place(
        self, record: ProducerRecord, key: bytes | None, value: bytes | None, size: int, left_ms: float | None
    ) -> tuple[PendingRecords, int, bool]:
        """The stage that the record is in, its index there, and whether the sender must be woken."""
        thread, partition = get_ident(), record.partition
        remaining = self._config.max_block_ms if left_ms is None else left_ms
        while True:
            with self._lock:
                stage = self._open
                if stage.owner in (thread, SHARED) and (partition is None or stage.knows(partition)):
                    if size <= stage.room:
                        return stage, stage.add(record, key, value, size), False
                    if stage.size + size <= stage.allowed:
                        index = stage.add(record, key, value, size)
                        wake = stage.size >= stage.wake_at
                        if wake:
                            # The first record starts the linger; a batch's worth need not wait for its end.
                            stage.wake_at = _NEVER_WAKE if index else self._config.batch_size
                        stage.make_room(self._comfortable_size)
                        return stage, index, wake
            remaining = self._await_room(stage, size, partition, remaining)

    def _was_taken(self, stage: PendingRecords, index: int) -> bool:
        with self._lock:
            return index < stage.rows

    def flush(self, deadline: float = NEVER) -> bool:
        """Return when what is staged now is in the accumulator, or failed; False when the time is up before."""
        with self._lock:
            self._hand_over(self._open)
            last = self._waiting[-1] if self._waiting else self._encoding
        while True:
            self._encode_waiting()
            with self._lock:
                if last is None or (last is not self._encoding and last not in self._waiting):
                    return True
                remaining = deadline - self._parts.clock.now()
                if remaining <= 0:
                    return False
                if self._encoding is None:
                    continue
                sleeper = self._encoded.join()
            self._encoded.sleep(sleeper, remaining)

    def publish_due(self, now: float, all_of_it: bool) -> float:
        """On the sender thread."""
        due = NEVER
        with self._lock:
            stage = self._open
            if stage is not CLOSED_STAGE:
                deadline = stage.created + self._config.linger_ms
                if not all_of_it and now < deadline and stage.size < self._config.batch_size:
                    due = deadline
                else:
                    self._hand_over(stage)
            waiting = bool(self._waiting)
        if waiting:
            self._encode_waiting()
        return due

    def abort(self, error: KafkaError) -> None:
        with self._lock:
            self._aborted_by = error
            self._hand_over(self._open)
            stages = tuple(self._waiting)
            self._waiting.clear()
            self._encoded.notify_all()
        for stage in stages:
            self._parts.pool.cancel(stage.claim.memory)
            stage.outcome.fail(error)

    def _await_room(self, stage: PendingRecords, size: int, partition: int | None, remaining: float) -> float:
        """Do what keeps a record out of the open stage; says what is left of the ``remaining`` ms to wait.

        None is open, it is full or another thread's, it lacks memory, or it knows too few partitions.
        """
        strange = stage.owner not in (get_ident(), SHARED)
        if strange or (stage.values and stage.size + size > self._limit):
            with self._lock:
                self._shared = self._shared or strange
                self._hand_over(stage)
            with self._parts.run_inline():
                self._encode_waiting()
            return remaining
        parts = self._parts
        deadline = parts.clock.now() + remaining
        snapshot = parts.metadata.wait_for_topic(self._topic, partition, remaining, parts.clock, parts.call_sender)
        # Twice the size: some of the encoded rows are copied. One that takes more than half the memory goes alone.
        memory = self._config.buffer_memory
        at_once = max(_RESERVED_AT_LEAST, self._expected, stage.reserved)
        reserved = min(max(2 * size, min(at_once, memory // 4)), memory)
        granted = Reservation()
        try:
            parts.pool.reserve(granted, reserved, max(0.0, deadline - parts.clock.now()), parts.call_sender)
            self._grant(granted, snapshot, size)
            parts.pool.cancel(granted)
        except BaseException:
            parts.pool.cancel(granted)
            raise
        return max(0.0, deadline - parts.clock.now())

    def _grant(self, granted: Reservation, snapshot: ClusterSnapshot, size: int) -> None:
        """Memory for the open stage, or a new one, unless that is another thread's."""
        clock = self._parts.clock
        with self._lock:
            if self._aborted_by is not None:
                raise self._aborted_by
            if self._open is CLOSED_STAGE:
                outcome = StageOutcome(self._topic, clock.epoch_ms(), self._parts.callbacks)
                stage = PendingRecords(outcome, snapshot, clock.now())
                stage.owner = SHARED if self._shared else get_ident()
                self._open = stage
            stage = self._open
            if stage.owner in (get_ident(), SHARED):
                stage.snapshot = snapshot
                stage.grant(granted, size, self._limit)
                stage.make_room(self._comfortable_size)

    def _hand_over(self, stage: PendingRecords) -> None:
        """Under the lock; another thread may have been first."""
        if stage is not self._open or stage is CLOSED_STAGE:
            return
        try:
            self._close(stage)
        except BaseException:
            self._close(stage)
            raise

    def _close(self, stage: PendingRecords) -> None:
        """May be done twice."""
        stage.close()
        self._expected = 2 * min(stage.size * 9 // 8, self._limit)
        if stage not in self._waiting:
            self._waiting.append(stage)
        self._open = CLOSED_STAGE

    def _encode_waiting(self) -> None:
        stage = None
        try:
            while True:
                with self._lock:
                    if self._encoding is not None or not self._waiting:
                        return
                    # In this order, and ``_end`` looks at both: a stage that is interrupted here is in one of them.
                    stage = self._encoding = self._waiting[0]
                    self._waiting.popleft()
                self._encode(stage)
                self._end(stage)
        except BaseException as error:
            if stage is not None:
                self._lose(stage, error)
                self._end(stage)
            self._parts.wake_sender()  # for the stages that still wait
            raise

    def _end(self, stage: PendingRecords) -> None:
        """May be done twice."""
        with self._lock:
            if self._encoding is stage:
                if self._waiting and self._waiting[0] is stage:
                    self._waiting.popleft()
                self._encoded.notify_all()
                self._encoding = None

    def _encode(self, stage: PendingRecords) -> None:
        """What goes wrong here is told to whoever waits for the records: the thread at work may be anybody's."""
        try:
            if not stage.rows:
                self._parts.pool.cancel(stage.claim.memory)
            elif stage.only_values and self._parts.value_appender.applicable:
                self._parts.value_appender.append(self._staged_values(stage), stage.claim, stage.outcome)
            else:
                self._parts.appender.append_staged(self._staged_columns(stage), stage.claim, stage.outcome)
        except BaseException as error:
            self._lose(stage, error)
            if not isinstance(error, Exception):
                raise

    def _lose(self, stage: PendingRecords, error: BaseException) -> None:
        """Fail a stage's records, unless they are the sender's already. May be done twice."""
        undo(self._parts.append, stage.claim, stage.outcome, error)
        if not stage.claim.published:
            stage.outcome.fail(as_exception(error))

    def _staged_columns(self, stage: PendingRecords) -> StagedColumns:
        return StagedColumns(
            topic=self._topic,
            columns=stage.columns(),
            explicit=stage.explicit_partitions(),
            snapshot=stage.snapshot,
            created=stage.created,
            timestamp=stage.outcome.default_timestamp,
        )

    def _staged_values(self, stage: PendingRecords) -> StagedValues:
        values = stage.only_bytes()
        lengths = stage.outcome.value_sizes = list(map(len, values))
        return StagedValues(
            topic=self._topic,
            values=values,
            lengths=lengths,
            snapshot=stage.snapshot,
            created=stage.created,
            timestamp=stage.outcome.default_timestamp,
        )

    def _check_size(self, record: ProducerRecord, key: bytes | None, value: bytes | None) -> None:
        size = java_estimate(record.headers, key, value)
        for option, limit in (
            ("max.request.size", self._config.max_request_size),
            ("buffer.memory", self._config.buffer_memory),
        ):
            if size > limit:
                raise RecordTooLargeError(
                    f"The message is {size} bytes when serialized which is larger than {limit}, which is the value of "
                    f"the {option} configuration."
                )


def _not_bytes(name: str, given: object) -> InvalidRecordError:
    return InvalidRecordError(
        f"The {name} must be bytes or None, not {type(given).__name__}. Give the producer a {name}_serializer."
    )
