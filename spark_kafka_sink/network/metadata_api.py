"""Metadata requests, and their responses as snapshots of the cluster and rights of the principal (KIP-430)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.common.model import NO_LEADER_EPOCH, ClusterSnapshot, Node, Replicas, TopicInfo
from spark_kafka_sink.errors import sanitize
from spark_kafka_sink.network.api_versions import (
    METADATA,
    METADATA_FIRST_WITH_OPERATIONS,
    METADATA_FIRST_WITH_RELIABLE_EPOCHS,
    METADATA_FIRST_WITH_TOPIC_IDS,
    METADATA_FIRST_WITHOUT_CREATION,
    METADATA_LAST_WITH_CLUSTER_OPERATIONS,
    METADATA_WITHOUT_CREATION,
    VersionRange,
)
from spark_kafka_sink.network.messages import CompletionHandler, KioRequest, Request

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload


def metadata_request(topics: Sequence[str], allow_auto_topic_creation: bool, on_complete: CompletionHandler) -> Request:
    """A request for the brokers and these topics; only for the brokers if ``topics`` is empty."""
    make = MetadataEntity(topics, allow_auto_topic_creation)
    return KioRequest("metadata", make.versions, make, on_complete)


@dataclass(frozen=True, slots=True)
class MetadataEntity:
    """Makes kio's MetadataRequest. ``topics`` None: all. ``include_authorized_operations``: whether to ask for the
    principal's operations on the topics, which old versions do not have.
    """

    topics: Sequence[str] | None
    allow_auto_topic_creation: bool
    include_authorized_operations: bool = False

    @property
    def versions(self) -> VersionRange:
        """The versions that can express this request; older versions create every topic that they name."""
        return METADATA if self.allow_auto_topic_creation or not self.topics else METADATA_WITHOUT_CREATION

    def __call__(self, module: ModuleType, version: int, /) -> RequestPayload:
        fields: dict[str, Any] = {}
        if version >= METADATA_FIRST_WITHOUT_CREATION:
            fields["allow_auto_topic_creation"] = self.allow_auto_topic_creation
        if version >= METADATA_FIRST_WITH_OPERATIONS:
            fields["include_topic_authorized_operations"] = self.include_authorized_operations
            if version <= METADATA_LAST_WITH_CLUSTER_OPERATIONS:
                fields["include_cluster_authorized_operations"] = False
        topic_id = {"topic_id": None} if version >= METADATA_FIRST_WITH_TOPIC_IDS else {}
        topic = module.request.MetadataRequestTopic
        topics = None if self.topics is None else tuple(topic(name=name, **topic_id) for name in self.topics)
        if version == 0:
            topics = topics or ()  # all: version 0 has no request for the brokers only
        entity: RequestPayload = module.MetadataRequest(topics=topics, **fields)
        return entity


def parse_metadata(response: Any) -> ClusterSnapshot:
    """kio's Metadata response as a snapshot of generation 0."""
    nodes = {
        int(broker.node_id): Node(int(broker.node_id), broker.host, int(broker.port), getattr(broker, "rack", None))
        for broker in response.brokers
    }
    has_epochs = response.__version__ >= METADATA_FIRST_WITH_RELIABLE_EPOCHS
    named = {str(topic.name): _topic_info(topic, has_epochs) for topic in response.topics if topic.name is not None}
    cluster_id = getattr(response, "cluster_id", None)
    return ClusterSnapshot(
        nodes=MappingProxyType(nodes),
        topics=MappingProxyType({name: info for name, info in named.items() if not isinstance(info, str)}),
        inconsistent={name: fault for name, fault in named.items() if isinstance(fault, str)},
        cluster_id=None if cluster_id is None else sanitize(cluster_id),
        controller_id=int(getattr(response, "controller_id", -1)),
    )


def _topic_info(topic: Any, has_epochs: bool) -> TopicInfo | str:
    """The topic, or why it cannot be used."""
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    if [partition.partition_index for partition in partitions] != list(range(len(partitions))):
        return f"The metadata of topic {sanitize(topic.name)} does not name each partition exactly once."
    return TopicInfo(
        name=str(topic.name),
        leaders=tuple(int(partition.leader_id) for partition in partitions),
        leader_epochs=tuple(int(partition.leader_epoch) if has_epochs else NO_LEADER_EPOCH for partition in partitions),
        topic_id=getattr(topic, "topic_id", None),
        error=int(topic.error_code),
        replicas=tuple(
            Replicas(
                tuple(map(int, partition.replica_nodes)),
                tuple(map(int, partition.isr_nodes)),
                tuple(map(int, getattr(partition, "offline_replicas", ()))),
            )
            for partition in partitions
        ),
    )


NOT_TOLD = -(1 << 31)
"""The bits in the response of a broker that was not asked for the operations, or is too old to know them."""


class Operation(IntEnum):
    """Operations of ACLs by their codes, which are the numbers of their bits (Java: ``AclOperation``)."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def operations(bits: int) -> frozenset[Operation] | None:
    """The operations of these bits; None if the broker sent none."""
    if bits == NOT_TOLD:
        return None
    return frozenset(operation for operation in Operation if bits >> operation & 1)


def names(some: Collection[Operation]) -> str:
    return ", ".join(operation.name for operation in sorted(some)) or "nothing"
