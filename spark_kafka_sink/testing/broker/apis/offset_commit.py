"""OffsetCommit (8): offsets of a group's member, or of a consumer that assigns its partitions itself.

Emulated: each commit is a record of ``__consumer_offsets``; member and generation are checked, and a group with members
takes no offsets of others.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.model import TopicPartition
from spark_kafka_sink.testing.broker.call import Call, by_topic
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.groups import Claim
from spark_kafka_sink.testing.broker.state.offset_records import CommittedOffset
from spark_kafka_sink.testing.broker.wire import Fields

_GROUP_ID_NOT_FOUND_SINCE: Final = 9


def handle(call: Call) -> Fields:
    refused = _refused(call)
    accepted: dict[TopicPartition, CommittedOffset] = {}
    rows: list[tuple[str, Fields]] = []
    for topic in call.body.topics:
        for asked in topic.partitions:
            name = TopicPartition(topic.name, asked.partition_index)
            error = call.scripted(*name) or offset_error(call, name) or refused
            if not error:
                accepted[name] = committed_offset(asked)
            rows.append((topic.name, {"partition_index": asked.partition_index, "error_code": error}))
    call.state.offsets.commit(call.body.group_id, accepted, call.now_ms)
    return {"topics": by_topic(rows, "name", "partitions")}


def offset_error(call: Call, partition: TopicPartition) -> ErrorCode:
    known = call.cluster.partition(*partition) is not None
    return ErrorCode.none if known else ErrorCode.unknown_topic_or_partition


def committed_offset(asked: Any) -> CommittedOffset:
    epoch = getattr(asked, "committed_leader_epoch", -1)
    return CommittedOffset(asked.committed_offset, epoch, asked.committed_metadata or "")


def _refused(call: Call) -> ErrorCode:
    body = call.body
    claim = Claim(body.member_id, body.generation_id_or_member_epoch, getattr(body, "group_instance_id", None))
    not_found = call.version >= _GROUP_ID_NOT_FOUND_SINCE
    unknown = ErrorCode.group_id_not_found if not_found else ErrorCode.illegal_generation
    try:
        call.check_group_coordinator(body.group_id)
        call.state.groups.check_commit(body.group_id, claim, unknown, transactional=False)
    except ApiError as refused:
        return refused.error
    return ErrorCode.none
