"""Each row to the next partition (Java: ``RoundRobinPartitioner``)."""

from __future__ import annotations

import numpy as np

from spark_kafka_sink.producer.partitioning.partitioner import NOT_GIVEN, Partitioner, PartitionLoad, fresh_partitions
from spark_kafka_sink.records.columns import Int32Array, Int64Array, RecordColumns


class RoundRobinPartitioner(Partitioner):
    """Cycles through the available partitions, or through all while none is available; ignores keys.

    Skips rows that name a partition. Thread-safe: at worst, two concurrent calls begin at the same partition.
    """

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

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
        partitions = fresh_partitions(explicit, len(columns))
        free = np.flatnonzero(partitions == NOT_GIVEN)
        first = self._next.get(topic, 0)
        self._next[topic] = first + len(free)
        cycle = np.array(load.available or range(count), np.int32)
        partitions[free] = cycle[(first + np.arange(len(free))) % len(cycle)]
        return partitions
