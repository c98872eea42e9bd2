"""The one place where callers and the sender thread meet (Kafka: ``RecordAccumulator``).

Callers: ``claim``, ``publish``, ``give_back``, ``await_flush``. The sender thread: ``ready``, ``drain``, ``reenqueue``,
``expire``, ``admit``, ``finish``. One lock guards all queues; nothing is encoded, compressed, logged or called back
under it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_kafka_sink.accumulator.availability import NodeAvailability
from spark_kafka_sink.accumulator.buffer_pool import BufferPool
from spark_kafka_sink.accumulator.claim import Claim, RowSizes, Run
from spark_kafka_sink.accumulator.compression_ratio import CompressionRatios
from spark_kafka_sink.accumulator.partition_queue import DrainMode, PartitionQueue
from spark_kafka_sink.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.clock import Clock
from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.metrics import ProducerMetrics
from spark_kafka_sink.model import NO_LEADER, ClusterSnapshot, TopicPartition
from spark_kafka_sink.records.batch import HEADER_SIZE
from spark_kafka_sink.waiting import Waiters

NEVER = float("inf")
_LAG_MS = 1_000.0  # a batch that waits longer than it should by this is taken to wait for more


@dataclass(frozen=True, slots=True)
class AccumulatorConfig:
    """``batch_size`` in bytes, the rest in ms: batch.size, linger.ms, delivery.timeout.ms; ``max_request_size`` in
    bytes; ``availability_timeout_ms``: partitioner.availability.timeout.ms.
    """

    batch_size: int
    linger_ms: float
    delivery_timeout_ms: float
    max_request_size: int
    compresses: bool
    availability_timeout_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Readiness:
    """``nodes`` lead a partition with something to send; ``next_check`` is when lingering or backing off may end that
    changes this (monotonic ms); ``unknown_leaders`` are topics with sendable batches and nobody to send them to.
    """

    nodes: tuple[int, ...]
    next_check: float
    unknown_leaders: frozenset[str]


class Flush:
    """Whoever flushes has one. ``batches`` were incomplete when it began."""

    __slots__ = ("batches",)

    def __init__(self) -> None:
        self.batches: frozenset[ProducerBatch] = frozenset()


class RecordAccumulator:
    def __init__(self, config: AccumulatorConfig, pool: BufferPool, clock: Clock) -> None:
        self.pool = pool
        self.metrics = ProducerMetrics(pool.gauges(), pool.counters)
        self.nodes = NodeAvailability(config.availability_timeout_ms)
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._changed = Waiters()
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._ready_by_node: dict[int, deque[PartitionQueue]] = {NO_LEADER: deque()}
        self._lingering: OrderedDict[ProducerBatch, PartitionQueue] = OrderedDict()
        self._backing_off: list[PartitionQueue] = []
        self._incomplete: dict[ProducerBatch, None] = {}  # in the order they were opened
        self._ratios = CompressionRatios()
        self._flushes: set[Flush] = set()
        self._closing = False
        self._aborted_by: Exception | None = None
        self._snapshot = ClusterSnapshot()
        self._next_expiry = NEVER

    # Callers' side

    def batch_limit(self, topic: str) -> int:
        """Bytes of uncompressed records, header included, that a new batch of ``topic`` may have."""
        if not self._config.compresses:
            return self._config.batch_size
        with self._lock:
            ratio = self._ratios.estimate(topic)
        return max(int((self._config.batch_size - HEADER_SIZE) / ratio) + HEADER_SIZE, HEADER_SIZE + 1)

    def lagging(self, topic: str, runs: Sequence[Run], now: float) -> frozenset[int]:
        """Partitions whose batches will wait: what is appended to them now will not be sent soon."""
        since = now - self._config.linger_ms - _LAG_MS
        with self._lock:
            lag = [run.partition for run in runs if self._queue(TopicPartition(topic, run.partition)).lags(since)]
        return frozenset(lag)

    def claim(self, claim: Claim, topic: str, rows: RowSizes, now: float) -> None:
        """Cut ``rows`` into batches that are the caller's until it publishes or undoes the claim.

        Whatever this raises, the claim knows what to undo.
        """
        with self._lock:
            if self._aborted_by is not None:
                raise self._aborted_by
            for run in rows.runs:
                claim.take(self._queue(TopicPartition(topic, run.partition)), run, rows, now)
            self._incomplete.update(dict.fromkeys(claim.opened))
            self._next_expiry = min(self._next_expiry, now + self._config.delivery_timeout_ms)

    def publish(self, claim: Claim) -> bool:
        """Let the sender see what was claimed; returns whether it should be woken for it.

        Raises the error the producer was aborted with: the caller must then ``retract``. After any other interruption
        the claim says whether it is published.
        """
        with self._lock:
            if self._aborted_by is not None:
                raise self._aborted_by
            newest = next(reversed(self._lingering)).created if self._lingering else 0.0
            in_order = True
            batches = claim.batches()
            for batch in batches:
                queue = self._queues[batch.partition]
                if batch.payload is not None:
                    self._lingering.pop(batch, None)
                elif not batch.due and batch not in self._lingering:
                    self._lingering[batch] = queue
                    in_order = in_order and batch.created >= newest
                self._list_if_over(queue, batch)
            if not in_order:
                self._lingering = OrderedDict(sorted(self._lingering.items(), key=lambda item: item[0].created))
            try:
                claim.published = True
                _unclaim(batches)
            except BaseException:
                _unclaim(batches)
                raise
            return bool(claim.filled or claim.opened or self._flushes or self.pool.exhausted)

    def give_back(self, claim: Claim) -> bool:
        """Undo a claim whose rows could not be encoded: its batches are as they were before.

        False when the producer was aborted: the caller must then ``retract``.
        """
        with self._lock:
            if self._aborted_by is not None:
                return False
            try:
                self._give_back(claim)
            except BaseException:
                self._give_back(claim)
                raise
            return True

    def retract(self, claim: Claim) -> None:
        """Take a claim's batches out altogether, with what they held before: the caller completes and ``finish``es
        them.
        """
        with self._lock:
            for batch in claim.batches():
                self._unqueue(batch)

    def replace(self, batch: ProducerBatch, parts: tuple[ProducerBatch, ...]) -> None:
        """A batch was split: its parts are incomplete in its stead, and its topic's ratio is learned anew."""
        with self._lock:
            batch.parts = parts
            self._incomplete.pop(batch, None)
            self._incomplete.update(dict.fromkeys(parts))
            self._ratios.reset(batch.partition.topic, 1.0)

    def observe_ratio(self, topic: str, ratio: float) -> None:
        with self._lock:
            self._ratios.observe(topic, ratio)

    def queue_lengths(self, topic: str, partitions: Iterable[int]) -> list[int]:
        """Batches waiting per partition: the load that adaptive partitioning weighs (KIP-794)."""
        with self._lock:
            queues = [self._queues.get(TopicPartition(topic, partition)) for partition in partitions]
            return [len(queue.batches) if queue is not None else 0 for queue in queues]

    def begin_flush(self, flush: Flush) -> Flush:
        """From here until ``await_flush`` or ``end_flush`` nothing lingers."""
        with self._lock:
            self._flushes.add(flush)
            flush.batches = frozenset(self._incomplete)
        return flush

    def await_flush(self, flush: Flush, timeout_ms: float) -> None:
        """Wait until every batch of a flush is finished, well or not. The sender must have been woken.

        A batch that was split is finished with its parts, one that was given back has nothing to wait for.
        """
        deadline = self._clock.now() + timeout_ms
        pending = list(flush.batches)
        try:
            while True:
                with self._lock:
                    while pending and pending[-1] not in self._incomplete:
                        pending.extend(pending.pop().parts)
                    if not pending:
                        return
                    remaining = deadline - self._clock.now()
                    if remaining <= 0:
                        raise KafkaTimeoutError(f"Failed to flush within {timeout_ms:.0f} ms")
                    sleeper = self._changed.join()
                self._changed.sleep(sleeper, remaining)
        finally:
            self.end_flush(flush)

    def end_flush(self, flush: Flush) -> None:
        """Harmless when it has ended."""
        with self._lock:
            self._flushes.discard(flush)

    def close(self) -> None:
        """Nothing lingers any more."""
        with self._lock:
            self._closing = True

    # The sender thread's side

    @property
    def has_incomplete(self) -> bool:
        return bool(self._incomplete)

    def topics_in_use(self) -> frozenset[str]:
        """The topics of all batches that are not done, in flight too."""
        with self._lock:
            return frozenset(batch.partition.topic for batch in self._incomplete)

    def ready(self, snapshot: ClusterSnapshot, now: float) -> Readiness:
        """Which nodes have something to get. Costs what is ready, not what exists."""
        with self._lock:
            if snapshot.generation != self._snapshot.generation:
                self._follow_leaders(snapshot)
            self._end_linger(now)
            self._end_backoff(now)
            nodes = tuple(node for node, queues in self._ready_by_node.items() if queues and node != NO_LEADER)
            unknown = frozenset(q.partition.topic for q in self._ready_by_node[NO_LEADER] if q.batches)
            return Readiness(nodes, self._next_check(), unknown)

    def drain(self, node: int, now: float) -> list[ProducerBatch]:
        """Take at most one batch per partition that ``node`` leads, and at most max.request.size bytes of them.

        Each drain starts with the partitions the last one did not reach; a batch over the limit goes alone.
        """
        batches: list[ProducerBatch] = []
        size = 0
        with self._lock:
            queues = self._ready_by_node.get(node, deque())
            send_all = self._send_all()
            for _ in range(len(queues)):
                queue = queues[0]
                if not queue.sendable(now, send_all):
                    queues.popleft().listed = False
                    continue
                size += queue.batches[0].size
                if batches and size > self._config.max_request_size:
                    break
                batches.append(self._take_head(queue))
                if queue.sendable(now, send_all):
                    queues.rotate(-1)
                else:
                    queues.popleft().listed = False
        return batches

    def put_back(self, batch: ProducerBatch) -> None:
        """Undo the drain of a batch: it is the head of its queue again, which is muted until ``admit``."""
        with self._lock:
            queue = self._queue(batch.partition)
            batch.due = True
            queue.batches.appendleft(batch)
            queue.admission = DrainMode.MUTED

    def take_queued(self) -> list[ProducerBatch]:
        """Take out everything that waits and is in no caller's hands: it is not going to be sent."""
        taken: list[ProducerBatch] = []
        with self._lock:
            for queue in self._queues.values():
                for _ in range(len(queue.batches)):
                    if self._unclaimed_head(queue) is None:
                        queue.batches.rotate(-1)
                    else:
                        taken.append(self._take_head(queue))
        return taken

    def reenqueue(self, batches: Sequence[ProducerBatch], retry_at: float) -> None:
        """Put batches of one partition back to the head of its queue, in sequence order, until ``retry_at``.

        They are all that is outstanding of the partition: what of it already waits there is replaced.
        """
        with self._lock:
            queue = self._queue(batches[0].partition)
            while queue.batches and queue.batches[0].header is not None:
                queue.batches.popleft()
            queue.batches.extendleft(reversed(batches))
            queue.retry_at = retry_at
            self._backing_off.append(queue)

    def set_drain_mode(self, partition: TopicPartition, admission: DrainMode) -> None:
        with self._lock:
            queue = self._queue(partition)
            queue.admission = admission
            if queue.batches and admission is not DrainMode.MUTED:
                self._list(queue)

    def expire(self, now: float) -> list[ProducerBatch]:
        """Take out what is incomplete for delivery.timeout.ms and in no caller's hands, wherever it is: also in flight,
        and where a stray exception left it. What is not finished then is given again.
        """
        if now < self._next_expiry:
            return []
        timeout = self._config.delivery_timeout_ms
        with self._lock:
            waiting = {batch for queue in self._queues.values() for batch in queue.batches}
            expired = [
                batch for batch in self._incomplete
                if batch not in waiting and not (batch.claimed or batch.done) and batch.created + timeout <= now
            ]  # fmt: skip
            for queue in self._queues.values():
                while (head := self._unclaimed_head(queue)) is not None and head.created + timeout <= now:
                    expired.append(self._take_head(queue))
            oldest = min((batch.created for batch in self._incomplete), default=NEVER)
            self._next_expiry = max(oldest + timeout, now + 1.0)
        return expired

    @property
    def next_expiry(self) -> float:
        return self._next_expiry

    def finish(self, batches: Iterable[ProducerBatch]) -> None:
        """Forget completed batches and wake whoever flushes."""
        with self._lock:
            self._forget(batches)
            if self._flushes:
                self._changed.notify_all()

    def abort(self, error: Exception) -> list[ProducerBatch]:
        """Refuse new rows with ``error`` and give up every incomplete batch that is in no caller's hands."""
        with self._lock:
            self._aborted_by = self._aborted_by or error
            claimed = {batch for queue in self._queues.values() for batch in queue.batches if batch.claimed}
            for queue in self._queues.values():
                queue.batches.clear()
            self._lingering.clear()
            self._changed.notify_all()
            orphans = [batch for batch in self._incomplete if batch not in claimed]
        self.pool.close(error)
        return orphans

    # Under the lock

    def _queue(self, partition: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition, self._snapshot.leader(partition))
        return queue

    def _give_back(self, claim: Claim) -> None:
        """May be done twice."""
        for batch in claim.opened:
            self._unqueue(batch)
        self._forget(claim.opened)
        for batch, count, size in claim.before:
            batch.count, batch.size = count, size
            batch.claimed = batch.filled = False
            self._list_if_over(self._queues[batch.partition], batch)
        claim.undone = True
        self._changed.notify_all()

    def _forget(self, batches: Iterable[ProducerBatch]) -> None:
        for batch in batches:
            self._incomplete.pop(batch, None)

    def _unqueue(self, batch: ProducerBatch) -> None:
        queue = self._queues[batch.partition]
        if batch in queue.batches:
            queue.batches.remove(batch)
        self._lingering.pop(batch, None)
        if queue.batches:
            self._list(queue)  # what stands behind it may have been due all the while

    def _take_head(self, queue: PartitionQueue) -> ProducerBatch:
        head = queue.batches.popleft()
        if head.payload is None:
            self._lingering.pop(head, None)
        return head

    @staticmethod
    def _unclaimed_head(queue: PartitionQueue) -> ProducerBatch | None:
        head = queue.batches[0] if queue.batches else None
        return None if head is None or head.claimed else head

    def _send_all(self) -> bool:
        return bool(self._flushes) or self._closing or self.pool.exhausted

    def _list(self, queue: PartitionQueue) -> None:
        if not queue.listed:
            ready = self._ready_by_node.setdefault(queue.leader, deque())
            try:
                ready.append(queue)
                queue.listed = True
            except BaseException:
                queue.listed = queue in ready
                raise

    def _list_if_over(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """A batch that left a caller's hands may have been due, full or overtaken while it was there."""
        if not queue.listed and (batch.payload is not None or batch.due or len(queue.batches) > 1):
            self._list(queue)

    def _follow_leaders(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._ready_by_node = {NO_LEADER: deque()}
        for partition, queue in self._queues.items():
            queue.leader = snapshot.leader(partition)
            if queue.listed:
                queue.listed = False
                self._list(queue)

    def _end_linger(self, now: float) -> None:
        """Open batches come due in the order they were opened, not published: linger.ms is the same for all."""
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


def _unclaim(batches: Iterable[ProducerBatch]) -> None:
    for batch in batches:
        batch.claimed = False
