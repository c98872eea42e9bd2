"""From keys to partitions as different clients do it. Whoever shares a topic with one of them must agree with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from spark_kafka_sink.partitioning.crc32 import crc32
from spark_kafka_sink.partitioning.fnv1a import fnv1a
from spark_kafka_sink.partitioning.murmur2 import murmur2
from spark_kafka_sink.partitioning.murmur3 import murmur3
from spark_kafka_sink.partitioning.partitioner import NOT_GIVEN, Int32Array
from spark_kafka_sink.records.columns import slot_lengths

KeyPartitions: TypeAlias = Callable[[pa.BinaryArray, int], Int32Array]
"""The partition of each key among so many; ``NOT_GIVEN`` for keys that count as none. A null slot gets any."""

_TO_POSITIVE = np.uint32(0x7FFFFFFF)


def hash_partitions(keys: pa.BinaryArray, count: int) -> Int32Array:
    """Java's (``BuiltInPartitioner.partitionForKey``), librdkafka's ``murmur2_random``."""
    return ((murmur2(keys) & _TO_POSITIVE) % np.uint32(count)).astype(np.int32)


def murmur3_partitions(keys: pa.BinaryArray, count: int) -> Int32Array:
    """As Java's, with the hash that the ``mmh3`` package computes."""
    return ((murmur3(keys) & _TO_POSITIVE) % np.uint32(count)).astype(np.int32)


def crc32_partitions(keys: pa.BinaryArray, count: int) -> Int32Array:
    """librdkafka's default, ``consistent_random``: an empty key counts as none."""
    partitions = (crc32(keys) % np.uint32(count)).astype(np.int32)
    partitions[slot_lengths(keys) == 0] = NOT_GIVEN
    return partitions


def fnv1a_partitions(keys: pa.BinaryArray, count: int) -> Int32Array:
    """Sarama's ``NewHashPartitioner``, librdkafka's ``fnv1a_random``: the absolute value of the signed remainder.

    Go's remainder has the sign of the dividend, so its absolute value is the remainder of the absolute hash.
    """
    signed = fnv1a(keys).astype(np.int32).astype(np.int64)
    return (np.abs(signed) % count).astype(np.int32)


KEY_PARTITIONS: Mapping[str, KeyPartitions] = MappingProxyType(
    {
        "default": hash_partitions,
        "murmur3": murmur3_partitions,
        "crc32": crc32_partitions,
        "fnv1a": fnv1a_partitions,
    }
)
"""By their names in ``partitioner.class``."""
