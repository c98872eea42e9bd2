"""OffsetCommit (8) of a consumer that assigns its partitions itself.

Emulated: storing and overwriting. Not emulated: groups with members; a generation gets UNKNOWN_MEMBER_ID.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from spark_kafka_sink.model import TopicPartition
from spark_kafka_sink.testing.broker.call import Call, by_topic
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.offsets import CommittedOffset
from spark_kafka_sink.testing.broker.wire import Fields


def handle(call: Call) -> Fields:
    rows: list[tuple[str, Fields]] = [
        (topic.name, {"partition_index": asked.partition_index, "error_code": _commit(call, topic.name, asked)})
        for topic in call.body.topics
        for asked in topic.partitions
    ]
    return {"topics": by_topic(rows, "name", "partitions")}


def _commit(call: Call, topic: str, asked: Any) -> ErrorCode:
    name = TopicPartition(topic, asked.partition_index)
    try:
        call.check_script(*name)
        call.check_coordinator(call.body.group_id)
    except ApiError as refused:
        return refused.error
    if call.body.generation_id_or_member_epoch >= 0:
        return ErrorCode.unknown_member_id
    if call.cluster.partition(*name) is None:
        return ErrorCode.unknown_topic_or_partition
    epoch = getattr(asked, "committed_leader_epoch", -1)
    offset = CommittedOffset(asked.committed_offset, epoch, asked.committed_metadata or "")
    call.state.offsets.commit(call.body.group_id, name, offset)
    return ErrorCode.none
