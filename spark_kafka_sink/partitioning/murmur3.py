"""MurmurHash3 (x86, 32 bits, seed 0) over columns: equal to ``mmh3.hash(key, signed=False)``."""

from __future__ import annotations

import mmh3
import numpy as np

from spark_kafka_sink.partitioning.key_hash import Int64Array, KeyHash, UInt8Array, UInt32Array

_C1 = np.uint32(0xCC9E2D51)
_C2 = np.uint32(0x1B873593)
_FIVE = np.uint32(5)
_N = np.uint32(0xE6546B64)
_FINAL_1 = np.uint32(0x85EBCA6B)
_FINAL_2 = np.uint32(0xC2B2AE35)


def _rotated(values: UInt32Array, bits: int) -> UInt32Array:
    return values << np.uint32(bits) | values >> np.uint32(32 - bits)


def _mixed(words: UInt32Array) -> UInt32Array:
    return _rotated(words * _C1, 15) * _C2


def _begin(lengths: Int64Array) -> UInt32Array:
    return np.zeros(len(lengths), np.uint32)


def _add_words(hashes: UInt32Array, words: UInt32Array) -> None:
    hashes ^= _mixed(words)
    hashes[:] = _rotated(hashes, 13)
    hashes *= _FIVE
    hashes += _N


def _end(hashes: UInt32Array, tails: UInt32Array, lengths: Int64Array) -> UInt32Array:
    hashes ^= _mixed(tails)  # an empty tail mixes to zero
    hashes ^= lengths.astype(np.uint32)
    hashes ^= hashes >> np.uint32(16)
    hashes *= _FINAL_1
    hashes ^= hashes >> np.uint32(13)
    hashes *= _FINAL_2
    hashes ^= hashes >> np.uint32(16)
    return hashes


def _of_long(key: UInt8Array) -> int:
    return mmh3.hash(key.tobytes(), signed=False)


murmur3 = KeyHash(_begin, _add_words, _end, _of_long)
"""The hash of each key, unsigned."""
