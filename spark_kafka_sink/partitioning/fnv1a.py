"""FNV-1a (32 bits, Go's ``fnv.New32a``) over columns."""

from __future__ import annotations

import numpy as np

from spark_kafka_sink.partitioning.key_hash import Int64Array, KeyHash, UInt8Array, UInt32Array

_OFFSET_BASIS = 0x811C9DC5
_PRIME = 0x01000193
_MASK = 0xFFFFFFFF

_WORD_PRIME = np.uint32(_PRIME)
_BYTE = np.uint32(0xFF)


def fnv1a_of(key: bytes) -> int:
    """The hash of one key, unsigned; the plain form of what ``fnv1a`` does for columns."""
    hashed = _OFFSET_BASIS
    for byte in key:
        hashed = (hashed ^ byte) * _PRIME & _MASK
    return hashed


def _begin(lengths: Int64Array) -> UInt32Array:
    return np.full(len(lengths), _OFFSET_BASIS, np.uint32)


def _add_words(hashes: UInt32Array, words: UInt32Array) -> None:
    for place in range(4):
        hashes ^= words >> np.uint32(8 * place) & _BYTE
        hashes *= _WORD_PRIME


def _end(hashes: UInt32Array, tails: UInt32Array, lengths: Int64Array) -> UInt32Array:
    tail_lengths = lengths & 3
    for place in range(3):
        byte = tails >> np.uint32(8 * place) & _BYTE
        hashes = np.where(tail_lengths > place, (hashes ^ byte) * _WORD_PRIME, hashes)
    return hashes


def _of_long(key: UInt8Array) -> int:
    return fnv1a_of(key.tobytes())


fnv1a = KeyHash(_begin, _add_words, _end, _of_long)
"""The hash of each key, unsigned."""
