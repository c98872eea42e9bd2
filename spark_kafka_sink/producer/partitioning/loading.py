"""``partitioner.class`` → a partitioner."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from types import MappingProxyType

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.producer.partitioning.client_hashes import crc32, fnv1a, murmur3
from spark_kafka_sink.producer.partitioning.custom import CustomPartitioner
from spark_kafka_sink.producer.partitioning.default import BuiltInPartitioner
from spark_kafka_sink.producer.partitioning.key_hash import KeyHash
from spark_kafka_sink.producer.partitioning.murmur2 import murmur2
from spark_kafka_sink.producer.partitioning.partitioner import Partitioner
from spark_kafka_sink.producer.partitioning.round_robin import RoundRobinPartitioner
from spark_kafka_sink.producer.partitioning.uniform_sticky import UniformStickyPartitioner

KEY_HASHES: Mapping[str, KeyHash] = MappingProxyType(
    {"default": murmur2, "murmur3": murmur3, "crc32": crc32, "fnv1a": fnv1a}
)
"""By their names in ``partitioner.class``."""


def load_partitioner(config: ProducerConfig, random: Random) -> Partitioner:
    """The partitioner that ``config`` names, configured. Raises ``ConfigError`` for a class that cannot be loaded."""
    name = config.partitioner_class
    if name == "round_robin":
        return RoundRobinPartitioner()
    if name == "uniform_sticky":
        return UniformStickyPartitioner(random)
    if name == "sticky":
        return UniformStickyPartitioner(random, murmur2)
    if name in KEY_HASHES:
        return BuiltInPartitioner(config, random, KEY_HASHES[name])
    custom = CustomPartitioner.load(name)
    custom.configure(config.by_name())
    return custom
