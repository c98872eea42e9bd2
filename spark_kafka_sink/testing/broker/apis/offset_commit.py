"""OffsetCommit (8): offsets of a group's member, or of a consumer that assigns its partitions itself.

Emulated: each commit is a record of ``__consumer_offsets``; member and generation are checked, and a group with members
takes no offsets of others. The response waits for replicas up to ``offsets.commit.timeout.ms``; until Kafka 4.0 too few
of them in sync are COORDINATOR_NOT_AVAILABLE at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.testing.broker.request_context import Delayed, RequestContext, Response, by_topic
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.groups import Claim
from spark_kafka_sink.testing.broker.state.offset_records import CommittedOffset
from spark_kafka_sink.testing.broker.wire import Fields

_GROUP_ID_NOT_FOUND_SINCE: Final = 9

_AS_COMMIT: Final = MappingProxyType(
    {
        ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
        ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
        ErrorCode.not_enough_replicas_after_append: ErrorCode.coordinator_not_available,
        ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
        ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
        ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    }
)
"""The error of the append as committers get it (Kafka: ``CoordinatorOperationExceptionHelper``)."""

Row: TypeAlias = tuple[TopicPartition, ErrorCode]


def handle(context: RequestContext) -> Response:
    refused = _refused(context)
    accepted: dict[TopicPartition, CommittedOffset] = {}
    rows: list[Row] = []
    for topic in context.body.topics:
        for asked in topic.partitions:
            name = TopicPartition(topic.name, asked.partition_index)
            error = context.scripted(*name) or offset_error(context, name) or refused
            if not error:
                accepted[name] = committed_offset(asked)
            rows.append((name, error))
    return committed(context, rows, accepted)


def committed(
    context: RequestContext,
    rows: Sequence[Row],
    accepted: Mapping[TopicPartition, CommittedOffset],
    producer: tuple[int, int] | None = None,
) -> Response:
    """Append the accepted offsets; the response to OffsetCommit and TxnOffsetCommit, when replicas have them.

    ``producer``: id and epoch of TxnOffsetCommit's.
    """
    offsets = context.state.offsets

    def response(appended: ErrorCode) -> Fields:
        stored = _AS_COMMIT.get(appended, appended)
        fields = [
            (name.topic, {"partition_index": name.partition, "error_code": error or stored}) for name, error in rows
        ]
        return {"topics": by_topic(fields, "name", "partitions")}

    if not accepted:
        return response(ErrorCode.none)
    try:
        commit = offsets.commit(context.body.group_id, accepted, context.now_ms, producer)
    except ApiError as refused:
        return response(refused.error)

    def try_complete() -> Fields | None:
        moved = not context.coordinates_group(context.body.group_id)
        outcome = ErrorCode.not_leader_or_follower if moved else offsets.outcome(commit)
        if outcome:
            offsets.failed(commit)
        return None if outcome is None else response(outcome)

    def expire() -> Fields:
        offsets.failed(commit)
        return response(ErrorCode.coordinator_not_available if offsets.waits_itself else ErrorCode.request_timed_out)

    return Delayed(int(context.cluster.config["offsets.commit.timeout.ms"]), try_complete, expire)


def offset_error(context: RequestContext, partition: TopicPartition) -> ErrorCode:
    known = context.cluster.partition(*partition) is not None
    return ErrorCode.none if known else ErrorCode.unknown_topic_or_partition


def committed_offset(asked: Any) -> CommittedOffset:
    epoch = getattr(asked, "committed_leader_epoch", -1)
    return CommittedOffset(asked.committed_offset, epoch, asked.committed_metadata or "")


def _refused(context: RequestContext) -> ErrorCode:
    body = context.body
    claim = Claim(body.member_id, body.generation_id_or_member_epoch, getattr(body, "group_instance_id", None))
    not_found = context.version >= _GROUP_ID_NOT_FOUND_SINCE
    unknown = ErrorCode.group_id_not_found if not_found else ErrorCode.illegal_generation
    try:
        context.check_group_coordinator(body.group_id)
        context.state.groups.check_commit(body.group_id, claim, unknown, transactional=False)
    except ApiError as refused:
        return refused.error
    return ErrorCode.none
