"""The APIs that say which broker has what: ApiVersions, Metadata, DescribeTopicPartitions, DescribeCluster and
FindCoordinator."""

from __future__ import annotations

import uuid
from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import NO_LEADER
from spark_kafka_sink.testing.broker.apis.error_response import error_response
from spark_kafka_sink.testing.broker.request_context import RequestContext, address, endpoint
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.cluster import CLUSTER_ID, BrokerNode, ClusterState, Topic, is_legal_name
from spark_kafka_sink.testing.broker.state.internal_topics import INTERNAL_TOPICS
from spark_kafka_sink.testing.broker.state.partition import Partition
from spark_kafka_sink.testing.broker.versions import Release
from spark_kafka_sink.testing.broker.wire import API_KEYS, Fields

_ALL_TOPIC_OPERATIONS: Final = 0b110111111000
"""READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS."""
_MAX_PAGE: Final = 2000
_ALL_CLUSTER_OPERATIONS: Final = 0b1111110100000
"""CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE."""
_GROUP: Final = 0
_TRANSACTION: Final = 1


def api_versions(context: RequestContext) -> Fields:
    """ApiVersions (18): the APIs and versions of this broker.

    Emulated: the ranges of the imitated release, finalized features from version 3 on, and the response to a version
    that is not offered: UNSUPPORTED_VERSION with the list, in version 0 (KIP-511).
    """
    return versions_response(context.state.release_of(context.request.node), context.scripted())


def versions_response(release: Release, error: ErrorCode) -> Fields:
    features = release.features.items()
    return {
        "error_code": error,
        "api_keys": [
            {"api_key": API_KEYS[api], "min_version": offered.lowest, "max_version": offered.highest}
            for api, offered in sorted(release.versions.items(), key=lambda item: API_KEYS[item[0]])
        ],
        "finalized_features_epoch": 1 if features else -1,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level} for name, level in features
        ],
    }


def metadata(context: RequestContext) -> Fields:
    """Metadata (3): nodes, controller, topics and leaders.

    Emulated: all topics, none, by name or by id; automatic creation; LEADER_NOT_AVAILABLE while a partition has no
    leader.
    """
    alive = context.cluster.alive()
    return {
        "brokers": [endpoint(context, node) for node in alive],
        "cluster_id": CLUSTER_ID,
        "controller_id": alive[0].id if alive else -1,
        "topics": _topics(context),
    }


def _topics(context: RequestContext) -> list[Fields]:
    asked = context.body.topics
    if asked is None or (context.version == 0 and not asked):
        return [_described_topic(context, topic.name, topic) for topic in context.cluster.topics.values()]
    return [_asked_topic(context, each.name, getattr(each, "topic_id", None)) for each in asked]


def _asked_topic(context: RequestContext, name: str | None, topic_id: uuid.UUID | None) -> Fields:
    if name is None:
        topic = context.cluster.topic_by_id(topic_id)
        if topic is None:
            return {"error_code": ErrorCode.unknown_topic_id, "name": None, "topic_id": topic_id}
        return _described_topic(context, topic.name, topic)
    if not is_legal_name(name):
        return {"error_code": ErrorCode.invalid_topic_exception, "name": name}
    topic = context.cluster.topics.get(name)
    if topic is None and getattr(context.body, "allow_auto_topic_creation", True):
        try:
            topic = context.cluster.auto_create(name)
        except ApiError as refused:
            return {"error_code": refused.error, "name": name, "is_internal": name in INTERNAL_TOPICS}
    return _described_topic(context, name, topic)


def _described_topic(context: RequestContext, name: str, topic: Topic | None) -> Fields:
    error = context.scripted(name)
    if error or topic is None:
        error = error or ErrorCode.unknown_topic_or_partition
        return {"error_code": error, "name": name, "is_internal": name in INTERNAL_TOPICS}
    return {
        "error_code": ErrorCode.none,
        "name": name,
        "topic_id": topic.id,
        "is_internal": topic.is_internal,
        "partitions": [_partition_fields(context.cluster, partition) for partition in topic.partitions],
        **_topic_operations(context),
    }


def _topic_operations(context: RequestContext) -> Fields:
    asked = getattr(context.body, "include_topic_authorized_operations", False)
    return {"topic_authorized_operations": _ALL_TOPIC_OPERATIONS} if asked else {}


