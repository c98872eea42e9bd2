"""Nodes, topics and leaders (Kafka: the controller's view, ``ReplicationControlManager``).

Emulated: replicas placed round robin, elections within the ISR when a node dies or comes back, topic ids, topic
settings, automatic creation, including internal topics. The coordinator of a transactional id is the leader of its
partition of ``__transaction_state``.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.config import Setting, Settings, topic_fault
from spark_kafka_sink.testing.broker.state.internal_topics import (
    CLUSTER_METADATA_TOPIC,
    INTERNAL_REPLICAS,
    INTERNAL_TOPICS,
    TRANSACTIONS_TOPIC,
    coordinator_partition,
)
from spark_kafka_sink.testing.broker.state.partition import Partition

CLUSTER_ID: Final = "TestBrokerClusterId000"
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_legal_name(topic: str) -> bool:
    return bool(_LEGAL_NAME.fullmatch(topic)) and topic not in {".", ".."}


@dataclass(slots=True)
class BrokerNode:
    """A node and the addresses at which it listens, even while it is down. ``port``: the port of the plaintext
    listener."""

    id: int
    host: str
    port: int
    alive: bool = True
    other_ports: dict[str, int] = field(default_factory=dict)
    rack: str | None = None

    def port_of(self, listener: str) -> int:
        return self.other_ports.get(listener, self.port)


@dataclass(slots=True)
class Topic:
    """A topic under one id. A topic that is created again under the same name has another id."""

    name: str
    id: uuid.UUID
    settings: Settings
    partitions: list[Partition] = field(default_factory=list)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas)


@dataclass(slots=True)
class Limits:
    """The settings that managed brokers do not leave to clients. ``refused``: topic settings that CreateTopics refuses,
    with the error. ``hidden``: settings that DescribeConfigs leaves out.
    """

    refused: dict[str, ApiError] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)

    def refuse(self, names: Iterable[str], error: ErrorCode, message: str | None) -> None:
        for name in names:
            self.refused[name] = ApiError(error, message or f"Topic config '{name}' may not be set")

    def check(self, config: Mapping[str, Setting]) -> None:
        """Raises the ``ApiError`` of the first refused setting."""
        for name in config:
            if name in self.refused:
                raise self.refused[name]


class ClusterState:
    """All nodes and topics, and the supply of producer ids. ``needs_min_isr``: see ``Partition``."""

    def __init__(self, nodes: list[BrokerNode], config: Mapping[str, Setting], *, needs_min_isr: bool = True) -> None:
        self.nodes = {node.id: node for node in nodes}
        self.config = config
        self.topics: dict[str, Topic] = {}
        self.limits = Limits()
        self._needs_min_isr = needs_min_isr
        self._next_producer_id = 0

    def alive(self) -> list[BrokerNode]:
        return [node for node in self.nodes.values() if node.alive]

    def partitions(self) -> Iterator[Partition]:
        for topic in self.topics.values():
            yield from topic.partitions

    def next_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id

    def coordinator(self, transactional_id: str) -> BrokerNode | None:
        """The leader of the id's partition of ``__transaction_state``, None while it has no leader."""
        partitions = self.internal_topic(TRANSACTIONS_TOPIC).partitions
        return self.nodes.get(partitions[coordinator_partition(transactional_id, len(partitions))].leader)

    def partition(self, name: str, index: int) -> Partition | None:
        topic = self.topics.get(name)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    def topic_by_id(self, topic_id: uuid.UUID | None) -> Topic | None:
        return next((topic for topic in self.topics.values() if topic.id == topic_id), None)

    def create_topic(
        self, name: str, partitions: int, replication_factor: int, config: Mapping[str, Setting], *, dry: bool = False
    ) -> Topic:
        """Creates a topic. A count of -1 is the broker's default. ``dry``: whether it only checks. Raises
        ``ApiError``."""
        count = int(self.config["num.partitions"]) if partitions == -1 else partitions
        replicas = int(self.config["default.replication.factor"]) if replication_factor == -1 else replication_factor
        self._check_new_topic(name, count, replicas, config)
        topic = Topic(name, uuid.uuid4(), Settings(self.config, config))
        self._extend(topic, count, replicas)
        if not dry:
            self.topics[name] = topic
        return topic

    def auto_create(self, name: str) -> Topic:
        """Create a topic as a Metadata request does (``auto.create.topics.enable``). Raises ``ApiError``."""
        if not self.config["auto.create.topics.enable"]:
            raise ApiError(ErrorCode.unknown_topic_or_partition)
        return self.internal_topic(name) if name in INTERNAL_TOPICS else self.create_topic(name, -1, -1, {})

    def internal_topic(self, name: str) -> Topic:
        """A topic of ``INTERNAL_TOPICS``, created when it is first asked for."""
        if name not in self.topics:
            kind = INTERNAL_TOPICS[name]
            replicas = min(INTERNAL_REPLICAS, len(self.alive()))
            self.create_topic(name, int(self.config[kind.partitions]), replicas, kind.configs)
        return self.topics[name]

    def create_partitions(self, name: str, count: int, *, dry: bool = False) -> None:
        topic = self.topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.unknown_topic_or_partition)
        present = len(topic.partitions)
        if count == present:
            raise ApiError(ErrorCode.invalid_partitions, f"Topic already has {present} partition(s).")
        if count < present:
            raise ApiError(
                ErrorCode.invalid_partitions,
                f"The topic {name} currently has {present} partition(s); {count} would not be an increase.",
            )
        if not dry:
            self._extend(topic, count, topic.replication_factor)

    def set_topic_configs(self, name: str, config: Mapping[str, Setting]) -> None:
        """Replaces these settings of the topic. Raises ``ApiError``."""
        if name not in self.topics:
            raise ApiError(ErrorCode.unknown_topic_or_partition)
        fault = topic_fault(config)
        if fault is not None:
            raise ApiError(ErrorCode.invalid_config, fault)
        own = self.topics[name].settings.own
        own |= Settings(self.config, config).own
        for partition in self.topics[name].partitions:
            partition.advance_high_watermark()

    def delete_topic(self, name: str) -> Topic:
        if name not in self.topics:
            raise ApiError(ErrorCode.unknown_topic_or_partition)
        return self.topics.pop(name)

    def node_died(self, node_id: int) -> None:
        self.nodes[node_id].alive = False
        for partition in self.partitions():
            partition.lose(node_id)

    def node_came_back(self, node_id: int) -> None:
        self.nodes[node_id].alive = True
        for partition in self.partitions():
            partition.regain(node_id)

    def _extend(self, topic: Topic, count: int, replicas: int) -> None:
        ids = [node.id for node in self.alive()]
        for index in range(len(topic.partitions), count):
            placed = [ids[(index + step) % len(ids)] for step in range(replicas)]
            name = TopicPartition(topic.name, index)
            topic.partitions.append(Partition(name, placed, topic.settings, needs_min_isr=self._needs_min_isr))

    def _check_new_topic(self, name: str, count: int, replicas: int, config: Mapping[str, Setting]) -> None:
        if name == CLUSTER_METADATA_TOPIC:
            raise ApiError(ErrorCode.invalid_request, f"Creation of internal topic {name} is prohibited.")
        if not is_legal_name(name):
            raise ApiError(ErrorCode.invalid_topic_exception, f"Topic name is invalid: {name!r}")
        if name in self.topics:
            raise ApiError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
        if count < 1:
            raise ApiError(
                ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value."
            )
        if not 1 <= replicas <= len(self.alive()):
            raise ApiError(
                ErrorCode.invalid_replication_factor,
                f"Unable to replicate the partition {replicas} time(s): The target replication factor of {replicas} "
                f"cannot be reached because only {len(self.alive())} broker(s) are registered.",
            )
        fault = topic_fault(config)
        if fault is not None:
            raise ApiError(ErrorCode.invalid_config, fault)
