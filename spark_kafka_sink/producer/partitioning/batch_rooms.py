"""``BatchRooms``: whether the next record of a partition joins an open batch or needs a new one."""

from __future__ import annotations

from typing import Protocol

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.records.batch import HEADER_SIZE


class OpenBatches(Protocol):
    """What the accumulator tells of the batches it has."""

    def batch_limit(self, topic: str) -> int:
        """Bytes of a new batch before compression, header included."""

    def open_room(self, partition: TopicPartition) -> int:
        """Bytes that the partition's last batch still accepts; 0 without an open one."""


class BatchRooms:
    """Bytes that the last batch of each partition of a topic accepts: the accumulator's, less the records since.

    Kafka asks the accumulator per record (``RecordAppendResult.abortForNewBatch``). Here records join their batches
    later, many at once.
    """

    def __init__(self, batches: OpenBatches, topic: str) -> None:
        self._batches = batches
        self._topic = topic
        self._left: dict[int, int] = {}
        self.capacity = max(1, batches.batch_limit(topic) - HEADER_SIZE)
        """Bytes of a new batch."""

    def left(self, partition: int) -> int:
        left = self._left.get(partition)
        if left is None:
            left = self._left[partition] = self._batches.open_room(TopicPartition(self._topic, partition))
        return left

    def take(self, partition: int, size: int) -> None:
        """Records of ``size`` bytes join the last batch if they fit, else a new one."""
        left = self.left(partition)
        self._left[partition] = max(0, (left if size <= left else self.capacity) - size)
