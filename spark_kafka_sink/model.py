"""The values that cross rooms: immutable, without behaviour beyond look-ups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

NO_LEADER = -1


class TopicPartition(NamedTuple):
    """A partition of a topic; prints as ``topic-partition``, as in Kafka's own messages."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ProducerIdentity(NamedTuple):
    """Producer id and epoch from InitProducerId (KIP-98; Java: ``ProducerIdAndEpoch``)."""

    producer_id: int
    epoch: int


NO_IDENTITY = ProducerIdentity(-1, -1)
"""Without idempotence, or before the first InitProducerId response."""


@dataclass(frozen=True, slots=True)
class Node:
    """A broker as metadata names it. Bootstrap servers are nodes with negative ids, as in Java's client."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id: {self.id})"


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic in a metadata answer.

    ``leaders[p]`` is the leader's node id of partition ``p``, ``NO_LEADER`` while there is none;
    ``leader_epochs[p]`` its epoch (-1 when the broker gave none). ``error`` is a Kafka error code, 0 when fine.
    """

    name: str
    leaders: tuple[int, ...]
    leader_epochs: tuple[int, ...]
    topic_id: UUID | None = None
    is_internal: bool = False
    error: int = 0

    @property
    def partition_count(self) -> int:
        return len(self.leaders)


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """What is known of the cluster at one moment (Java: ``MetadataSnapshot``). A new update makes a new snapshot.

    ``generation`` grows by one with each update, so "has it changed since" is one comparison.
    """

    generation: int = 0
    nodes: Mapping[int, Node] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicInfo] = field(default_factory=lambda: MappingProxyType({}))
    cluster_id: str | None = None
    controller_id: int = -1

    def partition_count(self, topic: str) -> int | None:
        """Number of partitions, None when the topic is unknown or in error."""
        info = self.topics.get(topic)
        return info.partition_count if info is not None and not info.error and info.leaders else None

    def leader(self, partition: TopicPartition) -> int:
        """Node id of the leader, ``NO_LEADER`` when unknown or when the leader's node is not in this snapshot."""
        info = self.topics.get(partition.topic)
        if info is None or partition.partition >= len(info.leaders):
            return NO_LEADER
        leader = info.leaders[partition.partition]
        return leader if leader in self.nodes else NO_LEADER
