"""Kafka's partitioners over columns, and ``load_partitioner``, which makes the one that ``partitioner.class`` names.

Keys are hashed as whole columns, by one class per hash: Kafka's murmur2, and the CRC-32 of librdkafka's default.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from types import MappingProxyType
from typing import Final, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import LARGEST_INT32
from spark_kafka_sink.producer.partitioner import (
    NO_PARTITION,
    BatchRooms,
    CustomPartitioner,
    Partitioner,
    PartitionLoad,
    Partitions,
    fresh_partitions,
)
from spark_kafka_sink.records.arrays import Int32Array, Int64Array, null_mask, slot_lengths
from spark_kafka_sink.records.batch import HEADER_SIZE
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.sizes import cumulate
from spark_kafka_sink.records.varint_columns import bounds

UInt8Array = npt.NDArray[np.uint8]
UInt32Array = npt.NDArray[np.uint32]

_TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
_TO_POSITIVE = np.uint32(0x7FFFFFFF)

# The fewest keys with words left for which a numpy step over all of them pays; the few longer keys are hashed one by
# one.
_FEW_KEYS = 64
_SHORT_KEY_WORDS = 16
_MOST_STEPS = 0xFFFF

# numpy gathers unaligned words four times slower than aligned ones: up to this many bytes, a copy of all words pays.
_ALIGNED_BYTES = 1 << 19

_32_BITS = 0xFFFFFFFF
_BYTE = np.uint32(0xFF)
_HALF = np.uint32(0xFFFF)

_MURMUR2_SEED = 0x9747B28C
_MURMUR2_M = 0x5BD1E995
_MURMUR2_R = 24
_MURMUR2_WORD_M = np.uint32(_MURMUR2_M)
_MURMUR2_WORD_R = np.uint32(_MURMUR2_R)
_WORDS_AT_ONCE = 1 << 14

_CRC_POLYNOMIAL = np.uint32(0xEDB88320)
_CRC_ALL_BITS = np.uint32(_32_BITS)


class KeyHash(ABC):
    """A hash of keys. Called with keys, it returns one unsigned hash per key; the hash of a null slot is undefined."""

    @abstractmethod
    def begin(self, lengths: Int64Array) -> UInt32Array:
        """The hashes before the first byte."""

    @abstractmethod
    def add_words(self, hashes: UInt32Array, words: UInt32Array) -> None:
        """Hashes one little-endian word of each key, in place; may change ``words``."""

    @abstractmethod
    def end(self, hashes: UInt32Array, tails: UInt32Array, lengths: Int64Array) -> UInt32Array:
        """The results, after the last ``lengths & 3`` bytes of each key, which ``tails`` holds padded with zeros."""

    @abstractmethod
    def of_long(self, key: UInt8Array) -> int:
        """The hash of one key."""

    def partitions(self, keys: pa.BinaryArray, count: int | Int32Array) -> Int32Array:
        """A partition below ``count`` per key; ``NO_PARTITION`` for a key that counts as none. Undefined for null.

        ``count`` is one number for all keys, or one for each.
        """
        return ((self(keys) & _TO_POSITIVE) % np.asarray(count, np.uint32)).astype(np.int32)

    def __call__(self, keys: pa.BinaryArray) -> UInt32Array:
        count = len(keys)
        if not count:
            return np.zeros(0, np.uint32)
        _, offset_buffer, data_buffer = keys.buffers()
        offsets = np.frombuffer(offset_buffer, np.int32, count + 1, 4 * keys.offset)
        first = int(offsets[0])
        # Four more bytes, so that a word can be read where the last key ends.
        data = np.zeros(int(offsets[-1]) - first + 4, np.uint8)
        if len(data) > 4:
            data[:-4] = np.frombuffer(data_buffer, np.uint8, len(data) - 4, first)
        ends = offsets.astype(np.int64) - first
        starts, lengths = ends[:-1], np.diff(ends)
        hashes = self.begin(lengths)
        least, most = bounds(lengths)
        if least == most < _MOST_STEPS:  # the words are columns
            for at in range(0, most - 3, 4):
                self.add_words(hashes, np.ndarray((count,), "<u4", data, at, (most,)).copy())
            tails: UInt32Array = np.ndarray((count,), "<u4", data, most & ~3, (most,))
            return self.end(hashes, tails & _TAIL_MASKS[most & 3], lengths)
        words: UInt32Array = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))
        if len(data) <= _ALIGNED_BYTES:
            words = words.copy()
        long_keys = self._add_all_words(hashes, words, starts.copy(), lengths >> 2)
        tail_lengths = lengths & 3
        tails = words[starts + (lengths - tail_lengths)] & _TAIL_MASKS[tail_lengths]
        hashes = self.end(hashes, tails, lengths)
        for row in long_keys:
            hashes[row] = self.of_long(data[starts[row] : starts[row] + lengths[row]])
        return hashes

    def _add_all_words(
        self, hashes: UInt32Array, words: UInt32Array, positions: Int64Array, counts: Int64Array
    ) -> list[int]:
        """Hashes the ``counts[i]`` whole words of key ``i``, which begins at byte ``positions[i]``.

        Returns the rows of keys that are too long for numpy steps; their hashes are unfinished. Changes ``positions``.
        """
        shared = min(int(counts.min()), _MOST_STEPS)
        for _ in range(shared):
            self.add_words(hashes, words[positions])
            positions += 4
        rows = np.flatnonzero(counts > shared)
        if not len(rows):
            return []
        left = counts[rows] - shared
        if int(left.max()) > 1:
            # Longest first: the keys that still have words are a prefix. 16 bits sort by radix; the order of keys over
            # the limit is arbitrary, as no step goes beyond it.
            order = np.argsort(np.minimum(left, _MOST_STEPS).astype(np.uint16), kind="stable")[::-1]
            rows, left = rows[order], left[order]
        return self._add_unequal(hashes, words, positions, rows, left)

    def _add_unequal(
        self, hashes: UInt32Array, words: UInt32Array, positions: Int64Array, rows: Int64Array, left: Int64Array
    ) -> list[int]:
        """Does the same for ``rows``, which have ``left`` words left, in descending order of ``left``."""
        ranked = hashes[rows]
        positions = positions[rows]
        many = int(left[_FEW_KEYS - 1]) if len(left) >= _FEW_KEYS else 0
        steps = min(int(left[0]), max(many, _SHORT_KEY_WORDS), _MOST_STEPS)
        alive = len(left) - np.searchsorted(left[::-1], np.arange(steps), side="right")
        for still in alive.tolist():
            self.add_words(ranked[:still], words[positions[:still]])
            positions[:still] += 4
        hashes[rows] = ranked
        long_keys: list[int] = rows[left > steps].tolist()
        return long_keys


class Murmur2(KeyHash):
    """Kafka's hash of keys, equal to Java's ``Utils.murmur2`` for every byte string.

    ``partitions``: Java's ``BuiltInPartitioner.partitionForKey``, librdkafka's ``murmur2_random``.
    """

    def begin(self, lengths: Int64Array) -> UInt32Array:
        return lengths.astype(np.uint32) ^ np.uint32(_MURMUR2_SEED)

    def add_words(self, hashes: UInt32Array, words: UInt32Array) -> None:
        hashes *= _MURMUR2_WORD_M
        hashes ^= _murmur2_mixed(words)

    def end(self, hashes: UInt32Array, tails: UInt32Array, lengths: Int64Array) -> UInt32Array:
        hashes = np.where(lengths & 3, (hashes ^ tails) * _MURMUR2_WORD_M, hashes)
        hashes ^= hashes >> np.uint32(13)
        hashes *= _MURMUR2_WORD_M
        hashes ^= hashes >> np.uint32(15)
        return hashes

    def of_long(self, key: UInt8Array) -> int:
        whole = len(key) & ~3
        words = key[:whole].view("<u4")
        hashed = _MURMUR2_SEED ^ len(key)
        for start in range(0, len(words), _WORDS_AT_ONCE):
            for word in _murmur2_mixed(words[start : start + _WORDS_AT_ONCE]).tolist():
                hashed = (hashed * _MURMUR2_M & _32_BITS) ^ word
        if whole < len(key):
            hashed = (hashed ^ int.from_bytes(key[whole:].tobytes(), "little")) * _MURMUR2_M & _32_BITS
        hashed = (hashed ^ hashed >> 13) * _MURMUR2_M & _32_BITS
        return hashed ^ hashed >> 15


def _murmur2_mixed(words: UInt32Array) -> UInt32Array:
    mixed = words * _MURMUR2_WORD_M
    mixed ^= mixed >> _MURMUR2_WORD_R
    mixed *= _MURMUR2_WORD_M
    return mixed


class Crc32(KeyHash):
    """``zlib.crc32``. ``partitions``: librdkafka's default, ``consistent_random``; an empty key counts as none."""

    def begin(self, lengths: Int64Array) -> UInt32Array:
        return np.full(len(lengths), _CRC_ALL_BITS)

    def add_words(self, hashes: UInt32Array, words: UInt32Array) -> None:
        low, high = _crc_word_tables()
        words ^= hashes
        np.bitwise_xor(low[words & _HALF], high[words >> np.uint32(16)], out=hashes)

    def end(self, hashes: UInt32Array, tails: UInt32Array, lengths: Int64Array) -> UInt32Array:
        tail_lengths = lengths & 3
        for index in range(3):
            byte = tails >> np.uint32(8 * index) & _BYTE
            hashes = np.where(tail_lengths > index, _crc_shifted(hashes ^ byte), hashes)
        return hashes ^ _CRC_ALL_BITS

    def of_long(self, key: UInt8Array) -> int:
        return zlib.crc32(key.data)

    def partitions(self, keys: pa.BinaryArray, count: int | Int32Array) -> Int32Array:
        partitions = (self(keys) % np.asarray(count, np.uint32)).astype(np.int32)
        partitions[slot_lengths(keys) == 0] = NO_PARTITION
        return partitions


