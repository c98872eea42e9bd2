"""Hashing a column of keys four bytes at a time, all keys at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

UInt8Array = npt.NDArray[np.uint8]
UInt32Array = npt.NDArray[np.uint32]
Int64Array = npt.NDArray[np.int64]

_TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)

# Hashing word by word over all keys pays while this many keys still have words. Behind that only a few long keys go on,
# one by one: the price of one numpy step is then more than that of the few plain ones.
_FEW_KEYS = 64
_SHORT_KEY_WORDS = 16
_MOST_STEPS = 0xFFFF

# numpy gathers words that lie at any byte four times slower than aligned ones: a copy of all of them pays while it
# stays in the cache.
_ALIGNED_BYTES = 1 << 19


@dataclass(frozen=True, slots=True)
class KeyHash:
    """A 32-bit hash over columns: called with keys it gives one unsigned hash each, for a null slot any.

    ``begin(lengths)``: the hashes before the first byte. ``add_words(hashes, words)``: takes one little-endian word
    into each hash, in place. ``end(hashes, tails, lengths)``: the results, after the last ``lengths & 3`` bytes, which
    ``tails`` has as words filled up with zeros. ``of_long(key)``: the same hash of one key at once.
    """

    begin: Callable[[Int64Array], UInt32Array]
    add_words: Callable[[UInt32Array, UInt32Array], None]
    end: Callable[[UInt32Array, UInt32Array, Int64Array], UInt32Array]
    of_long: Callable[[UInt8Array], int]

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
        self, hashes: UInt32Array, words: UInt32Array, places: Int64Array, counts: Int64Array
    ) -> list[int]:
        """Takes the ``counts[i]`` whole words of key ``i``, which begins at byte ``places[i]``, into ``hashes[i]``.

        Gives the rows of the keys that are too long for it; their hashes are unfinished. Changes ``places``.
        """
        shared = min(int(counts.min()), _MOST_STEPS)
        for _ in range(shared):
            self.add_words(hashes, words[places])
            places += 4
        rows = np.flatnonzero(counts > shared)
        if not len(rows):
            return []
        left = counts[rows] - shared
        if int(left.max()) > 1:
            # Longest first, so that the keys that still have words are always the first ones. 16 bits sort by radix;
            # keys over the limit stay in any order, as no step goes beyond it.
            order = np.argsort(np.minimum(left, _MOST_STEPS).astype(np.uint16), kind="stable")[::-1]
            rows, left = rows[order], left[order]
        return self._add_unequal(hashes, words, places, rows, left)

    def _add_unequal(
        self, hashes: UInt32Array, words: UInt32Array, places: Int64Array, rows: Int64Array, left: Int64Array
    ) -> list[int]:
        """The same for ``rows``, of which ``left`` words are left: the most first."""
        ranked = hashes[rows]
        places = places[rows]
        many = int(left[_FEW_KEYS - 1]) if len(left) >= _FEW_KEYS else 0
        steps = min(int(left[0]), max(many, _SHORT_KEY_WORDS), _MOST_STEPS)
        alive = len(left) - np.searchsorted(left[::-1], np.arange(steps), side="right")
        for still in alive.tolist():
            self.add_words(ranked[:still], words[places[:still]])
            places[:still] += 4
        hashes[rows] = ranked
        long_keys: list[int] = rows[left > steps].tolist()
        return long_keys
