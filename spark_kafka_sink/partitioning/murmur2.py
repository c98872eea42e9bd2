"""Kafka's key hash over columns: equal to Java's ``Utils.murmur2`` for every byte string."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24
_MASK = 0xFFFFFFFF

_WORD_M = np.uint32(_M)
_WORD_R = np.uint32(_R)
_TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)

# Hashing word by word over all keys pays while this many keys still have words. Behind that only a few long keys go on,
# one by one: the price of one numpy step is then more than that of the few plain ones.
_FEW_KEYS = 64
_SHORT_KEY_WORDS = 16
_MOST_STEPS = 0xFFFF
_WORDS_AT_ONCE = 1 << 14

UInt32Array = npt.NDArray[np.uint32]
Int64Array = npt.NDArray[np.int64]


def murmur2_of(key: bytes) -> int:
    """The hash of one key, unsigned; the plain form of what ``murmur2`` does for columns."""
    hashed = _SEED ^ len(key)
    whole = len(key) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(key[start : start + 4], "little") * _M & _MASK
        word = (word ^ word >> _R) * _M & _MASK
        hashed = (hashed * _M & _MASK) ^ word
    if whole < len(key):
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


def murmur2(keys: pa.BinaryArray) -> UInt32Array:
    """The hash of each key, unsigned as Java's int is seen in 32 bits. A null slot gets some hash: mask it."""
    count = len(keys)
    if not count:
        return np.zeros(0, np.uint32)
    _, offset_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, count + 1, 4 * keys.offset)
    first = int(offsets[0])
    data = np.zeros(int(offsets[-1]) - first + 4, np.uint8)
    if len(data) > 4:
        data[:-4] = np.frombuffer(data_buffer, np.uint8, len(data) - 4, first)
    words: UInt32Array = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))

    starts = offsets[:-1].astype(np.int64) - first
    lengths = offsets[1:].astype(np.int64) - offsets[:-1]
    hashes = lengths.astype(np.uint32) ^ np.uint32(_SEED)
    _add_words(hashes, words, starts, lengths >> 2)

    tail_lengths = lengths & 3
    tails = words[starts + (lengths - tail_lengths)] & _TAIL_MASKS[tail_lengths]
    hashes = np.where(tail_lengths > 0, (hashes ^ tails) * _WORD_M, hashes)
    hashes ^= hashes >> np.uint32(13)
    hashes *= _WORD_M
    hashes ^= hashes >> np.uint32(15)
    return hashes


def _add_words(hashes: UInt32Array, words: UInt32Array, starts: Int64Array, counts: Int64Array) -> None:
    """Takes the ``counts[i]`` whole words of key ``i``, which begins at byte ``starts[i]``, into ``hashes[i]``."""
    # Longest first, so that the keys that still have words are always the first ones. 16 bits sort by radix; keys
    # over the limit stay in any order, as no step goes beyond it.
    order = np.argsort(np.minimum(counts, _MOST_STEPS).astype(np.uint16), kind="stable")[::-1]
    ranked = hashes[order]
    places = starts[order]
    counts = counts[order]
    shared = int(counts[_FEW_KEYS - 1]) if len(counts) >= _FEW_KEYS else 0
    steps = min(int(counts[0]), max(shared, _SHORT_KEY_WORDS), _MOST_STEPS)
    alive = len(counts) - np.searchsorted(counts[::-1], np.arange(steps), side="right")
    for still in alive.tolist():
        mixed = words[places[:still]]
        mixed *= _WORD_M
        mixed ^= mixed >> _WORD_R
        mixed *= _WORD_M
        ranked[:still] *= _WORD_M
        ranked[:still] ^= mixed
        places[:still] += 4
    for rank in np.flatnonzero(counts > steps).tolist():
        long_key = words[places[rank] : places[rank] + 4 * (int(counts[rank]) - steps) : 4]
        ranked[rank] = _add_long_key(int(ranked[rank]), long_key)
    hashes[order] = ranked


def _add_long_key(hashed: int, words: UInt32Array) -> int:
    for start in range(0, len(words), _WORDS_AT_ONCE):
        mixed = words[start : start + _WORDS_AT_ONCE] * _WORD_M
        mixed ^= mixed >> _WORD_R
        mixed *= _WORD_M
        for word in mixed.tolist():
            hashed = (hashed * _M & _MASK) ^ word
    return hashed