@cache
def _crc_byte_table() -> UInt32Array:
    """The register's low byte → the register after that byte has been shifted out."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & np.uint32(1), table >> np.uint32(1) ^ _CRC_POLYNOMIAL, table >> np.uint32(1))
    return table


@cache
def _crc_word_tables() -> tuple[UInt32Array, UInt32Array]:
    """The register's low and its high 16 bits → the register after a whole word has been shifted out."""
    one = _crc_byte_table()
    two = _crc_shifted(one)
    three = _crc_shifted(two)
    four = _crc_shifted(three)
    halves = np.arange(1 << 16, dtype=np.uint32)
    low, high = halves & _BYTE, halves >> np.uint32(8)
    return four[low] ^ three[high], two[low] ^ one[high]


def _crc_shifted(register: UInt32Array) -> UInt32Array:
    """The register after one zero byte."""
    shifted: UInt32Array = register >> np.uint32(8) ^ _crc_byte_table()[register & _BYTE]
    return shifted


murmur2, crc32 = Murmur2(), Crc32()


@dataclass(slots=True)
class _Sticky:
    """A topic's sticky partition, and the bytes it received since it was chosen."""

    partition: int
    bytes: int = 0


@final
class BuiltInPartitioner(Partitioner):
    """The default: by the key's hash, or adaptive sticky without a key (KIP-480, KIP-794). ``RowPartitioning`` calls
    its steps directly, so a subclass that overrides one of them would not be asked.

    With ``partitioner.rack.aware``, rows without a key go to partitions whose leader is in ``client.rack``, as long as
    one of these is available (KIP-1123). If the leader of the sticky partition leaves the rack, Java changes the
    partition when its batch is full; here the next call does. Another ``key_hash`` makes it choose as the client with
    that hash does. The sticky runs belong to the sender thread; any thread may call ``by_key`` and ``spread``.
    """

    def __init__(self, config: ProducerConfig, random: Random, key_hash: KeyHash = murmur2) -> None:
        self._config = config
        self._random = random
        self._key_hash = key_hash
        self._room = max(1, config.batch_size - HEADER_SIZE)
        self._rack = config.client_rack if config.partitioner_rack_aware else None
        self._sticky: dict[str, _Sticky] = {}

    def partition(
        self, topic: str, columns: RecordColumns, named: Partitions, sizes: Int64Array, count: int, load: PartitionLoad
    ) -> Int32Array:
        """The partition that a row names, else the one of its key's hash, else the sticky one."""
        partitions = self.by_key(columns, named, count)
        unkeyed = np.flatnonzero(partitions == NO_PARTITION)
        if len(unkeyed):
            partitions[unkeyed] = self.assign(topic, sizes[unkeyed], count, load)
        return partitions

    def by_key(self, columns: RecordColumns, named: Partitions, count: int | Int32Array) -> Int32Array:
        """The partition that a row names, else the one of its key's hash, else ``NO_PARTITION``. ``count``: the number
        of the topic's partitions, or one number per row if rows have several topics.
        """
        keys = None if self._config.partitioner_ignore_keys else columns.key
        if keys is None:
            return fresh_partitions(named, len(columns))
        hashed = self._key_hash.partitions(keys, count)
        if keys.null_count:
            hashed[null_mask(keys)] = NO_PARTITION
        if named is not None:
            np.copyto(hashed, named, where=named != NO_PARTITION)
        return hashed

    def assign(self, topic: str, sizes: Int64Array, count: int, load: PartitionLoad) -> Int32Array:
        """Partitions for unkeyed rows of these sizes in bytes, in runs of which each fills one batch.

        A run ends before the row that would overflow ``batch.size``. (Java's ends after that row, but lasts until the
        batch is full: the same rows.) The topic's next call continues the last run, unless its partition is no longer
        available, or not in the rack.
        """
        choice, cumulative = self._choice(load, count), cumulate(sizes)
        sticky = self._sticky.get(topic)
        if sticky is None or not choice.offers(sticky.partition):
            sticky = self._sticky[topic] = _Sticky(choice.next())
        partitions = np.empty(len(sizes), np.int32)
        start = 0
        while start < len(sizes):
            before = cumulative[start]
            end = bisect_right(cumulative, before + self._room - sticky.bytes, start + 1) - 1
            if end == start and sticky.bytes == 0:
                end += 1
            partitions[start:end] = sticky.partition
            sticky.bytes += cumulative[end] - before
            start = end
            if start < len(sizes):
                sticky.partition, sticky.bytes = choice.next(), 0
        return partitions

    def spread(self, sizes: Int64Array, limit: int, count: int, load: PartitionLoad) -> Int32Array:
        """Partitions for unkeyed rows of a call with batches of its own, in runs of about the same bytes: as few runs
        as batches of ``limit`` bytes allow.
        """
        choice = self._choice(load, count)
        ends = np.cumsum(sizes)
        total = int(ends[-1])
        runs = -(-total // max(1, limit - HEADER_SIZE))
        run_of_row = np.minimum((ends - sizes) * runs // max(1, total), runs - 1)
        chosen: Int32Array = np.array([choice.next() for _ in range(runs)] or [0], np.int32)[run_of_row]
        return chosen

    def begin_sticky_runs(self) -> None:
        """Gives the next unkeyed rows of each topic a new partition, because the batches of the last run are closed."""
        self._sticky = {}

    def _choice(self, load: PartitionLoad, count: int) -> _Choice:
        if self._rack is not None:
            load = load.in_rack(self._rack)
        return _Choice(load, count, self._config.partitioner_adaptive_partitioning_enable, self._random)


class _Choice:
    """Picks partitions at random; shorter queues are picked more often.

    Weight: the longest queue + 1 - the partition's own, as in Java's cumulative frequency table. For example, queues of
    0, 3 and 1 batches have the weights 4, 1 and 3, so the first is picked in 4 of 8 cases. Each pick fills a batch, so
    it lengthens its queue by one. Rejection sampling needs no table, which would change with each pick: a random
    partition is taken with the probability weight / largest weight, otherwise another one is tried.
    """

    __slots__ = ("_available", "_lengths", "_load", "_longest", "_random", "_shortest")

    def __init__(self, load: PartitionLoad, count: int, adaptive: bool, random: Random) -> None:
        self._available = load.available or range(count)
        self._load = load if adaptive else None
        self._lengths: list[int] = []
        self._random = random

    def offers(self, partition: int) -> bool:
        return partition in self._available

    def next(self) -> int:
        if self._load is not None:  # read only when a run ends
            self._lengths, self._load = list(self._load.queue_lengths), None
            self._longest, self._shortest = max(self._lengths, default=0), min(self._lengths, default=0)
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
        self, topic: str, columns: RecordColumns, named: Partitions, sizes: Int64Array, count: int, load: PartitionLoad
    ) -> Int32Array:
        partitions = fresh_partitions(named, len(columns))
        free = np.flatnonzero(partitions == NO_PARTITION)
        first = self._next.get(topic, 0)
        self._next[topic] = first + len(free)
        cycle = load.available or range(count)
        turns = (first + np.arange(len(free))) % len(cycle)
        partitions[free] = turns if isinstance(cycle, range) else np.array(cycle, np.int32)[turns]
        return partitions


class UniformStickyPartitioner(Partitioner):
    """Sends all rows to one partition until a new batch is needed, then to another available partition (KIP-480). It is
    Java's ``UniformStickyPartitioner``, and what its ``DefaultPartitioner`` does for rows without a key. Ignores keys
    unless there is a ``key_hash``; with one, only rows without a key are sticky. The keyed rows of a call take no room
    from its sticky rows, because they may go to any partition. As in Kafka 2.4, a new choice differs from the last one
    if another partition is available. The built-in partitioner (KIP-794) may choose the same one again. Thread-safe: at
    worst, two concurrent calls leave the same partition.
    """

    def __init__(self, random: Random, key_hash: KeyHash | None = None) -> None:
        self._random = random
        self._key_hash = key_hash
        self._current: dict[str, int] = {}

    def partition(
        self, topic: str, columns: RecordColumns, named: Partitions, sizes: Int64Array, count: int, load: PartitionLoad
    ) -> Int32Array:
        partitions = fresh_partitions(named, len(columns))
        if self._key_hash is not None and columns.key is not None:
            keyed = (partitions == NO_PARTITION) & ~null_mask(columns.key)
            partitions[keyed] = self._key_hash.partitions(columns.key, count)[keyed]
        free = np.flatnonzero(partitions == NO_PARTITION)
        cumulative = cumulate(sizes[free])
        available = load.available or range(count)
        rooms, current = load.rooms or BatchRooms(topic, LARGEST_INT32), self._current.get(topic)
        if current is None or current not in available:
            current = self._random.choice(available)
        row = 0
        while row < len(free):
            end = _fitting(cumulative, row, rooms.left(current))
            if end == row:  # a new batch
                current = self._other(current, available)
                end = _fitting(cumulative, row, rooms.left(current))
            if end == row:
                end = max(_fitting(cumulative, row, rooms.capacity), row + 1)
            partitions[free[row:end]] = current
            rooms.take(current, cumulative[end] - cumulative[row])
            row = end
        self._current[topic] = current
        return partitions

    def _other(self, left: int, available: Sequence[int]) -> int:
        while (other := self._random.choice(available)) == left and len(available) > 1:
            pass
        return other


def _fitting(cumulative: Sequence[int], row: int, room: int) -> int:
    """The end of the rows from ``row`` on that fit into ``room`` bytes."""
    return bisect_right(cumulative, cumulative[row] + room, row + 1) - 1


MAKERS: Final[Mapping[str, Callable[[ProducerConfig, Random], Partitioner]]] = MappingProxyType({
    "default": lambda config, random: BuiltInPartitioner(config, random, murmur2),
    "crc32": lambda config, random: BuiltInPartitioner(config, random, crc32),
    "round_robin": lambda _config, _random: RoundRobinPartitioner(),
    "uniform_sticky": lambda _config, random: UniformStickyPartitioner(random),
    "sticky": lambda _config, random: UniformStickyPartitioner(random, murmur2),
})  # fmt: skip
"""The maker of each of ``PARTITIONERS``."""


def load_partitioner(config: ProducerConfig, random: Random) -> Partitioner:
    """The partitioner that ``config`` names, configured. Raises ``ConfigError`` for a class that cannot be loaded."""
    make = MAKERS.get(config.partitioner_class)
    if make is not None:
        return make(config, random)
    custom = CustomPartitioner.load(config.partitioner_class)
    custom.configure(config.by_name())
    return custom
