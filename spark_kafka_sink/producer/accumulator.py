"""``RecordAccumulator``: queues of batches per partition, where callers and the sender thread meet.

Callers: ``claim``, ``compress_filled``, ``publish``, ``give_back``, ``await_flush``. Sender: ``ready``, ``drain``,
``seal``, ``split``, ``reenqueue``, ``expire``, ``set_drain_mode``, ``finish``. One lock guards all queues; no code
encodes, compresses, logs or calls back while it holds the lock.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from spark_kafka_sink.common.clock import NEVER
from spark_kafka_sink.common.compression import CODEC_IDS, compress, load_codec
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.interrupts import uninterrupted
from spark_kafka_sink.common.model import NO_LEADER, ClusterSnapshot, TopicPartition
from spark_kafka_sink.common.waiting import SendingThread, Waiters
from spark_kafka_sink.errors import KafkaTimeoutError, own_copy
from spark_kafka_sink.producer.buffer_pool import BufferPool
from spark_kafka_sink.producer.claim import Claim, CompressedBatch, RowSizes, Run
from spark_kafka_sink.producer.metrics import ProducerMetrics
from spark_kafka_sink.producer.producer_batch import Buffer, ProducerBatch
from spark_kafka_sink.records.columns import HEADER_SIZE

_LAG_MS = 1_000.0
"""A partition lags when its first batch is that much older than linger.ms."""

NEVER_REFUSED: Final = 2**31 - 1
"""Bytes; the limit of a topic without a refused batch."""

_IMPROVING_STEP = 0.005
_DETERIORATING_STEP = 0.05
_SAFETY = 1.05


class DrainMode(Enum):
    """The batches of a partition that may be drained (Java: ``RecordAccumulator.mutePartition``)."""

    OPEN = "every sendable batch"
    RETRIES_ONLY = "only batches that were sent before"
    MUTED = "none"


# A look-up of an Enum member costs as much as the rest of ``PartitionQueue.sendable``.
_OPEN, _RETRIES_ONLY = DrainMode.OPEN, DrainMode.RETRIES_ONLY


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The batches of one partition, oldest first. Guarded by the accumulator's lock.

    ``retry_at``: end of the retry backoff (monotonic ms). ``listed``: the queue is in the ready list of its leader.
    """

    partition: TopicPartition
    leader: int = NO_LEADER
    batches: deque[ProducerBatch] = field(default_factory=deque)
    listed: bool = False
    drain_mode: DrainMode = DrainMode.OPEN
    retry_at: float = 0.0

    def sendable(self, now: float, send_all: bool) -> bool:
        """Whether the first batch may be drained. ``send_all``: linger.ms does not count."""
        if not self.batches or self.retry_at > now:
            return False
        head = self.batches[0]
        # Not a claimed one, also when it is sealed: its caller may have to take it back.
        return not head.claimed and self._may_go(head, send_all)

    def lags(self, since: float) -> bool:
        """Whether new batches will wait: muted, no leader, or a batch from before ``since`` is still here."""
        return (
            self.drain_mode is not _OPEN
            or self.leader == NO_LEADER
            or (bool(self.batches) and self.batches[0].created < since)
        )

    def close_head_when_claim_ends(self, now: float, send_all: bool) -> None:
        """If the sender would have taken the first batch but for a caller's claim, the batch takes no more rows after
        this claim and is due then. Otherwise a caller that claims it again and again would keep it from the sender.
        """
        head = self.batches[0] if self.batches else None
        if head is not None and head.claimed and self.retry_at <= now and self._may_go(head, send_all):
            head.filled = head.due = True

    def _may_go(self, head: ProducerBatch, send_all: bool) -> bool:
        if self.drain_mode is not _OPEN:
            return self.drain_mode is _RETRIES_ONLY and head.header is not None
        return head.payload is not None or head.due or send_all or len(self.batches) > 1

    def unclaimed_head(self) -> ProducerBatch | None:
        head = self.batches[0] if self.batches else None
        return None if head is None or head.claimed else head


