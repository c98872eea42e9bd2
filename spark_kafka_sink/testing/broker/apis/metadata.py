"""Metadata (3): nodes, controller, topics and leaders.

Emulated: all topics, none, by name or by id; automatic creation; LEADER_NOT_AVAILABLE while a partition has no leader.
A topic created here is in the same response; a real broker first responds UNKNOWN_TOPIC_OR_PARTITION and has it
some milliseconds later (script that with ``faults.answer("Metadata", …)``). Authorized operations: all,
as of a Kafka without an authorizer.
"""

from __future__ import annotations

import uuid
from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import NO_LEADER
from spark_kafka_sink.testing.broker.request_context import RequestContext, endpoint
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.cluster import CLUSTER_ID, Cluster, Topic, is_legal_name
from spark_kafka_sink.testing.broker.state.internal_topics import INTERNAL_TOPICS
from spark_kafka_sink.testing.broker.state.partition import Partition
from spark_kafka_sink.testing.broker.wire import Fields

ALL_OPERATIONS: Final = 0b110111111000
"""READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS."""


def handle(context: RequestContext) -> Fields:
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
        return [_described(context, topic.name, topic) for topic in context.cluster.topics.values()]
    return [_asked_topic(context, each.name, getattr(each, "topic_id", None)) for each in asked]


def _asked_topic(context: RequestContext, name: str | None, topic_id: uuid.UUID | None) -> Fields:
    if name is None:
        topic = context.cluster.topic_by_id(topic_id)
        if topic is None:
            return {"error_code": ErrorCode.unknown_topic_id, "name": None, "topic_id": topic_id}
        return _described(context, topic.name, topic)
    if not is_legal_name(name):
        return {"error_code": ErrorCode.invalid_topic_exception, "name": name}
    topic = context.cluster.topics.get(name)
    if topic is None and getattr(context.body, "allow_auto_topic_creation", True):
        try:
            topic = context.cluster.auto_create(name)
        except ApiError as refused:
            return {"error_code": refused.error, "name": name, "is_internal": name in INTERNAL_TOPICS}
    return _described(context, name, topic)


def _described(context: RequestContext, name: str, topic: Topic | None) -> Fields:
    error = context.scripted(name)
    if error or topic is None:
        error = error or ErrorCode.unknown_topic_or_partition
        return {"error_code": error, "name": name, "is_internal": name in INTERNAL_TOPICS}
    return {
        "error_code": ErrorCode.none,
        "name": name,
        "topic_id": topic.id,
        "is_internal": topic.is_internal,
        "partitions": [partition_fields(context.cluster, partition) for partition in topic.partitions],
        **_operations(context),
    }


def _operations(context: RequestContext) -> Fields:
    asked = getattr(context.body, "include_topic_authorized_operations", False)
    return {"topic_authorized_operations": ALL_OPERATIONS} if asked else {}


def partition_fields(cluster: Cluster, partition: Partition) -> Fields:
    """A partition as Metadata and DescribeTopicPartitions describe it."""
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
