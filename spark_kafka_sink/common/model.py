"""Immutable values that all packages share, and checks of what a field of Kafka's protocol can hold.

A value that no request can carry is an error where it is given, because later it would fail a request with other
callers' data.
"""

from __future__ import annotations

import copy
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from spark_kafka_sink.errors import sanitize

NO_LEADER = -1
NO_LEADER_EPOCH = -1
"""A leader epoch that is not known (Java: ``RecordBatch.NO_PARTITION_LEADER_EPOCH``)."""

UNKNOWN_OFFSET = -1
"""The offset if a broker returned none (Java: ``ProduceResponse.INVALID_OFFSET``)."""

NO_TIMESTAMP = -1
"""No timestamp (Java: ``RecordBatch.NO_TIMESTAMP``). A row with this timestamp gets the time of writing. A batch with
this append time is of a topic without LogAppendTime."""

RegistryId: TypeAlias = int | UUID
"""The id of a schema in a registry: Confluent's is a number, that of a schema version in AWS Glue a UUID."""

_MAX_HOST_LENGTH = 255


class TopicPartition(NamedTuple):
    """A partition of a topic; printed as ``topic-partition``, as in Kafka's messages."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ProducerIdentity(NamedTuple):
    """Producer id and epoch from InitProducerId (KIP-98; Java: ``ProducerIdAndEpoch``)."""

    producer_id: int
    epoch: int


NO_IDENTITY = ProducerIdentity(-1, -1)
"""The identity without idempotence, and before the first InitProducerId response."""


CONNECTION: Final = 1 << 32
"""The step between the numbers of connections to one node: the network client knows connection ``k`` by the node's id,
which has 32 bits, plus ``k`` times this number."""


@dataclass(frozen=True, slots=True)
class Node:
    """A broker in a Metadata response, or a bootstrap server (negative id, as in Java's client).

    Characters of ``host`` that are not printable are escaped, because peers choose it and errors and logs show it.
    """

    id: int
    host: str
    port: int
    rack: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "host", sanitize(self.host, _MAX_HOST_LENGTH))

    def __str__(self) -> str:
        """``host:port``, and the broker's id if it is known; never the network client's number of a connection."""
        return f"{self.host}:{self.port}" + (f" (id: {self.id % CONNECTION})" if self.id >= 0 else "")


class Replicas(NamedTuple):
    """Node ids of a partition's replicas: of all, of the in-sync replicas, and of replicas on a broker or disk that is
    offline."""

    all: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]


class PartitionInfo(NamedTuple):
    """A partition and its replicas. ``leader`` is None while it has none.

    A replica on a broker that is not in the metadata is a ``Node`` with an empty host and port -1, as in Java.
    """

    topic: str
    partition: int
    leader: Node | None
    replicas: tuple[Node, ...]
    in_sync_replicas: tuple[Node, ...]
    offline_replicas: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic in a Metadata response.

    ``leaders[p]``: node id of the leader of partition ``p``, or ``NO_LEADER``. ``leader_epochs[p]``: its epoch, or
    ``NO_LEADER_EPOCH``. ``error``: Kafka's error code, 0 for none. ``replicas`` do not count in ``==``: a replica that
    falls out of sync leaves the topic's leaders as they were.
    """

    name: str
    leaders: tuple[int, ...]
    leader_epochs: tuple[int, ...]
    topic_id: UUID | None = None
    error: int = 0
    replicas: tuple[Replicas, ...] = field(default=(), compare=False)
    _available: tuple[frozenset[int], Sequence[int]] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def partition_count(self) -> int:
        return len(self.leaders)

    def available(self, unavailable: frozenset[int]) -> Sequence[int]:
        """The partitions whose leader is not in ``unavailable``. O(partitions) only if the set is not the last
        call's."""
        if self._available is None or self._available[0] is not unavailable:
            found: Sequence[int] = range(len(self.leaders))  # a range answers ``in`` without a search
            if not unavailable.isdisjoint(self.leaders):
                found = tuple(p for p, leader in enumerate(self.leaders) if leader not in unavailable)
            object.__setattr__(self, "_available", (unavailable, found))
            return found
        return self._available[1]


class TopicIds(NamedTuple):
    """The ids of topics in both directions: ``of`` by name, ``names`` by id. An id is its 16 bytes, b"" if unknown."""

    of: dict[str, bytes]
    names: dict[bytes, str]

    def if_distinct(self) -> TopicIds | None:
        """These ids; None unless all are known and different, because rows sent to an id that two topics have might be
        written to the wrong topic.
        """
        return self if len(self.names) == len(self.of) and b"" not in self.names else None


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The cluster's metadata at one moment (Java: ``MetadataSnapshot``). Each update makes a new snapshot.

    ``generation`` grows by one with each update. ``partition_counts`` has the topics without error, by name.
    ``inconsistent`` has the topics that were left out of ``topics``, and why.

    ``changed`` is the generation of the last update that did more than add topics. An update that only adds topics
    copies the maps and looks at nothing but the new topics. Otherwise each of a thousand new topics would visit all
    topics.
    """

    generation: int = 0
    nodes: Mapping[int, Node] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicInfo] = field(default_factory=lambda: MappingProxyType({}))
    cluster_id: str | None = None
    controller_id: int = -1
    inconsistent: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    changed: int = 0
    partition_counts: dict[str, int] = field(init=False, default_factory=dict)
    topic_ids: TopicIds = field(init=False, repr=False, compare=False, default_factory=lambda: TopicIds({}, {}))
    _topics: dict[str, TopicInfo] = field(init=False, repr=False, compare=False)
    _partitions: dict[str, tuple[PartitionInfo, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _available: dict[str, tuple[PartitionInfo, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        shared = dict(self.topics)
        self._set(_topics=shared, topics=MappingProxyType(shared))
        self._add(shared)

    def with_more(self, topics: Mapping[str, TopicInfo], update: ClusterSnapshot) -> ClusterSnapshot:
        """The snapshot after ``update``. This snapshot must have none of ``topics``, or equal ones, or ones without
        leaders and id.
        """
        after, shared = copy.copy(self), dict(self._topics)
        after._set(
            generation=self.generation + 1, cluster_id=update.cluster_id, controller_id=update.controller_id,
            inconsistent=update.inconsistent, topics=MappingProxyType(shared), _topics=shared, _partitions={},
            _available={}, partition_counts=dict(self.partition_counts),
            topic_ids=TopicIds(dict(self.topic_ids.of), dict(self.topic_ids.names)),
        )  # fmt: skip
        after._add(topics)
        return after

    def _add(self, topics: Mapping[str, TopicInfo]) -> None:
        self._topics.update(topics)
        for name, info in topics.items():
            if info.leaders and not info.error:
                self.partition_counts[name] = len(info.leaders)
            if info.leaders or info.topic_id is not None:
                topic_id = b"" if info.topic_id is None else info.topic_id.bytes
                self.topic_ids.of[name], self.topic_ids.names[topic_id] = topic_id, name

    def _set(self, **fields: object) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def leader(self, partition: TopicPartition) -> int:
        """Node id of the leader; ``NO_LEADER`` if unknown, or if the leader's node is not in this snapshot."""
        info = self.topics.get(partition.topic)
        if info is None or partition.partition >= len(info.leaders):
            return NO_LEADER
        leader = info.leaders[partition.partition]
        return leader if leader in self.nodes else NO_LEADER

    def partitions(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic of this snapshot, in their order (Java: ``Cluster.partitionsForTopic``).

        The list is made at the first call for the topic, because a ``RecordPartitioner`` may ask for it for every
        record.
        """
        known = self._partitions.get(topic)
        if known is None:
            info, nodes = self.topics[topic], self.nodes
            known = self._partitions[topic] = tuple(
                PartitionInfo(topic, number, nodes.get(leader), *(tuple(map(self._node, ids)) for ids in replicas))
                for number, (leader, replicas) in enumerate(zip(info.leaders, info.replicas, strict=True))
            )
        return known

    def available_partitions(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The partitions with a leader (Java: ``Cluster.availablePartitionsForTopic``)."""
        known = self._available.get(topic)
        if known is None:
            with_leader = (partition for partition in self.partitions(topic) if partition.leader is not None)
            known = self._available[topic] = tuple(with_leader)
        return known

    def _node(self, node_id: int) -> Node:
        return self.nodes.get(node_id) or Node(node_id, "", -1)


LARGEST_INT16: Final = 2**15 - 1
LARGEST_INT32: Final = 2**31 - 1
LARGEST_INT64: Final = 2**63 - 1

_MAX_STRING_BYTES: Final = LARGEST_INT16
"""The longest string, bytes. Brokers refuse longer strings even in flexible versions, whose encoding has no limit."""


TOPIC_RULE: Final = "a name has at most 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', and is not '.' or '..'"
_TOPIC: Final = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Whether brokers accept a topic of this name, by ``TOPIC_RULE`` (Java: ``Topic.validate``)."""
    return _TOPIC.fullmatch(name) is not None


def text_fault(value: object) -> str | None:
    """Why the protocol cannot carry ``value`` as a string, in words that follow its name (``must be …``); else None."""
    if not isinstance(value, str):
        return f"must be a str, not {type(value).__name__}"
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        return f"has {value[error.start]!a} at index {error.start}, a lone surrogate that UTF-8 cannot encode"
    if size > _MAX_STRING_BYTES:
        return f"has {size} bytes in UTF-8, more than the {_MAX_STRING_BYTES} that Kafka allows"
    return None


def check_text(name: str, value: object) -> None:
    """Raises ``ValueError`` unless ``value`` is a string that the protocol can carry."""
    if (fault := text_fault(value)) is not None:
        raise ValueError(f"Invalid {name}: it {fault}.")


def check_number(name: str, value: object, low: int, high: int) -> None:
    """Raises ``ValueError`` unless ``value`` is an integer from ``low`` to ``high``; a bool is refused."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]  # a TypeError is what this asks for
    except TypeError:
        raise ValueError(f"Invalid {name}: it must be an int, not {type(value).__name__}.") from None
    if not low <= number <= high:
        raise ValueError(f"Invalid {name}: it must be from {low} to {high}, but is {number}.")
