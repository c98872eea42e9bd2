"""The partitioners that ``partitioner.class`` names, one row each.

Rules and texts of the options take them from here; ``producer/kafka_partitioners.py`` makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class NamedPartitioner(NamedTuple):
    """``doc``: what it does, for the text of the option. ``rack_aware``: whether ``partitioner.rack.aware`` applies to
    it. ``java_class``: Java's class, which may be given instead; without ``org.apache.kafka.clients.producer``.
    """

    name: str
    doc: str
    rack_aware: bool = False
    java_class: str = ""

    @property
    def text(self) -> str:
        java = f" (or Java's {self.java_class.rpartition('.')[2]})" if self.java_class else ""
        return f"{self.name}{java}: {self.doc}."


_TABLE: Final = (
    NamedPartitioner("default", "murmur2 of the key, sticky without a key, as in Kafka", rack_aware=True),
    NamedPartitioner("crc32", "the same with librdkafka's hash (consistent_random)", rack_aware=True),
    NamedPartitioner(
        "round_robin", "the next partition for each record; ignores keys", java_class="RoundRobinPartitioner"
    ),
    NamedPartitioner(
        "uniform_sticky", "another partition for each batch; ignores keys", java_class="UniformStickyPartitioner"
    ),
    NamedPartitioner(
        "sticky", "uniform_sticky without a key, murmur2 with one", java_class="internals.DefaultPartitioner"
    ),
)

PARTITIONERS: Final[Mapping[str, NamedPartitioner]] = MappingProxyType({each.name: each for each in _TABLE})
DEFAULT_PARTITIONER: Final = _TABLE[0].name
RACK_AWARE_PARTITIONERS: Final = tuple(each.name for each in _TABLE if each.rack_aware)
JAVA_PARTITIONERS: Final[Mapping[str, str]] = MappingProxyType({
    f"org.apache.kafka.clients.producer.{each.java_class}": each.name for each in _TABLE if each.java_class
})  # fmt: skip
"""Our names by those of Java's classes."""
