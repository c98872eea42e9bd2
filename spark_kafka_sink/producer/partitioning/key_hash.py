"""A 32-bit hash over a column of keys: four bytes at a time, all keys at once."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.columns import Int32Array, Int64Array

UInt8Array = npt.NDArray[np.uint8]
UInt32Array = npt.NDArray[np.uint32]

_TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
_TO_POSITIVE = np.uint32(0x7FFFFFFF)

# A numpy step over all keys pays while at least this many keys still have words; the few longer keys are hashed one by
# one.
_FEW_KEYS = 64
_SHORT_KEY_WORDS = 16
_MOST_STEPS = 0xFFFF

# numpy gathers unaligned words four times slower than aligned ones: up to this many bytes, a copy of all words pays.
_ALIGNED_BYTES = 1 << 19


class KeyHash(ABC):
    """Called with keys, it gives one unsigned hash per key; the hash of a null slot is undefined."""

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
        """A partition below ``count`` per key; ``NOT_GIVEN`` for a key that counts as none, undefined for null.

        ``count``: one for all keys, or one each.
        """
        return ((self(keys) & _TO_POSITIVE) % np.asarray(count, np.uint32)).astype(np.int32)

    def __call__(self, keys: pa.BinaryArray) -> UInt32Array:
        count = len(keys)
        if not count:
            return np.zeros(0, np.uint32)
        _, offset_buffer, data_buffer = keys.buffers()
        offsets = np.frombuffer(offset_buffer, np.int32, count + 1, 4 * keys.offset)
        first = int(offsets[0])
        # Four bytes more, so that a word can be read where the last key ends.
        data = np.zeros(int(offsets[-1]) - first + 4, np.uint8)
        if len(data) > 4:
            data[:-4] = np.frombuffer(data_buffer, np.uint8, len(data) - 4, first)
        words: UInt32Array = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))
        if len(data) <= _ALIGNED_BYTES:
            words = words.copy()

        bounds = offsets.astype(np.int64) - first
        starts, lengths = bounds[:-1], np.diff(bounds)
        hashes = self.begin(lengths)
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

        Returns the rows of keys that are too long for it; their hashes are unfinished. Changes ``positions``.
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
        """The same for ``rows`` with ``left`` words left, in descending order of ``left``."""
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
