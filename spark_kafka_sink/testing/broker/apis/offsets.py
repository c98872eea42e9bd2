"""The offsets of consumer groups: OffsetCommit, TxnOffsetCommit and OffsetFetch."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import NO_LEADER_EPOCH, ProducerIdentity, TopicPartition
from spark_kafka_sink.testing.broker.request_context import Delayed, HandlerResult, RequestContext, by_topic
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.groups import Claim
from spark_kafka_sink.testing.broker.state.offset_records import CommittedOffset
from spark_kafka_sink.testing.broker.state.offsets import NOTHING_COMMITTED
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
"""The errors of an append → the errors that committers get for them (Kafka:
``CoordinatorOperationExceptionHelper``)."""

_ABORTABLE_SINCE: Final = 4
_ADDS_OFFSETS_SINCE: Final = 5
_GROUPS_SINCE: Final = 8


def offset_commit(context: RequestContext) -> HandlerResult:
    """OffsetCommit (8): offsets of a group's member, or of a consumer that assigns its partitions itself.

    Emulated: each commit is a record of ``__consumer_offsets``; member and generation are checked, and a group with
    members takes no offsets of others. The response waits for replicas up to ``offsets.commit.timeout.ms``; until Kafka
    4.0 too few of them in sync are COORDINATOR_NOT_AVAILABLE at once.
    """
    return _commit(context, _commit_error(context), None)


def _commit(context: RequestContext, refused: ErrorCode, producer: tuple[int, int] | None) -> HandlerResult:
    """Append the offsets that are not refused; the response when replicas have them.

    ``producer``: the id and epoch in a TxnOffsetCommit.
    """
    offsets = context.state.offsets
    accepted: dict[TopicPartition, CommittedOffset] = {}
    rows: list[tuple[TopicPartition, ErrorCode]] = []
    for topic in context.body.topics:
        for asked in topic.partitions:
            name = TopicPartition(topic.name, asked.partition_index)
            known = context.cluster.partition(*name) is not None
            unknown = ErrorCode.none if known else ErrorCode.unknown_topic_or_partition
            error = context.scripted(*name) or unknown or refused
            if not error:
                epoch = getattr(asked, "committed_leader_epoch", NO_LEADER_EPOCH)
                accepted[name] = CommittedOffset(asked.committed_offset, epoch, asked.committed_metadata or "")
            rows.append((name, error))

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


def _commit_error(context: RequestContext) -> ErrorCode:
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


def txn_offset_commit(context: RequestContext) -> HandlerResult:
    """TxnOffsetCommit (28): offsets that count when their transaction commits.

    Emulated: identity and state of the transaction, added by the broker itself from version 5 on (KIP-890); member and
    generation of the group from version 3 on (KIP-447); the offsets are transactional records of
    ``__consumer_offsets``.
    """
    body = context.body
    return _commit(context, _txn_commit_error(context), (body.producer_id, body.producer_epoch))


def _txn_commit_error(context: RequestContext) -> ErrorCode:
    body = context.body
    claim = Claim(
        getattr(body, "member_id", ""), getattr(body, "generation_id", -1), getattr(body, "group_instance_id", None)
    )
    try:
        context.check_group_coordinator(body.group_id)
        context.state.groups.check_commit(body.group_id, claim, ErrorCode.illegal_generation, transactional=True)
        _join_transaction(context)
    except ApiError as refused:
        if refused.error is ErrorCode.transaction_abortable and context.version < _ABORTABLE_SINCE:
            return ErrorCode.invalid_txn_state
        return ErrorCode.invalid_producer_epoch if refused.error is ErrorCode.producer_fenced else refused.error
    return ErrorCode.none


def _join_transaction(context: RequestContext) -> None:
    transactions, transactional_id = context.state.transactions, context.body.transactional_id
    identity = ProducerIdentity(context.body.producer_id, context.body.producer_epoch)
    partition = context.state.offsets.partition(context.body.group_id).name
    if context.version >= _ADDS_OFFSETS_SINCE:
        transactions.add_partitions(transactional_id, identity, [partition], context.now_ms)
    elif context.state.release.verifies_partitions:
        transactions.verify_partition(transactional_id, identity, partition)
    else:
        transactions.verify_open(transactional_id, identity)


def offset_fetch(context: RequestContext) -> Fields:
    """OffsetFetch (9).

    Emulated: some or all partitions of one group, of many from version 8 on; UNSTABLE_OFFSET_COMMIT while a transaction
    holds newer offsets and ``require_stable`` is asked (KIP-447).
    """
    if context.version < _GROUPS_SINCE:
        return _fetched_group(context, context.body.group_id, context.body.topics)
    return {
        "groups": [
            {"group_id": group.group_id, **_fetched_group(context, group.group_id, group.topics)}
            for group in context.body.groups
        ]
    }


def _fetched_group(context: RequestContext, group: str, topics: Any) -> Fields:
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
    rows = [(name.topic, _fetched_partition(context, group, name)) for name in asked]
    return {"topics": by_topic(rows, "name", "partitions")}


def _fetched_partition(context: RequestContext, group: str, name: TopicPartition) -> Fields:
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
