"""CRC-32 (zlib's, librdkafka's ``rd_crc32``) over columns: equal to ``zlib.crc32(key)``."""

from __future__ import annotations

import zlib
from functools import cache

import numpy as np

from spark_kafka_sink.partitioning.key_hash import Int64Array, KeyHash, UInt8Array, UInt32Array

_POLYNOMIAL = np.uint32(0xEDB88320)
_ALL_BITS = np.uint32(0xFFFFFFFF)
_BYTE = np.uint32(0xFF)
_HALF = np.uint32(0xFFFF)


@cache
def _byte_table() -> UInt32Array:
    """What a byte at the low end of the register turns into when it has been shifted out."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & np.uint32(1), table >> np.uint32(1) ^ _POLYNOMIAL, table >> np.uint32(1))
    return table


@cache
def _half_tables() -> tuple[UInt32Array, UInt32Array]:
    """What the low and the high 16 bits of the register turn into when a whole word has been shifted out."""
    one = _byte_table()
    two = _shifted(one)
    three = _shifted(two)
    four = _shifted(three)
    halves = np.arange(1 << 16, dtype=np.uint32)
    low, high = halves & _BYTE, halves >> np.uint32(8)
    return four[low] ^ three[high], two[low] ^ one[high]


def _shifted(register: UInt32Array) -> UInt32Array:
    """The register one zero byte later."""
    shifted: UInt32Array = register >> np.uint32(8) ^ _byte_table()[register & _BYTE]
    return shifted


def _begin(lengths: Int64Array) -> UInt32Array:
    return np.full(len(lengths), _ALL_BITS)


def _add_words(hashes: UInt32Array, words: UInt32Array) -> None:
    low, high = _half_tables()
    words ^= hashes
    np.bitwise_xor(low[words & _HALF], high[words >> np.uint32(16)], out=hashes)


def _end(hashes: UInt32Array, tails: UInt32Array, lengths: Int64Array) -> UInt32Array:
    tail_lengths = lengths & 3
    for place in range(3):
        byte = tails >> np.uint32(8 * place) & _BYTE
        hashes = np.where(tail_lengths > place, _shifted(hashes ^ byte), hashes)
    return hashes ^ _ALL_BITS


def _of_long(key: UInt8Array) -> int:
    return zlib.crc32(key.data)


crc32 = KeyHash(_begin, _add_words, _end, _of_long)
"""The CRC of each key, unsigned."""
