"""The batches of one partition, oldest first, and whether the first of them may go (pure: no lock, no clock)."""

from __future__ import annotations

from collections import deque
from enum import Enum

from spark_kafka_sink.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.model import NO_LEADER, TopicPartition


class DrainMode(Enum):
    """What of a partition may be drained; the sender decides (Kafka: ``RecordAccumulator.mutePartition``)."""

    OPEN = "whatever is sendable"
    RETRIES_ONLY = "only batches that were sent before: fresh ones wait for a new epoch"
    MUTED = "muted"


# Looked up once: a member of an Enum costs as much to look up as the rest of ``sendable``.
_ALL, _RETRIES = DrainMode.OPEN, DrainMode.RETRIES_ONLY


class PartitionQueue:
    """Guarded by the accumulator's lock.

    ``retry_at`` is when a batch put back for a retry may go again. ``listed`` says that the queue stands in its
    leader's ready list, so that it is never there twice.
    """

    __slots__ = ("admission", "batches", "leader", "listed", "partition", "retry_at")

    def __init__(self, partition: TopicPartition, leader: int = NO_LEADER) -> None:
        self.partition = partition
        self.batches: deque[ProducerBatch] = deque()
        self.leader = leader
        self.listed = False
        self.admission = DrainMode.OPEN
        self.retry_at = 0.0

    def sendable(self, now: float, send_all: bool) -> bool:
        """Whether the first batch may be drained.

        ``send_all``: a flush, a close or exhausted memory let nothing linger.
        """
        if not self.batches or self.retry_at > now:
            return False
        head = self.batches[0]
        if head.claimed:  # sealed or not: its caller may have to take it back
            return False
        if self.admission is not _ALL:
            return self.admission is _RETRIES and head.header is not None
        return head.payload is not None or head.due or send_all or len(self.batches) > 1

    def lags(self, since: float) -> bool:
        """Whether its batches will wait: muted, leaderless, or one created before ``since`` still has to go."""
        return (
            self.admission is not DrainMode.OPEN
            or self.leader == NO_LEADER
            or (bool(self.batches) and self.batches[0].created < since)
        )

    def open_tail(self) -> ProducerBatch | None:
        """The batch that the next rows go to, if it takes any: unsealed and in nobody else's hands."""
        if not self.batches:
            return None
        tail = self.batches[-1]
        return None if tail.payload is not None or tail.claimed or tail.filled else tail
