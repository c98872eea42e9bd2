"""Kafka's built-in partitioning over columns: key hash, or adaptive sticky (KIP-480, KIP-794)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from spark_kafka_sink.partitioning.keyed import KeyPartitions, hash_partitions
from spark_kafka_sink.partitioning.partitioner import NOT_GIVEN, Int32Array, Int64Array, PartitionLoad
from spark_kafka_sink.records.batch import HEADER_SIZE
from spark_kafka_sink.records.columns import RecordColumns, null_mask
from spark_kafka_sink.records.sizes import cumulated


@dataclass(slots=True)
class _Sticky:
    """The partition that unkeyed rows of a topic go to now, and the bytes it has had since it was chosen."""

    partition: int
    bytes: int = 0


class BuiltInPartitioner:
    """The default partitioner, and with other ``key_partitions`` those of other clients.

    ``batch_size``: ``batch.size``; ``adaptive``: ``partitioner.adaptive.partitioning.enable``; ``ignore_keys``:
    ``partitioner.ignore.keys``. Safe to call from several threads: at worst two calls at once make a run too long or
    begin one each.
    """

    def __init__(
        self,
        batch_size: int,
        adaptive: bool,
        random: Random,
        ignore_keys: bool = False,
        key_partitions: KeyPartitions = hash_partitions,
    ) -> None:
        self._room = max(1, batch_size - HEADER_SIZE)
        self._adaptive = adaptive
        self._random = random
        self._ignore_keys = ignore_keys
        self._key_partitions = key_partitions
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
        keys = None if self._ignore_keys else columns.key
        if keys is None and explicit is None:
            return self.assign(topic, sizes, count, load)
        hashed = np.full(len(columns), NOT_GIVEN, np.int32) if keys is None else self._key_partitions(keys, count)
        if keys is not None and keys.null_count:
            hashed[null_mask(keys)] = NOT_GIVEN
        partitions = hashed if explicit is None else np.where(explicit == NOT_GIVEN, hashed, explicit)
        unkeyed = np.flatnonzero(partitions == NOT_GIVEN)
        if len(unkeyed):
            partitions[unkeyed] = self.assign(topic, sizes[unkeyed], count, load)
        return partitions

    def assign(self, topic: str, sizes: Int64Array, count: int, load: PartitionLoad) -> Int32Array:
        """Partitions for unkeyed rows of these sizes in bytes: the ``runs`` of them, row by row."""
        runs = self.runs(topic, cumulated(sizes), count, load)
        return np.repeat(np.array([run[0] for run in runs], np.int32), [end - start for _, start, end in runs])

    def runs(
        self, topic: str, cumulative: Sequence[int], count: int, load: PartitionLoad
    ) -> list[tuple[int, int, int]]:
        """Partition, first row and end of runs of unkeyed rows that fill one batch each.

        ``cumulative[i]`` are the bytes of rows ``0 .. i - 1`` (n + 1 entries). A run ends before the row that would
        overflow ``batch.size``. Java ends it behind that row, but then goes on to the end of a full batch, which comes
        to the same. The run under way goes on in the topic's next call, unless its partition is no longer available.
        """
        choice = _Choice(load, count, self._adaptive, self._random)
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
    """Picks partitions at random: the fewer batches wait for one, the more often.

    The weights are those of Java's table of cumulative frequencies: the longest queue plus one, less the partition's
    own. Each pick will fill a batch, so it counts as one. Picking by rejection needs no table, which would have to be
    summed up anew each time.
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
            place = int(self._random.random() * len(self._available))
            if not self._lengths:
                return self._available[place]
            most = self._longest + 1 - self._shortest
            if self._random.random() * most < self._longest + 1 - self._lengths[place]:
                self._lengths[place] += 1
                self._longest = max(self._longest, self._lengths[place])
                return self._available[place]
            # Picks are fair with a shortest that is out of date, only that many of them are turned down.
            self._shortest = min(self._lengths)