def _partition_fields(cluster: ClusterState, partition: Partition) -> Fields:
    """The fields of a partition in Metadata and DescribeTopicPartitions."""
    has_leader = partition.leader != NO_LEADER
    return {
        "error_code": ErrorCode.none if has_leader else ErrorCode.leader_not_available,
        "partition_index": partition.name.partition,
        "leader_id": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": [node for node in partition.replicas if not cluster.nodes[node].alive],
    }


def describe_topic_partitions(context: RequestContext) -> Fields | None:
    """DescribeTopicPartitions (75): topics and their partitions in pages (KIP-966).

    Emulated: some topics or all, by name; the limit of a page and the cursor of the next one.
    """
    cursor = context.body.cursor
    first_topic, first_partition = ("", 0) if cursor is None else (cursor.topic_name, cursor.partition_index)
    asked = [topic.name for topic in context.body.topics]
    if first_partition < 0 or (first_topic and asked and first_topic not in asked):
        return error_response(context.request, ErrorCode.invalid_request)
    room = max(1, min(context.body.response_partition_limit, _MAX_PAGE))
    described: list[Fields] = []
    for name in sorted(set(asked or context.cluster.topics)):
        if name < first_topic:
            continue
        if not room:
            return {"topics": described, "next_cursor": {"topic_name": name, "partition_index": 0}}
        topic = context.cluster.topics.get(name)
        start = first_partition if name == first_topic else 0
        partitions = [] if topic is None else topic.partitions[start:]
        described.append(_described_page(context, name, topic, partitions[:room]))
        if len(partitions) > room:
            return {"topics": described, "next_cursor": {"topic_name": name, "partition_index": start + room}}
        room -= len(partitions)
    return {"topics": described}


def _described_page(context: RequestContext, name: str, topic: Topic | None, partitions: list[Partition]) -> Fields:
    error = context.scripted(name)
    operations: Fields = {"topic_authorized_operations": _ALL_TOPIC_OPERATIONS}
    if error or topic is None:
        unknown = ErrorCode.unknown_topic_or_partition if is_legal_name(name) else ErrorCode.invalid_topic_exception
        return {"error_code": error or unknown, "name": name, **operations}
    return {
        "error_code": ErrorCode.none,
        "name": name,
        "topic_id": topic.id,
        "is_internal": topic.is_internal,
        "partitions": [_partition_fields(context.cluster, partition) for partition in partitions],
        **operations,
    }


def describe_cluster(context: RequestContext) -> Fields:
    """DescribeCluster (60): nodes and controller. Authorized operations: all, as of a Kafka without an authorizer."""
    error = context.scripted()
    if error:
        return {"error_code": error, "error_message": error.name.upper()}
    alive = context.cluster.alive()
    asked = context.body.include_cluster_authorized_operations
    return {
        "error_code": ErrorCode.none,
        "cluster_id": CLUSTER_ID,
        "controller_id": alive[0].id if alive else -1,
        "brokers": [
            {"broker_id" if name == "node_id" else name: value for name, value in endpoint(context, node).items()}
            for node in alive
        ],
        **({"cluster_authorized_operations": _ALL_CLUSTER_OPERATIONS} if asked else {}),
    }


def find_coordinator(context: RequestContext) -> Fields:
    """FindCoordinator (10): which node coordinates a group or a transactional id.

    Emulated: one key, and from version 4 on many; the first group creates ``__consumer_offsets``, the first
    transactional id ``__transaction_state``; the leader of its partition there coordinates each.
    """
    keys = getattr(context.body, "coordinator_keys", None)
    if keys is None:
        return _coordinator(context, context.body.key)
    return {"coordinators": [{"key": key, **_coordinator(context, key)} for key in keys]}


def _coordinator(context: RequestContext, key: str) -> Fields:
    kind = getattr(context.body, "key_type", _GROUP)
    error = context.scripted() or (ErrorCode.none if kind in {_GROUP, _TRANSACTION} else ErrorCode.invalid_request)
    node = context.cluster.coordinator(key) if kind == _TRANSACTION else _group_coordinator(context, key)
    if error or node is None:
        error = error or ErrorCode.coordinator_not_available
        return {"node_id": -1, "host": "", "port": -1, "error_code": error, "error_message": None}
    return {**address(context, node), "error_message": None}


def _group_coordinator(context: RequestContext, group: str) -> BrokerNode | None:
    """The group's coordinator; None while the group's partition has no leader."""
    return context.cluster.nodes.get(context.state.offsets.partition(group).leader)