@dataclass(slots=True, eq=False)
class NodeAvailability:
    """The nodes that accept requests (Java: ``RecordAccumulator.updateNodeLatencyStats``, KIP-794).

    ``timeout_ms``: ``partitioner.availability.timeout.ms``; 0 makes no node unavailable. ``unavailable``: ``NO_LEADER``
    and the ids of nodes that batches have waited for longer than that. Any thread reads it, the sender replaces it.
    """

    _timeout_ms: float
    unavailable: frozenset[int] = frozenset({NO_LEADER})
    _waiting_since: dict[int, float] = field(default_factory=dict)

    def update(self, node_id: int, ready: bool, now: float) -> None:
        """Batches wait for this node. ``ready``: a request can be sent to it now."""
        if ready:
            self._waiting_since.pop(node_id, None)
            if node_id in self.unavailable:
                self.unavailable -= {node_id}
        elif self._timeout_ms and now - self._waiting_since.setdefault(node_id, now) > self._timeout_ms:
            self.unavailable |= {node_id}


@dataclass(slots=True, eq=False)
class TopicLimits:
    """Any thread may read ``max_message_bytes``, in bytes of a batch as sent. The sender thread writes it.

    A limit is forgotten after metadata.max.age.ms, because that of the topic may have been raised.
    """

    _max_age_ms: float
    max_message_bytes: dict[str, int] = field(default_factory=dict)
    _until: dict[str, float] = field(default_factory=dict)

    def refused(self, topic: str, size: int, now: float) -> int:
        """A batch of ``size`` bytes was too large. Returns the topic's limit: the known one below it, or half of it."""
        known = self.max_message_bytes.get(topic)
        if known is None or size <= known:
            known = self.max_message_bytes[topic] = size // 2
            self._until[topic] = now + self._max_age_ms
        return known

    def forget_old(self, now: float) -> None:
        """Forgets old limits. If a limit still holds, the next refusal shows it again."""
        for topic in [topic for topic, until in self._until.items() if until <= now]:
            del self._until[topic], self.max_message_bytes[topic]


@dataclass(frozen=True, slots=True)
class ReadyCheckResult:
    """``nodes`` lead partitions with a sendable batch; ``next_check``: end of the next linger or backoff (monotonic
    ms); ``unknown_leaders``: topics with sendable batches and no leader.
    """

    nodes: tuple[int, ...]
    next_check: float
    unknown_leaders: frozenset[str]


class Backlog(NamedTuple):
    """The batches that wait for an acknowledgement; those that linger or are being written do not count."""

    batches: int
    bytes: int
    oldest: ProducerBatch


@dataclass(slots=True, eq=False)
class Flush:
    """One call of ``flush``. ``batches``: those that were incomplete when it began."""

    batches: frozenset[ProducerBatch] = frozenset()


