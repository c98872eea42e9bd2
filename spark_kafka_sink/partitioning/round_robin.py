"""Each row to the next partition (Kafka: ``RoundRobinPartitioner``)."""

from __future__ import annotations

import numpy as np

from spark_kafka_sink.partitioning.partitioner import NOT_GIVEN, Int32Array, Int64Array, PartitionLoad
from spark_kafka_sink.records.columns import RecordColumns


class RoundRobinPartitioner:
    """Goes round the available partitions, or round all while none is, whatever the keys.

    A row that names its partition takes no turn. Safe to call from several threads: at worst two calls at once begin
    at the same partition.
    """

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def partition(
        self,
        topic: str,
        columns: RecordColumns,
        explicit: Int32Array | None,
        sizes: Int64Array,
        count: int,
        load: PartitionLoad,
    ) -> Int32Array:
        """As in ``Partitioner``."""
        partitions = np.full(len(columns), NOT_GIVEN, np.int32) if explicit is None else explicit.copy()
        free = np.flatnonzero(partitions == NOT_GIVEN)
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + len(free)
        circle = np.array(load.available or range(count), np.int32)
        partitions[free] = circle[(turn + np.arange(len(free))) % len(circle)]
        return partitions
