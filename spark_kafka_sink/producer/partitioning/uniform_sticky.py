"""All rows to one partition until a new batch is needed (KIP-480; Java: ``UniformStickyPartitioner``, and for rows
without a key ``DefaultPartitioner``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from random import Random

import numpy as np

from spark_kafka_sink.producer.partitioning.batch_rooms import BatchRooms
from spark_kafka_sink.producer.partitioning.key_hash import KeyHash
from spark_kafka_sink.producer.partitioning.partitioner import NOT_GIVEN, Partitioner, PartitionLoad, fresh_partitions
from spark_kafka_sink.records.columns import Int32Array, Int64Array, RecordColumns, null_mask
from spark_kafka_sink.records.sizes import cumulated


class UniformStickyPartitioner(Partitioner):
    """A row that does not fit into its partition's open batch goes to another available partition.

    Ignores keys, unless there is a ``key_hash``: then only rows without a key are sticky. The keyed rows of a call take
    no room from its sticky ones, because they may go to any partition.

    Never the one just left while others are available, as Kafka 2.4; ``default`` (KIP-794) may pick it again.
    Thread-safe: at worst, two concurrent calls leave the same partition.
    """

    def __init__(self, random: Random, key_hash: KeyHash | None = None) -> None:
        self._random = random
        self._key_hash = key_hash
        self._current: dict[str, int] = {}

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
        if self._key_hash is not None and columns.key is not None:
            keyed = (partitions == NOT_GIVEN) & ~null_mask(columns.key)
            partitions[keyed] = self._key_hash.partitions(columns.key, count)[keyed]
        free = np.flatnonzero(partitions == NOT_GIVEN)
        cumulative = cumulated(sizes[free])
        available = load.available or range(count)
        rooms = None if load.batches is None else BatchRooms(load.batches, topic)
        current = self._current.get(topic)
        if current is None or current not in available:
            current = self._random.choice(available)
        row = 0
        while row < len(free):
            end = _fitting(cumulative, row, 0 if rooms is None else rooms.left(current))
            if end == row:  # a new batch
                current = self._other(current, available)
                end = _fitting(cumulative, row, 0 if rooms is None else rooms.left(current))
            if end == row:
                end = len(free) if rooms is None else max(_fitting(cumulative, row, rooms.capacity), row + 1)
            partitions[free[row:end]] = current
            if rooms is not None:
                rooms.take(current, cumulative[end] - cumulative[row])
            row = end
        self._current[topic] = current
        return partitions

    def _other(self, left: int, available: Sequence[int]) -> int:
        others = [partition for partition in available if partition != left]
        return self._random.choice(others) if others else left


def _fitting(cumulative: Sequence[int], row: int, room: int) -> int:
    """The end of the rows from ``row`` that ``room`` bytes hold."""
    return bisect_right(cumulative, cumulative[row] + room, row + 1) - 1
