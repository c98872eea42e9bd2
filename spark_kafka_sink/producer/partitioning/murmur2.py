"""Kafka's key hash: equal to Java's ``Utils.murmur2`` for every byte string."""

from __future__ import annotations

import numpy as np

from spark_kafka_sink.producer.partitioning.key_hash import KeyHash, UInt8Array, UInt32Array
from spark_kafka_sink.records.columns import Int64Array

_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24
_MASK = 0xFFFFFFFF

_WORD_M = np.uint32(_M)
_WORD_R = np.uint32(_R)
_WORDS_AT_ONCE = 1 << 14


class Murmur2(KeyHash):
    """``partitions``: Java's ``BuiltInPartitioner.partitionForKey``, librdkafka's ``murmur2_random``."""

    def begin(self, lengths: Int64Array) -> UInt32Array:
        return lengths.astype(np.uint32) ^ np.uint32(_SEED)

    def add_words(self, hashes: UInt32Array, words: UInt32Array) -> None:
        hashes *= _WORD_M
        hashes ^= _mixed(words)

    def end(self, hashes: UInt32Array, tails: UInt32Array, lengths: Int64Array) -> UInt32Array:
        hashes = np.where(lengths & 3, (hashes ^ tails) * _WORD_M, hashes)
        hashes ^= hashes >> np.uint32(13)
        hashes *= _WORD_M
        hashes ^= hashes >> np.uint32(15)
        return hashes

    def of_long(self, key: UInt8Array) -> int:
        whole = len(key) & ~3
        words = key[:whole].view("<u4")
        hashed = _SEED ^ len(key)
        for start in range(0, len(words), _WORDS_AT_ONCE):
            for word in _mixed(words[start : start + _WORDS_AT_ONCE]).tolist():
                hashed = (hashed * _M & _MASK) ^ word
        if whole < len(key):
            hashed = (hashed ^ int.from_bytes(key[whole:].tobytes(), "little")) * _M & _MASK
        hashed = (hashed ^ hashed >> 13) * _M & _MASK
        return hashed ^ hashed >> 15


def _mixed(words: UInt32Array) -> UInt32Array:
    mixed = words * _WORD_M
    mixed ^= mixed >> _WORD_R
    mixed *= _WORD_M
    return mixed


murmur2 = Murmur2()
