"""The Metadata API: how the cluster is asked for, and what an answer says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.errors import NetworkError
from spark_kafka_sink.model import ClusterSnapshot, Node, TopicInfo
from spark_kafka_sink.network.requests import Request, Response, kio_request

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload

# Brokers from 2.8 to 4.3. Topic ids come with v10, the top-level error code (KIP-1102) with v13.
METADATA_VERSIONS = (9, 13)
_FIRST_WITH_TOPIC_IDS = 10
_LAST_WITH_CLUSTER_OPERATIONS = 10


def metadata_request(
    topics: Sequence[str], allow_auto_topic_creation: bool, on_complete: Callable[[Response], None]
) -> Request:
    """Asks for the brokers and these topics, or for the brokers only when ``topics`` is empty."""

    def make(module: ModuleType, version: int) -> RequestPayload:
        topic_id = {"topic_id": None} if version >= _FIRST_WITH_TOPIC_IDS else {}
        cluster = {"include_cluster_authorized_operations": False} if version <= _LAST_WITH_CLUSTER_OPERATIONS else {}
        entity: RequestPayload = module.MetadataRequest(
            topics=tuple(module.request.MetadataRequestTopic(name=name, **topic_id) for name in topics),
            allow_auto_topic_creation=allow_auto_topic_creation,
            include_topic_authorized_operations=False,
            **cluster,
        )
        return entity

    return kio_request("metadata", *METADATA_VERSIONS, make, on_complete)


def parse_metadata(response: Any) -> ClusterSnapshot:
    """What kio's Metadata response says, of generation 0. Raises ``NetworkError`` for an answer that makes no sense."""
    nodes = {
        int(broker.node_id): Node(int(broker.node_id), broker.host, int(broker.port), broker.rack)
        for broker in response.brokers
    }
    topics = {str(topic.name): _topic_info(topic) for topic in response.topics if topic.name is not None}
    return ClusterSnapshot(
        nodes=MappingProxyType(nodes),
        topics=MappingProxyType(topics),
        cluster_id=response.cluster_id,
        controller_id=int(response.controller_id),
    )


def _topic_info(topic: Any) -> TopicInfo:
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    if [partition.partition_index for partition in partitions] != list(range(len(partitions))):
        raise NetworkError(f"the metadata of topic {topic.name} does not name each of its partitions once")
    return TopicInfo(
        name=str(topic.name),
        leaders=tuple(int(partition.leader_id) for partition in partitions),
        leader_epochs=tuple(int(partition.leader_epoch) for partition in partitions),
        topic_id=getattr(topic, "topic_id", None),
        is_internal=topic.is_internal,
        error=int(topic.error_code),
    )
