"""DescribeTopicPartitions (75): topics and their partitions in pages (KIP-966).

Emulated: some topics or all, by name; the limit of a page and the cursor of the next one.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.apis.error_response import error_response
from spark_kafka_sink.testing.broker.apis.metadata import ALL_OPERATIONS, partition_fields
from spark_kafka_sink.testing.broker.request_context import RequestContext
from spark_kafka_sink.testing.broker.state.cluster import Topic, is_legal_name
from spark_kafka_sink.testing.broker.state.partition import Partition
from spark_kafka_sink.testing.broker.wire import Fields

_LONGEST_PAGE: Final = 2000


def handle(context: RequestContext) -> Fields | None:
    cursor = context.body.cursor
    first_topic, first_partition = ("", 0) if cursor is None else (cursor.topic_name, cursor.partition_index)
    asked = [each.name for each in context.body.topics]
    if first_partition < 0 or (first_topic and asked and first_topic not in asked):
        return error_response(context.request, ErrorCode.invalid_request)
    room = max(1, min(context.body.response_partition_limit, _LONGEST_PAGE))
    described: list[Fields] = []
    for name in sorted(set(asked or context.cluster.topics)):
        if name < first_topic:
            continue
        if not room:
            return {"topics": described, "next_cursor": {"topic_name": name, "partition_index": 0}}
        topic = context.cluster.topics.get(name)
        start = first_partition if name == first_topic else 0
        partitions = [] if topic is None else topic.partitions[start:]
        described.append(_described(context, name, topic, partitions[:room]))
        if len(partitions) > room:
            return {"topics": described, "next_cursor": {"topic_name": name, "partition_index": start + room}}
        room -= len(partitions)
    return {"topics": described}


def _described(context: RequestContext, name: str, topic: Topic | None, partitions: list[Partition]) -> Fields:
    error = context.scripted(name)
    operations: Fields = {"topic_authorized_operations": ALL_OPERATIONS}
    if error or topic is None:
        unknown = ErrorCode.unknown_topic_or_partition if is_legal_name(name) else ErrorCode.invalid_topic_exception
        return {"error_code": error or unknown, "name": name, **operations}
    return {
        "error_code": ErrorCode.none,
        "name": name,
        "topic_id": topic.id,
        "is_internal": topic.is_internal,
        "partitions": [partition_fields(context.cluster, each) for each in partitions],
        **operations,
    }
