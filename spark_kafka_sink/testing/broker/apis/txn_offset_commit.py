"""TxnOffsetCommit (28): offsets that count when their transaction commits.

Emulated: identity and state of the transaction, added by the broker itself from version 5 on (KIP-890); member and
generation of the group from version 3 on (KIP-447); the offsets are transactional records of ``__consumer_offsets``.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.testing.broker.apis.offset_commit import Row, committed, committed_offset, offset_error
from spark_kafka_sink.testing.broker.request_context import RequestContext, Response
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.groups import Claim
from spark_kafka_sink.testing.broker.state.offset_records import CommittedOffset
from spark_kafka_sink.testing.broker.state.transactions import ProducerIdentity

_ABORTABLE_SINCE: Final = 4
_ADDS_OFFSETS_SINCE: Final = 5


def handle(context: RequestContext) -> Response:
    body = context.body
    refused = _error(context)
    accepted: dict[TopicPartition, CommittedOffset] = {}
    rows: list[Row] = []
    for topic in body.topics:
        for asked in topic.partitions:
            name = TopicPartition(topic.name, asked.partition_index)
            error = offset_error(context, name) or refused or context.scripted(*name)
            if not error:
                accepted[name] = committed_offset(asked)
            rows.append((name, error))
    return committed(context, rows, accepted, (body.producer_id, body.producer_epoch))


def _error(context: RequestContext) -> ErrorCode:
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
