"""The key hashes of other clients: librdkafka's CRC-32, Sarama's FNV-1a, and MurmurHash3 as ``mmh3`` computes it."""

from __future__ import annotations

import zlib
from functools import cache

import mmh3
import numpy as np
import pyarrow as pa

from spark_kafka_sink.producer.partitioning.key_hash import KeyHash, UInt8Array, UInt32Array
from spark_kafka_sink.producer.partitioning.partitioner import NOT_GIVEN
from spark_kafka_sink.records.columns import Int32Array, Int64Array, slot_lengths

_MASK = 0xFFFFFFFF
_BYTE = np.uint32(0xFF)
_HALF = np.uint32(0xFFFF)

_CRC_POLYNOMIAL = np.uint32(0xEDB88320)
_CRC_ALL_BITS = np.uint32(_MASK)

_FNV_OFFSET_BASIS = 0x811C9DC5
_FNV_PRIME = 0x01000193

_MURMUR3_C1 = np.uint32(0xCC9E2D51)
_MURMUR3_C2 = np.uint32(0x1B873593)
_MURMUR3_N = np.uint32(0xE6546B64)
_MURMUR3_FINAL = (np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35))


class ByteHash(KeyHash):
    """A hash that takes the last bytes of a key one by one."""

    def add_byte(self, hashes: UInt32Array, byte: UInt32Array) -> UInt32Array:
        """The hashes after one more byte."""
        raise NotImplementedError

    def end(self, hashes: UInt32Array, tails: UInt32Array, lengths: Int64Array) -> UInt32Array:
        tail_lengths = lengths & 3
        for index in range(3):
            byte = tails >> np.uint32(8 * index) & _BYTE
            hashes = np.where(tail_lengths > index, self.add_byte(hashes, byte), hashes)
        return hashes


class Crc32(ByteHash):
    """``zlib.crc32``. ``partitions``: librdkafka's default, ``consistent_random``; an empty key counts as none."""

    def begin(self, lengths: Int64Array) -> UInt32Array:
        return np.full(len(lengths), _CRC_ALL_BITS)

    def add_words(self, hashes: UInt32Array, words: UInt32Array) -> None:
        low, high = _crc_word_tables()
        words ^= hashes
        np.bitwise_xor(low[words & _HALF], high[words >> np.uint32(16)], out=hashes)

    def add_byte(self, hashes: UInt32Array, byte: UInt32Array) -> UInt32Array:
        return _crc_shifted(hashes ^ byte)

    def end(self, hashes: UInt32Array, tails: UInt32Array, lengths: Int64Array) -> UInt32Array:
        return super().end(hashes, tails, lengths) ^ _CRC_ALL_BITS

    def of_long(self, key: UInt8Array) -> int:
        return zlib.crc32(key.data)

    def partitions(self, keys: pa.BinaryArray, count: int | Int32Array) -> Int32Array:
        partitions = (self(keys) % np.asarray(count, np.uint32)).astype(np.int32)
        partitions[slot_lengths(keys) == 0] = NOT_GIVEN
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


class Fnv1a(ByteHash):
    """FNV-1a, Go's ``fnv.New32a``. ``partitions``: Sarama's ``NewHashPartitioner``, librdkafka's ``fnv1a_random``."""

    def begin(self, lengths: Int64Array) -> UInt32Array:
        return np.full(len(lengths), _FNV_OFFSET_BASIS, np.uint32)

    def add_words(self, hashes: UInt32Array, words: UInt32Array) -> None:
        for index in range(4):
            hashes ^= words >> np.uint32(8 * index) & _BYTE
            hashes *= np.uint32(_FNV_PRIME)

    def add_byte(self, hashes: UInt32Array, byte: UInt32Array) -> UInt32Array:
        return (hashes ^ byte) * np.uint32(_FNV_PRIME)

    def of_long(self, key: UInt8Array) -> int:
        return fnv1a_of(key.tobytes())

    def partitions(self, keys: pa.BinaryArray, count: int | Int32Array) -> Int32Array:
        # Go's remainder has the sign of the dividend: its absolute value is the remainder of the absolute hash.
        signed = self(keys).astype(np.int32).astype(np.int64)
        return (np.abs(signed) % count).astype(np.int32)


def fnv1a_of(key: bytes) -> int:
    """The unsigned hash of one key."""
    hashed = _FNV_OFFSET_BASIS
    for byte in key:
        hashed = (hashed ^ byte) * _FNV_PRIME & _MASK
    return hashed


class Murmur3(KeyHash):
    """MurmurHash3 (x86, 32 bits, seed 0), equal to ``mmh3.hash(key, signed=False)``; ``partitions`` as Java's."""

    def begin(self, lengths: Int64Array) -> UInt32Array:
        return np.zeros(len(lengths), np.uint32)

    def add_words(self, hashes: UInt32Array, words: UInt32Array) -> None:
        hashes ^= _murmur3_mixed(words)
        hashes[:] = _rotated(hashes, 13)
        hashes *= np.uint32(5)
        hashes += _MURMUR3_N

    def end(self, hashes: UInt32Array, tails: UInt32Array, lengths: Int64Array) -> UInt32Array:
        hashes ^= _murmur3_mixed(tails)  # an empty tail mixes to zero
        hashes ^= lengths.astype(np.uint32)
        hashes ^= hashes >> np.uint32(16)
        hashes *= _MURMUR3_FINAL[0]
        hashes ^= hashes >> np.uint32(13)
        hashes *= _MURMUR3_FINAL[1]
        hashes ^= hashes >> np.uint32(16)
        return hashes

    def of_long(self, key: UInt8Array) -> int:
        return mmh3.hash(key.tobytes(), signed=False)


def _murmur3_mixed(words: UInt32Array) -> UInt32Array:
    return _rotated(words * _MURMUR3_C1, 15) * _MURMUR3_C2


def _rotated(values: UInt32Array, bits: int) -> UInt32Array:
    return values << np.uint32(bits) | values >> np.uint32(32 - bits)


crc32, fnv1a, murmur3 = Crc32(), Fnv1a(), Murmur3()
