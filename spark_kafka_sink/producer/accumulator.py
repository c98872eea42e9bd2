"""``RecordAccumulator``: queues of batches per partition. The sender thread owns it. Other threads may read limits,
ratios, lengths of queues and ``undelivered``, which may change at any moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from itertools import count
from typing import Final, NamedTuple

from spark_kafka_sink.common.clock import NEVER
from spark_kafka_sink.common.compression import CODEC_IDS, compress, load_codec
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import NO_LEADER, ClusterSnapshot, TopicPartition
from spark_kafka_sink.common.waiting import CallOutcome
from spark_kafka_sink.producer.buffer_pool import BufferPool
from spark_kafka_sink.producer.callbacks import Callbacks
from spark_kafka_sink.producer.metrics import ProducerMetrics
from spark_kafka_sink.producer.producer_batch import Buffer, ProducerBatch
from spark_kafka_sink.records.batch import HEADER_SIZE

_LAG_MS = 1_000.0
"""The age from which a batch no longer keeps a buffer that it shares with others while a caller waits for memory."""

_LARGER = 1.1
"""How much larger than ``batch.size`` the batches of a columns call may be. They are filled evenly. A slice is often a
whole multiple of ``batch.size``, so with ``batch.size`` as the limit, half of the partitions would need one batch
more."""

NEVER_REFUSED: Final = 2**31 - 1
"""The limit in bytes of a topic that has refused no batch."""

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
    """The batches of one partition, oldest first.

    ``retry_at``: end of the retry backoff (monotonic ms). ``listed``: the queue is in the ready list of its leader.
    """

    partition: TopicPartition
    leader: int = NO_LEADER
    batches: deque[ProducerBatch] = field(default_factory=deque)
    listed: bool = False
    drain_mode: DrainMode = DrainMode.OPEN
    retry_at: float = 0.0

    def sendable(self, now: float, send_all: bool) -> bool:
        """Whether the first batch may be drained. ``send_all``: even if linger.ms has not passed."""
        if not self.batches or self.retry_at > now:
            return False
        head = self.batches[0]
        if self.drain_mode is not _OPEN:
            return self.drain_mode is _RETRIES_ONLY and head.header is not None
        return head.payload is not None or head.filled or head.due or send_all or len(self.batches) > 1


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
        """Notes that batches wait for this node. ``ready``: a request can be sent to it now."""
        if ready:
            self._waiting_since.pop(node_id, None)
            if node_id in self.unavailable:
                self.unavailable -= {node_id}
        elif self._timeout_ms and now - self._waiting_since.setdefault(node_id, now) > self._timeout_ms:
            self.unavailable |= {node_id}


@dataclass(slots=True, eq=False)
class TopicLimits:
    """The largest batch that each topic takes, learned from refusals. ``max_message_bytes``: in bytes of a batch as
    sent; any thread may read it, the sender thread writes it. A limit is forgotten after metadata.max.age.ms, because
    the topic's may have been raised.
    """

    _max_age_ms: float
    max_message_bytes: dict[str, int] = field(default_factory=dict)
    _until: dict[str, float] = field(default_factory=dict)

    def refused(self, topic: str, size: int, now: float) -> int:
        """Notes that a batch of ``size`` bytes was too large. Returns the topic's limit: the known limit if it is below
        ``size``, else half of ``size``."""
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
    """The batches that wait for an acknowledgement; those that linger do not count."""

    batches: int
    bytes: int
    oldest: ProducerBatch


@dataclass(slots=True, eq=False)
class Flush:
    """One call of ``flush``. No batch lingers until it is ``over``, because its batches are done or its caller has
    gone. ``left``: the batches that were not done when they were last looked at. ``outcome``: for a caller that waits.
    """

    outcome: CallOutcome | None = None
    left: list[ProducerBatch] = field(default_factory=list)
    over: bool = False

    def complete(self, callbacks: Callbacks) -> None:
        """Lets the caller continue when the callbacks of the flushed records have run."""
        outcome, self.over = self.outcome, True
        if outcome is not None:
            callbacks.add((lambda _: outcome.complete(None, None),), None)


class RecordAccumulator:
    def __init__(self, config: ProducerConfig, pool: BufferPool, metrics: ProducerMetrics) -> None:
        self.pool = pool
        self.metrics = metrics
        self.topic_limits = TopicLimits(config.metadata_max_age_ms)
        self.nodes = NodeAvailability(config.partitioner_availability_timeout_ms)
        self._config = config
        load_codec(config.compression_type)  # a missing library fails here, before any record is accepted
        self._codec = CODEC_IDS[config.compression_type]
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._ready_by_node: dict[int, deque[PartitionQueue]] = {NO_LEADER: deque()}
        self._lingering: dict[ProducerBatch, PartitionQueue] = {}
        self._linger_ends: list[tuple[float, int, ProducerBatch]] = []  # a heap, with batches that no longer linger
        self._numbers = count()
        self._backing_off: list[PartitionQueue] = []
        self._incomplete: dict[ProducerBatch, None] = {}  # in the order they were opened
        self._ratios: dict[str, float] = {}  # topic → expected compressed bytes per byte of records
        self._flushes: list[Flush] = []
        self.closing = False
        """Whether the producer is closing, so that no batch lingers."""
        self._snapshot = ClusterSnapshot()
        self.next_expiry = NEVER

    # Any thread

    def batch_limit(self, topic: str) -> int:
        """Bytes of a new batch before compression, header included."""
        return self._uncompressed(topic, min(self._config.batch_size, self._topic_limit(topic)))

    def column_batch_limit(self, topic: str) -> int:
        """Bytes of a new batch of a columns call before compression, header included."""
        most = min(self._topic_limit(topic), max(self._config.max_request_size, self._config.batch_size))
        return self._uncompressed(topic, min(int(_LARGER * self._config.batch_size), most))

    def queue_lengths(self, topic: str, partitions: Sequence[int]) -> list[int]:
        """Waiting batches per partition, in the order of ``partitions``, for adaptive partitioning (KIP-794)."""
        if not self._incomplete:
            return [0] * len(partitions)
        queues = map(self._queues.get, (TopicPartition(topic, partition) for partition in partitions))
        return [0 if queue is None else len(queue.batches) for queue in queues]

    @property
    def has_incomplete(self) -> bool:
        return bool(self._incomplete)

    @property
    def undelivered(self) -> int:
        """Number of records in batches that are not complete. O(batches)."""
        return sum(batch.count for batch in [*self._incomplete])

    def backlog(self) -> Backlog | None:
        """The batches that wait for an acknowledgement; None if there are none. O(batches)."""
        waiting = [batch for batch in [*self._incomplete] if batch not in self._lingering]
        if not waiting:
            return None
        return Backlog(len(waiting), sum(batch.size for batch in waiting), min(waiting, key=lambda each: each.created))

    def compress(self, batch: ProducerBatch) -> None:
        """Seals a batch and compresses its rows. The estimate of the topic's ratio is updated in ``add``."""
        payload: Sequence[Buffer] = batch.buffers
        plain_size = sum(map(len, payload))
        if self._codec:
            payload = [compress(self._config.compression_type, self._config.compression_level, payload)]
            batch.buffers = []
        batch.seal(self._codec, payload, plain_size)

    # The sender thread

    def open_batch(self, partition: TopicPartition) -> ProducerBatch | None:
        """The partition's last batch if it takes more rows."""
        queue = self._queues.get(partition)
        batch = queue.batches[-1] if queue is not None and queue.batches else None
        return None if batch is None or batch.filled or batch.payload is not None else batch

    def open_room(self, partition: TopicPartition) -> int:
        """Bytes that the partition's last batch still accepts; 0 without an open one."""
        batch = self.open_batch(partition)
        return 0 if batch is None else max(0, batch.limit - batch.size)

    def add(self, batch: ProducerBatch) -> None:
        """A new batch becomes the last of its queue; the one before it takes no more rows."""
        queue = self._queue(batch.partition)
        queue.batches.append(batch)
        self._incomplete[batch] = None
        self.next_expiry = min(self.next_expiry, batch.created + self._config.delivery_timeout_ms)
        if batch.payload is None and not batch.filled:
            self._lingering[batch] = queue
            end = batch.lingers_until, next(self._numbers), batch  # with a number, because batches cannot be compared
            heappush(self._linger_ends, end)
        elif batch.codec:
            self._note_ratio(batch)
        if batch.payload is not None or batch.filled or len(queue.batches) > 1:
            self._list(queue)

    def filled(self, batch: ProducerBatch) -> None:
        """Notes that an open batch has become full."""
        self._lingering.pop(batch, None)
        self._list(self._queues[batch.partition])

    def begin_flush(self, flush: Flush) -> None:
        """No batch lingers from here until the flush is ``over`` (Java: ``beginFlush``)."""
        flush.left = [*self._incomplete]
        self._flushes.append(flush)

    def flushed(self) -> list[Flush]:
        """Takes the flushes whose batches are all done, or their parts after a split."""
        done = []
        for flush in self._flushes:
            # Stops at the first batch that is not done, so that an iteration does not go through all of them.
            while flush.left and flush.left[-1] not in self._incomplete:
                flush.left.extend(flush.left.pop().parts)
            if not flush.left:
                done.append(flush)
        if done or any(flush.over for flush in self._flushes):
            self._flushes = [flush for flush in self._flushes if flush.left and not flush.over]
        return done

    def stop_sharing(self, now: float) -> None:
        """Called while a caller waits for memory. Old batches copy their slices of shared buffers, which become free.
        So a partition without a leader keeps only its own bytes.
        """
        for batch in self._incomplete:
            if batch.created > now - _LAG_MS:
                return
            if batch.shared_buffer is not None and batch.payload is not None:
                batch.payload = [bytes(part) for part in batch.payload]
                batch.buffers = []
                self.pool.charge(batch, sum(map(len, batch.payload)))

    def seal(self, batch: ProducerBatch) -> None:
        """Close a drained batch and compress it."""
        self.compress(batch)
        if batch.codec:
            self.pool.charge(batch, batch.size - HEADER_SIZE)
            self._note_ratio(batch)

    def topics_in_use(self) -> frozenset[str]:
        """The topics of all batches that are not done, including batches in flight."""
        return frozenset(batch.partition.topic for batch in self._incomplete)

    def ready(self, snapshot: ClusterSnapshot, now: float) -> ReadyCheckResult:
        """The nodes with sendable batches. O(ready partitions)."""
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
            queues.popleft().listed = False
        return batches

    def undrain(self, batch: ProducerBatch) -> None:
        """Make a drained batch the head of its queue again and mute the partition."""
        queue = self._queue(batch.partition)
        batch.due = True
        queue.batches.appendleft(batch)
        queue.drain_mode = DrainMode.MUTED

    def drain_all(self) -> list[ProducerBatch]:
        """Take every queued batch. They will not be sent."""
        return [self._take_head(queue) for queue in self._queues.values() for _ in range(len(queue.batches))]

    def exceeds_topic_limit(self, batch: ProducerBatch) -> bool:
        """Whether a sealed batch is larger than its topic takes, and could be split."""
        return batch.size > self._topic_limit(batch.partition.topic) and batch.count > 1

    def split(self, batch: ProducerBatch, limit: int, alone: Container[int] = ()) -> tuple[ProducerBatch, ...]:
        """Replace a sealed batch by others, as ``ProducerBatch.split`` (Java: ``splitAndReenqueue``)."""
        parts = batch.split(limit, self._config.compression_level, alone)
        for part in parts:
            self.pool.charge(part, part.size)
        self.pool.release([batch])
        batch.parts = parts
        self._incomplete.update(dict.fromkeys(parts))
        self._incomplete.pop(batch, None)
        return parts

    def undrain_parts(self, parts: Sequence[ProducerBatch]) -> None:
        """The parts of a drained batch become the head of its queue."""
        queue = self._queue(parts[0].partition)
        queue.batches.extendleft(reversed(parts))
        self._list(queue)

    def reenqueue(self, batches: Sequence[ProducerBatch], retry_at: float) -> None:
        """Put all outstanding batches of one partition at the head of its queue, in sequence order, until ``retry_at``.

        They replace stamped batches that the queue still has.
        """
        queue = self._queue(batches[0].partition)
        while queue.batches and queue.batches[0].header is not None:
            queue.batches.popleft()
        queue.batches.extendleft(reversed(batches))
        queue.retry_at = retry_at
        self._backing_off.append(queue)

    def set_drain_mode(self, partition: TopicPartition, mode: DrainMode) -> None:
        queue = self._queue(partition)
        queue.drain_mode = mode
        if queue.batches and mode is not DrainMode.MUTED:
            self._list(queue)

    def expire(self, now: float) -> list[ProducerBatch]:
        """Take every batch older than delivery.timeout.ms (Java: ``expiredBatches``): queued, in flight, or
        lost by an unexpected exception. A batch that is not finished then is returned again.
        """
        if now < self.next_expiry:
            return []
        timeout = self._config.delivery_timeout_ms
        waiting = {batch for queue in self._queues.values() for batch in queue.batches}
        expired = [
            batch for batch in self._incomplete
            if batch not in waiting and not batch.done and batch.created + timeout <= now
        ]  # fmt: skip
        for queue in self._queues.values():
            while queue.batches and queue.batches[0].created + timeout <= now:
                expired.append(self._take_head(queue))
        oldest = min((batch.created for batch in self._incomplete), default=NEVER)
        self.next_expiry = max(oldest + timeout, now + 1.0)  # a batch that cannot be finished is not tried all the time
        return expired

    def finish(self, batches: Iterable[ProducerBatch]) -> None:
        """Forget completed batches."""
        for batch in batches:
            self._incomplete.pop(batch, None)

    def abort(self, error: Exception) -> list[ProducerBatch]:
        """Empties the queues and returns every incomplete batch. Waits for memory raise ``error``."""
        for queue in self._queues.values():
            queue.batches.clear()
        self._lingering.clear()
        self.pool.close(error)
        return [*self._incomplete]

    def _note_ratio(self, batch: ProducerBatch) -> None:
        """Updates the topic's estimate, which falls slowly and rises at once, so that few batches outgrow batch.size
        (Java: ``CompressionRatioEstimator``).
        """
        ratio = (batch.size - HEADER_SIZE) / max(1, batch.record_bytes)
        before = self._ratios.get(batch.partition.topic, 1.0)
        step = _DETERIORATING_STEP if ratio > before else -_IMPROVING_STEP
        self._ratios[batch.partition.topic] = max(before + step, ratio)

    def _topic_limit(self, topic: str) -> int:
        return self.topic_limits.max_message_bytes.get(topic, NEVER_REFUSED)

    def _uncompressed(self, topic: str, size: int) -> int:
        """Bytes before compression of a batch that has this size after it, at the topic's ratio."""
        if not self._codec:
            return size
        ratio = self._ratios.get(topic, 1.0) * _SAFETY
        return max(int((size - HEADER_SIZE) / ratio) + HEADER_SIZE, HEADER_SIZE + 1)

    def _queue(self, partition: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition, self._snapshot.leader(partition))
        return queue

    def _take_head(self, queue: PartitionQueue) -> ProducerBatch:
        head = queue.batches.popleft()
        if head.payload is None:
            self._lingering.pop(head, None)
        return head

    def _send_all(self) -> bool:
        return bool(self._flushes or self.closing or self.pool.waiting)

    def _list(self, queue: PartitionQueue) -> None:
        """Add the queue to its leader's ready list, once."""
        if not queue.listed:
            if queue.leader == NO_LEADER:  # its topic may be new
                queue.leader = self._snapshot.leader(queue.partition)
            self._ready_by_node.setdefault(queue.leader, deque()).append(queue)
            queue.listed = True

    def _take_snapshot(self, snapshot: ClusterSnapshot) -> None:
        """Looks at all queues if leaders may have changed, otherwise only at queues whose topic may be new."""
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
        send_all, ends = self._send_all(), self._linger_ends
        while ends and (send_all or ends[0][0] <= now):
            *_, batch = heappop(ends)
            if (queue := self._lingering.pop(batch, None)) is not None:
                batch.due = True
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
        ends = self._linger_ends
        while ends and ends[0][-1] not in self._lingering:
            heappop(ends)
        return min(check, ends[0][0]) if ends else check