class RecordAccumulator:
    def __init__(
        self, config: ProducerConfig, pool: BufferPool, metrics: ProducerMetrics, sender: SendingThread | None = None
    ) -> None:
        self.pool = pool
        self.metrics = metrics
        self.topic_limits = TopicLimits(config.metadata_max_age_ms)
        self.nodes = NodeAvailability(config.partitioner_availability_timeout_ms)
        self._config = config
        load_codec(config.compression_type)  # a missing library fails here, before any record is accepted
        self._codec = CODEC_IDS[config.compression_type]
        self.compresses = bool(self._codec)
        self._lock = threading.Lock()
        self._changed = Waiters(sender)
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._ready_by_node: dict[int, deque[PartitionQueue]] = {NO_LEADER: deque()}
        self._lingering: OrderedDict[ProducerBatch, PartitionQueue] = OrderedDict()
        self._backing_off: list[PartitionQueue] = []
        self._incomplete: dict[ProducerBatch, None] = {}  # in the order they were opened
        self._ratios: dict[str, float] = {}  # topic → expected compressed bytes per byte of records
        self._flushes: set[Flush] = set()
        self._closing = False
        self._aborted_by: Exception | None = None
        self._snapshot = ClusterSnapshot()
        self.next_expiry = NEVER

    # Callers

    def batch_limit(self, topic: str) -> int:
        """Bytes of a new batch before compression, header included."""
        with self._lock:
            return self._batch_limit(topic)

    def open_room(self, partition: TopicPartition) -> int:
        """Bytes that the partition's last batch still accepts; 0 without an open one."""
        with self._lock:
            queue = self._queues.get(partition)
            batch = queue.batches[-1] if queue is not None and queue.batches else None
            if batch is None or batch.filled or batch.payload is not None:
                return 0
            return max(0, batch.limit - batch.size)

    def lagging(self, runs: Sequence[Run], now: float) -> frozenset[TopicPartition]:
        """Partitions whose new batches will not be sent soon."""
        since = now - self._config.linger_ms - _LAG_MS
        with self._lock:
            return frozenset([run.partition for run in runs if self._queue(run.partition).lags(since)])

    def claim(self, claim: Claim, rows: RowSizes, now: float) -> None:
        """Cut ``rows`` into batches that belong to the caller until it publishes the claim or gives it back.

        After an error the claim knows all that has to be given back.
        """
        with self._lock:
            if self._aborted_by is not None:
                raise own_copy(self._aborted_by)
            for run in rows.runs:
                limit = min(rows.limit, self._batch_limit(run.partition.topic))
                claim.take(self._queue(run.partition).batches, run, rows, limit, now)
            self._incomplete.update(dict.fromkeys(claim.opened))
            self.next_expiry = min(self.next_expiry, now + self._config.delivery_timeout_ms)

    def compress_filled(self, claim: Claim) -> None:
        """Compress the batches that the claim fills; ``publish`` seals them."""
        if not self._codec:
            return
        buffers = {batch: batch.buffers.copy() for batch in claim.filled}
        for each in claim.encoded:
            if each.batch in buffers:
                buffers[each.batch].append(each.records)
        for batch, plain in buffers.items():
            compressed, plain_size = self._compress(batch.partition.topic, plain)
            claim.compressed.append(CompressedBatch(batch, self._codec, compressed, plain_size))

    def publish(self, claim: Claim) -> bool:
        """Give the claimed batches their rows and let the sender drain them; returns whether the caller must wake it.

        The sender may be asleep until the end of another linger.ms, and these batches may have come due while they were
        claimed.

        Raises the error the producer was aborted with.
        """
        with self._lock:
            if self._aborted_by is not None:
                raise own_copy(self._aborted_by)
            claim.publishing = True
            claim.add_rows()
            newest = next(reversed(self._lingering)).created if self._lingering else 0.0
            in_order, listed = True, False
            batches = claim.batches()
            for batch in batches:
                queue = self._queues[batch.partition]
                if batch.payload is not None:
                    self._lingering.pop(batch, None)
                elif not batch.due and batch not in self._lingering:
                    self._lingering[batch] = queue
                    in_order = in_order and batch.created >= newest
                listed = self._list_if_sendable(queue, batch) or listed
            if not in_order:
                self._lingering = OrderedDict(sorted(self._lingering.items(), key=lambda item: item[0].created))
            for batch in batches:
                batch.claimed = False
            claim.publishing, claim.published = False, True
            return bool(listed or claim.filled or claim.opened or self._flushes or self.pool.exhausted)

    def give_back(self, claim: Claim) -> list[ProducerBatch]:
        """Restore the batches of a claim that is not published. The caller wakes the sender afterwards.

        Returns batches that the caller must complete and ``finish``: those with rows of earlier appends if the producer
        was aborted meanwhile, and those that an exception has left with a part of the claim's rows.
        """
        with self._lock:
            if claim.publishing:
                lost = [batch for batch in claim.batches() if batch.claimed]
                for batch in lost:
                    self._unqueue(batch)
                return lost
            for batch in claim.opened:
                self._unqueue(batch)
                self._incomplete.pop(batch, None)
            for batch, count, size in claim.before:
                batch.count, batch.size = count, size
                batch.claimed = batch.filled = False
                self._list_if_sendable(self._queues[batch.partition], batch)
            self._changed.notify_all()
            return [] if self._aborted_by is None else [batch.batch for batch in claim.before]

    def queue_lengths(self, topic: str, partitions: Sequence[int]) -> list[int]:
        """Waiting batches per partition, for adaptive partitioning (KIP-794). O(partitions) or O(batches)."""
        with self._lock:
            incomplete = tuple(self._incomplete) if len(self._incomplete) < len(partitions) else None
        # Not within `with`: CPython 3.12 and 3.13 leave a lock locked if an interrupt strikes between two rounds of a
        # comprehension that has a condition.
        if incomplete is None:
            used = {TopicPartition(topic, partition) for partition in partitions}
        else:
            used = {batch.partition for batch in incomplete if batch.partition.topic == topic}
        lengths = {each.partition: len(queue.batches) for each in used if (queue := self._queues.get(each))}
        return [lengths.get(partition, 0) for partition in partitions] if lengths else [0] * len(partitions)

    def begin_flush(self, flush: Flush) -> Flush:
        """No batch lingers from here until ``await_flush`` or ``end_flush`` (Java: ``beginFlush``)."""
        with uninterrupted(), self._lock:  # as in a wait: a handler that flushes would wait for this lock
            self._flushes.add(flush)
            flush.batches = frozenset(self._incomplete)
        return flush

    def await_flush(self, flush: Flush, timeout_ms: float) -> None:
        """Wait until every batch of the flush is done, or its parts after a split. The caller wakes the sender first.

        Raises ``KafkaTimeoutError`` after ``timeout_ms``.
        """
        pending = list(flush.batches)

        def all_done() -> bool:
            while pending and pending[-1] not in self._incomplete:
                pending.extend(pending.pop().parts)
            return not pending

        try:
            if not self._changed.wait_for(all_done, timeout_ms):
                raise KafkaTimeoutError(f"Failed to flush within {timeout_ms:.0f} ms")
        finally:
            self.end_flush(flush)

    def end_flush(self, flush: Flush) -> None:
        """No effect when the flush has ended."""
        with uninterrupted(), self._lock:
            self._flushes.discard(flush)

    def close(self) -> None:
        """No batch lingers from now on."""
        with self._lock:
            self._closing = True

    # The sender

    def seal(self, batch: ProducerBatch) -> None:
        """Close a drained batch and compress it."""
        payload: Sequence[Buffer] = batch.buffers
        if self._codec:
            compressed, plain_size = self._compress(batch.partition.topic, payload)
            payload, batch.buffers = [compressed], []
            self.pool.charge(batch, len(compressed))
        else:
            plain_size = sum(map(len, payload))
        batch.seal(self._codec, payload, plain_size)

    @property
    def has_incomplete(self) -> bool:
        return bool(self._incomplete)

    @property
    def undelivered(self) -> int:
        """Number of records in batches that are not complete. O(batches)."""
        with self._lock:
            return sum(batch.count for batch in self._incomplete)

    def topics_in_use(self) -> frozenset[str]:
        """The topics of all batches that are not done, also of those in flight."""
        with self._lock:
            return frozenset(batch.partition.topic for batch in self._incomplete)

    def backlog(self) -> Backlog | None:
        """What waits for an acknowledgement; None if no batch does. O(batches)."""
        with self._lock:
            waiting = [batch for batch in self._incomplete if not batch.claimed and batch not in self._lingering]
        if not waiting:
            return None
        return Backlog(len(waiting), sum(batch.size for batch in waiting), min(waiting, key=lambda each: each.created))

    def ready(self, snapshot: ClusterSnapshot, now: float) -> ReadyCheckResult:
        """The nodes with sendable batches. The cost grows with the ready partitions, not with all."""
        with self._lock:
            if snapshot.generation != self._snapshot.generation:
                self._take_snapshot(snapshot)
            self._end_linger(now)
            self._end_backoff(now)
            # A queue whose batches have failed stays listed until the next drain.
            nodes = tuple(
                node
                for node, queues in self._ready_by_node.items()
                if node != NO_LEADER and any(queue.batches for queue in queues)
            )
            unknown = frozenset(q.partition.topic for q in self._ready_by_node[NO_LEADER] if q.batches)
            return ReadyCheckResult(nodes, self._next_check(), unknown)

    def drain(self, node: int, now: float) -> list[ProducerBatch]:
        """Take at most one batch per partition that ``node`` leads, together at most max.request.size bytes.

        Each call starts with the partitions that the last one did not reach. A larger batch goes alone.
        """
        batches: list[ProducerBatch] = []
        size = 0
        with self._lock:
            queues = self._ready_by_node.get(node, deque())
            send_all = self._send_all()
            for _ in range(len(queues)):
                queue = queues[0]
                if queue.sendable(now, send_all):
                    size += queue.batches[0].size
                    if batches and size > self._config.max_request_size:
                        break
                    batches.append(self._take_head(queue))
                    if queue.sendable(now, send_all):
                        queues.rotate(-1)
                        continue
                queue.close_head_when_claim_ends(now, send_all)
                queues.popleft().listed = False
        return batches

    def undrain(self, batch: ProducerBatch) -> None:
        """Make a drained batch the head of its queue again and mute the partition."""
        with self._lock:
            queue = self._queue(batch.partition)
            batch.due = True
            queue.batches.appendleft(batch)
            queue.drain_mode = DrainMode.MUTED

    def drain_all(self) -> list[ProducerBatch]:
        """Take every queued batch that no caller has claimed. They will not be sent."""
        taken: list[ProducerBatch] = []
        with self._lock:
            for queue in self._queues.values():
                for _ in range(len(queue.batches)):
                    if queue.unclaimed_head() is None:
                        queue.batches.rotate(-1)
                    else:
                        taken.append(self._take_head(queue))
        return taken

    def exceeds_topic_limit(self, batch: ProducerBatch) -> bool:
        """Whether a sealed batch is larger than its topic takes, and could be split."""
        limit = self.topic_limits.max_message_bytes.get(batch.partition.topic)
        return limit is not None and batch.size > limit and batch.count > 1

    def split(self, batch: ProducerBatch, limit: int, alone: Container[int] = ()) -> tuple[ProducerBatch, ...]:
        """Replace a sealed batch by others, as ``ProducerBatch.split`` (Java: ``splitAndReenqueue``)."""
        parts = batch.split(limit, self._config.compression_level, alone)
        for part in parts:
            self.pool.charge(part, part.size)
        self.pool.release([batch])
        with self._lock:
            batch.parts = parts
            self._incomplete.update(dict.fromkeys(parts))
            self._incomplete.pop(batch, None)
        return parts

    def undrain_parts(self, parts: Sequence[ProducerBatch]) -> None:
        """The parts of a drained batch become the head of its queue."""
        with self._lock:
            queue = self._queue(parts[0].partition)
            queue.batches.extendleft(reversed(parts))
            self._list(queue)

    def reenqueue(self, batches: Sequence[ProducerBatch], retry_at: float) -> None:
        """Put all outstanding batches of one partition at the head of its queue, in sequence order, until ``retry_at``.

        They replace stamped batches that the queue still has.
        """
        with self._lock:
            queue = self._queue(batches[0].partition)
            while queue.batches and queue.batches[0].header is not None:
                queue.batches.popleft()
            queue.batches.extendleft(reversed(batches))
            queue.retry_at = retry_at
            self._backing_off.append(queue)

    def set_drain_mode(self, partition: TopicPartition, mode: DrainMode) -> None:
        with self._lock:
            queue = self._queue(partition)
            queue.drain_mode = mode
            if queue.batches and mode is not DrainMode.MUTED:
                self._list(queue)

    def expire(self, now: float) -> list[ProducerBatch]:
        """Take every unclaimed batch older than delivery.timeout.ms (Java: ``expiredBatches``): queued, in flight, or
        lost by an unexpected exception. A batch that is not finished then is returned again.
        """
        if now < self.next_expiry:
            return []
        timeout = self._config.delivery_timeout_ms
        with self._lock:
            waiting = {batch for queue in self._queues.values() for batch in queue.batches}
            expired = [
                batch for batch in self._incomplete
                if batch not in waiting and not (batch.claimed or batch.done) and batch.created + timeout <= now
            ]  # fmt: skip
            for queue in self._queues.values():
                while (head := queue.unclaimed_head()) is not None and head.created + timeout <= now:
                    expired.append(self._take_head(queue))
            oldest = min((batch.created for batch in self._incomplete), default=NEVER)
            self.next_expiry = max(oldest + timeout, now + 1.0)
        return expired

    def finish(self, batches: Iterable[ProducerBatch]) -> None:
        """Forget completed batches and wake the callers of ``await_flush``."""
        with self._lock:
            for batch in batches:
                self._incomplete.pop(batch, None)
            if self._flushes:
                self._changed.notify_all()

    def abort(self, error: Exception) -> list[ProducerBatch]:
        """Refuse new rows with ``error`` and return every incomplete batch that no caller has claimed."""
        with self._lock:
            self._aborted_by = self._aborted_by or error
            claimed = {batch for queue in self._queues.values() for batch in queue.batches if batch.claimed}
            for queue in self._queues.values():
                queue.batches.clear()
            self._lingering.clear()
            self._changed.notify_all()
            unclaimed = [batch for batch in self._incomplete if batch not in claimed]
        self.pool.close(error)
        return unclaimed

    def _compress(self, topic: str, buffers: Sequence[Buffer]) -> tuple[bytes, int]:
        """The compressed bytes, and their size before."""
        compressed = compress(self._config.compression_type, self._config.compression_level, buffers)
        plain_size = sum(map(len, buffers))
        ratio = len(compressed) / plain_size
        with self._lock:
            # An estimate falls slowly and rises at once, so that few batches outgrow batch.size (Java:
            # ``CompressionRatioEstimator``).
            before = self._ratios.get(topic, 1.0)
            step = _DETERIORATING_STEP if ratio > before else -_IMPROVING_STEP
            self._ratios[topic] = max(before + step, ratio)
        return compressed, plain_size

    # Under the lock

    def _batch_limit(self, topic: str) -> int:
        batch_size = min(self._config.batch_size, self.topic_limits.max_message_bytes.get(topic, NEVER_REFUSED))
        if not self._codec:
            return batch_size
        ratio = self._ratios.get(topic, 1.0) * _SAFETY
        return max(int((batch_size - HEADER_SIZE) / ratio) + HEADER_SIZE, HEADER_SIZE + 1)

    def _queue(self, partition: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition, self._snapshot.leader(partition))
        return queue

    def _unqueue(self, batch: ProducerBatch) -> None:
        queue = self._queues[batch.partition]
        if batch in queue.batches:
            queue.batches.remove(batch)
        self._lingering.pop(batch, None)
        if queue.batches:
            self._list(queue)  # the next batch may be due already

    def _take_head(self, queue: PartitionQueue) -> ProducerBatch:
        head = queue.batches.popleft()
        if head.payload is None:
            self._lingering.pop(head, None)
        return head

    def _send_all(self) -> bool:
        return bool(self._flushes) or self._closing or self.pool.exhausted

    def _list(self, queue: PartitionQueue) -> None:
        """Add the queue to its leader's ready list, once."""
        if not queue.listed:
            if queue.leader == NO_LEADER:  # its topic may be new
                queue.leader = self._snapshot.leader(queue.partition)
            self._ready_by_node.setdefault(queue.leader, deque()).append(queue)
            queue.listed = True

    def _list_if_sendable(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """While a caller had the batch, it may have become due or full, or another batch may have followed it.

        Returns whether the sender must be woken for it: a queue that was listed before is waiting for its node.
        """
        if queue.listed or not (batch.payload is not None or batch.due or len(queue.batches) > 1):
            return False
        self._list(queue)
        return True

    def _take_snapshot(self, snapshot: ClusterSnapshot) -> None:
        """Looks at all queues only if leaders may have changed, else at those whose topic may be new."""
        changed = snapshot.changed > self._snapshot.generation
        self._snapshot = snapshot
        queues: Iterable[PartitionQueue] = self._ready_by_node[NO_LEADER]
        self._ready_by_node[NO_LEADER] = deque()
        if changed:
            queues = self._queues.values()
            self._ready_by_node = {NO_LEADER: deque()}
        for queue in queues:
            queue.leader = snapshot.leader(queue.partition)
            if queue.listed:
                queue.listed = False
                self._list(queue)

    def _end_linger(self, now: float) -> None:
        """Batches become due in the order they were opened: linger.ms is the same for all."""
        send_all = self._send_all()
        while self._lingering:
            batch, queue = next(iter(self._lingering.items()))
            if not send_all and batch.created + self._config.linger_ms > now:
                return
            del self._lingering[batch]
            batch.due = True
            if not batch.claimed:
                self._list(queue)

    def _end_backoff(self, now: float) -> None:
        waiting = []
        for queue in self._backing_off:
            if queue.retry_at <= now:
                self._list(queue)
            else:
                waiting.append(queue)
        self._backing_off = waiting

    def _next_check(self) -> float:
        check = min((queue.retry_at for queue in self._backing_off), default=NEVER)
        if self._lingering:
            batch = next(iter(self._lingering))
            check = min(check, batch.created + self._config.linger_ms)
        return check
