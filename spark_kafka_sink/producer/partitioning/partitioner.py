"""``Partitioner``: gives every row of a slice its partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from spark_kafka_sink.common.model import ClusterSnapshot, TopicPartition
from spark_kafka_sink.records.batch import HEADER_SIZE
from spark_kafka_sink.records.columns import Int32Array, Int64Array, RecordColumns

NOT_GIVEN = -1
"""In an ``explicit`` column, for a row that names no partition."""

LEFT_OUT = -(1 << 31)
"""In an ``explicit`` column, for a row that is not appended. A ``Partitioner`` of the user sees partition 0, and size
0.
"""


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """The load of a topic's partitions at one moment (Java: ``BuiltInPartitioner.PartitionLoadStats``).

    ``available``: the partitions whose leader has taken data within ``partitioner.availability.timeout.ms``;
    ``queue_lengths``: the number of waiting batches of each; ``batches``: None where each call opens new batches.
    """

    available: tuple[int, ...]
    queue_lengths: tuple[int, ...]
    cluster: ClusterSnapshot = field(default_factory=ClusterSnapshot)
    batches: OpenBatches | None = None

    def in_rack(self, topic: str, rack: str) -> PartitionLoad:
        """The load of the available partitions whose leader is in ``rack``; of all if there are none."""
        nodes, leaders = self.cluster.nodes, self.cluster.topics[topic].leaders
        near = {node.id for node in nodes.values() if node.rack == rack}
        chosen = [index for index, partition in enumerate(self.available) if leaders[partition] in near]
        if not chosen:
            return self
        return replace(
            self,
            available=tuple(self.available[index] for index in chosen),
            queue_lengths=tuple(self.queue_lengths[index] for index in chosen),
        )


class Partitioner(Protocol):
    """Chooses partitions for whole columns, where Java's ``clients.producer.Partitioner`` chooses for one record.

    Runs on the thread that appends; several threads may call it at once. A user's class may leave out ``configure`` and
    ``close``.
    """

    def configure(self, config: Mapping[str, object]) -> None:
        """Called first, once: the producer's options by Kafka's names."""
        return

    def close(self) -> None:
        """Called once, when the producer is closed."""
        return

    def partition(
        self,
        topic: str,
        columns: RecordColumns,
        explicit: Int32Array | None,
        sizes: Int64Array,
        count: int,
        load: PartitionLoad,
    ) -> Int32Array:
        """The partition of each row, from 0 to ``count - 1``.

        ``explicit``: the partitions that rows name themselves, already checked, ``NOT_GIVEN`` where they name none;
        these rows keep them. ``sizes``: bytes of each row as a record.

        Records of ``send`` are buffered first and chosen for together, on any thread: an error that this raises, or one
        partition that does not exist, fails the futures of all of them. ``send_columns`` raises it before any row is
        appended. Only a ``RecordPartitioner`` can fail a single record.
        """


def fresh_partitions(explicit: Int32Array | None, rows: int) -> Int32Array:
    """An array for the result: the partitions that rows name, ``NOT_GIVEN`` elsewhere."""
    return np.full(rows, NOT_GIVEN, np.int32) if explicit is None else explicit.copy()


class OpenBatches(Protocol):
    """What partitioners need to know of the accumulator's batches."""

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
