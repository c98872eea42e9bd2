"""Kafka's partitioners over columns, and ``load_partitioner``, which makes the one that ``partitioner.class`` names."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import MappingProxyType

import numpy as np

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.producer.partitioning.custom import CustomPartitioner
from spark_kafka_sink.producer.partitioning.key_hashes import KeyHash, crc32, murmur2
from spark_kafka_sink.producer.partitioning.partitioner import (
    NOT_GIVEN,
    BatchRooms,
    Partitioner,
    PartitionLoad,
    fresh_partitions,
)
from spark_kafka_sink.records.batch import HEADER_SIZE
from spark_kafka_sink.records.columns import Int32Array, Int64Array, RecordColumns, null_mask
from spark_kafka_sink.records.sizes import cumulated


@dataclass(slots=True)
class _Sticky:
    """A topic's sticky partition, and the bytes it received since it was chosen."""

    partition: int
    bytes: int = 0


class BuiltInPartitioner(Partitioner):
    """The default: by the key's hash, or adaptive sticky without a key (KIP-480, KIP-794).

    With ``partitioner.rack.aware``, rows without a key go to partitions whose leader is in ``client.rack``, as long as
    one of these is available (KIP-1123). Java changes a sticky partition whose leader leaves the rack when its batch is
    full; here the next call changes it.

    With another ``key_hash`` it chooses as the client does that hashes keys so.

    Thread-safe: at worst, two concurrent calls make a run too long or begin one each.
    """

    def __init__(self, config: ProducerConfig, random: Random, key_hash: KeyHash = murmur2) -> None:
        self._config = config
        self._random = random
        self._key_hash = key_hash
        self._room = max(1, config.batch_size - HEADER_SIZE)
        self._rack = config.client_rack if config.partitioner_rack_aware else None
        self._sticky: dict[str, _Sticky] = {}

    def partition(
        self,
        topic: str,
        columns: RecordColumns,
        explicit: Int32Array | None,
        sizes: Int64Array,
        count: int,
        load: PartitionLoad,
    ) -> Int32Array:
        """As in ``Partitioner``: the partition a row names, else by its key's hash, else the sticky one."""
        partitions = self.by_key(columns, explicit, count)
        unkeyed = np.flatnonzero(partitions == NOT_GIVEN)
        if len(unkeyed):
            partitions[unkeyed] = self.assign(topic, sizes[unkeyed], count, load)
        return partitions

    def by_key(self, columns: RecordColumns, explicit: Int32Array | None, count: int | Int32Array) -> Int32Array:
        """The partition a row names, else by its key's hash, else ``NOT_GIVEN``. ``count``: of the topic's partitions;
        of each row's topic, where rows have several.
        """
        keys = None if self._config.partitioner_ignore_keys else columns.key
        if keys is None:
            return fresh_partitions(explicit, len(columns))
        hashed = self._key_hash.partitions(keys, count)
        if keys.null_count:
            hashed[null_mask(keys)] = NOT_GIVEN
        if explicit is not None:
            np.copyto(hashed, explicit, where=explicit != NOT_GIVEN)
        return hashed

    def assign(self, topic: str, sizes: Int64Array, count: int, load: PartitionLoad) -> Int32Array:
        """Partitions for unkeyed rows of these sizes in bytes."""
        runs = self.runs(topic, cumulated(sizes), count, load)
        return np.repeat(np.array([run[0] for run in runs], np.int32), [end - start for _, start, end in runs])

    def begin_sticky_runs(self) -> None:
        """The next unkeyed rows of each topic get a new partition: the batches of the last run are closed."""
        self._sticky = {}

    def runs(
        self, topic: str, cumulative: Sequence[int], count: int, load: PartitionLoad
    ) -> list[tuple[int, int, int]]:
        """(partition, first row, end) of the runs of unkeyed rows; a run fills one batch.

        ``cumulative[i]``: bytes of rows ``0 .. i - 1`` (n + 1 entries). A run ends before the row that would overflow
        ``batch.size``. (Java's ends after that row, but lasts until the batch is full: the same rows.) The topic's next
        call continues the last run, unless its partition is no longer available, or not in the rack.
        """
        if self._rack is not None:
            load = load.in_rack(topic, self._rack)
        choice = _Choice(load, count, self._config.partitioner_adaptive_partitioning_enable, self._random)
        sticky = self._sticky.get(topic)
        if sticky is None or not choice.offers(sticky.partition):
            sticky = self._sticky[topic] = _Sticky(choice.next())
        runs: list[tuple[int, int, int]] = []
        rows = len(cumulative) - 1
        start = 0
        while start < rows:
            before = cumulative[start]
            end = bisect_right(cumulative, before + self._room - sticky.bytes, start + 1, rows + 1) - 1
            if end == start and sticky.bytes == 0:
                end += 1
            if end > start:
                runs.append((sticky.partition, start, end))
                sticky.bytes += cumulative[end] - before
                start = end
            if start < rows:
                sticky.partition, sticky.bytes = choice.next(), 0
        return runs


class _Choice:
    """Picks partitions at random; shorter queues are picked more often.

    Weight: the longest queue + 1 - the partition's own, as in Java's cumulative frequency table. Each pick fills a
    batch, so it lengthens its queue by one. Rejection sampling needs no table.
    """

    __slots__ = ("_available", "_lengths", "_longest", "_random", "_shortest")

    def __init__(self, load: PartitionLoad, count: int, adaptive: bool, random: Random) -> None:
        self._available = load.available or range(count)
        self._lengths = list(load.queue_lengths) if adaptive else []
        self._longest = max(self._lengths, default=0)
        self._shortest = min(self._lengths, default=0)
        self._random = random

    def offers(self, partition: int) -> bool:
        return partition in self._available

    def next(self) -> int:
        while True:
            index = int(self._random.random() * len(self._available))
            if not self._lengths:
                return self._available[index]
            most = self._longest + 1 - self._shortest
            if self._random.random() * most < self._longest + 1 - self._lengths[index]:
                self._lengths[index] += 1
                self._longest = max(self._longest, self._lengths[index])
                return self._available[index]
            # An outdated shortest length only rejects more picks; they stay fair.
            self._shortest = min(self._lengths)


class RoundRobinPartitioner(Partitioner):
    """Gives each row the next available partition, or the next of all while none is available; ignores keys.

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


class UniformStickyPartitioner(Partitioner):
    """All rows to one partition until a new batch is needed, then to another available one (KIP-480).

    It is Java's ``UniformStickyPartitioner``, and its ``DefaultPartitioner`` for rows without a key. Ignores keys,
    unless there is a ``key_hash``: then only rows without a key are sticky. The keyed rows of a call take no room from
    its sticky ones, because they may go to any partition.

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


KEY_HASHES: Mapping[str, KeyHash] = MappingProxyType({"default": murmur2, "crc32": crc32})
"""By their names in ``partitioner.class``."""


def load_partitioner(config: ProducerConfig, random: Random) -> Partitioner:
    """The partitioner that ``config`` names, configured. Raises ``ConfigError`` for a class that cannot be loaded."""
    name = config.partitioner_class
    if name == "round_robin":
        return RoundRobinPartitioner()
    if name == "uniform_sticky":
        return UniformStickyPartitioner(random)
    if name == "sticky":
        return UniformStickyPartitioner(random, murmur2)
    if name in KEY_HASHES:
        return BuiltInPartitioner(config, random, KEY_HASHES[name])
    custom = CustomPartitioner.load(name)
    custom.configure(config.by_name())
    return custom
