"""OffsetFetch (9).

Emulated: some or all partitions of one group, of many from version 8 on; UNSTABLE_OFFSET_COMMIT while a transaction
holds newer offsets and ``require_stable`` is asked (KIP-447).
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.testing.broker.request_context import RequestContext, by_topic
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.offsets import NOTHING_COMMITTED
from spark_kafka_sink.testing.broker.wire import Fields

_GROUPS_SINCE: Final = 8


def handle(context: RequestContext) -> Fields:
    if context.version < _GROUPS_SINCE:
        return _group(context, context.body.group_id, context.body.topics)
    return {
        "groups": [
            {"group_id": each.group_id, **_group(context, each.group_id, each.topics)} for each in context.body.groups
        ]
    }


def _group(context: RequestContext, group: str, topics: Any) -> Fields:
    try:
        context.check_script()
        context.check_group_coordinator(group)
    except ApiError as refused:
        return {"error_code": refused.error}
    committed = context.state.offsets.of(group)
    asked = (
        list(committed)
        if topics is None
        else [TopicPartition(topic.name, index) for topic in topics for index in topic.partition_indexes]
    )
    rows = [(name.topic, _partition(context, group, name)) for name in asked]
    return {"topics": by_topic(rows, "name", "partitions")}


def _partition(context: RequestContext, group: str, name: TopicPartition) -> Fields:
    if getattr(context.body, "require_stable", False) and context.state.offsets.is_unstable(group, name):
        error, committed = ErrorCode.unstable_offset_commit, NOTHING_COMMITTED
    else:
        error, committed = ErrorCode.none, context.state.offsets.of(group).get(name, NOTHING_COMMITTED)
    return {
        "partition_index": name.partition,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "error_code": error,
    }
