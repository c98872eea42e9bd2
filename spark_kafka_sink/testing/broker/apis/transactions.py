"""Producer ids and transactions: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, and their description
(ListTransactions, DescribeTransactions). ``state/transactions.py`` has the states.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import ProducerIdentity, TopicPartition
from spark_kafka_sink.testing.broker.request_context import RequestContext, by_topic, milliseconds
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.internal_topics import INTERNAL_TOPICS
from spark_kafka_sink.testing.broker.state.transactions import Transaction, TransactionState
from spark_kafka_sink.testing.broker.wire import Fields

_INIT_FENCES_SINCE: Final = 4
_FENCED_SINCE: Final = 2
_BATCHED_SINCE: Final = 4
_BUMPS_SINCE: Final = 5
_STATE_NAMES: Final = frozenset(state.value for state in TransactionState) | {"Dead", "PrepareEpochFence"}


def init_producer_id(context: RequestContext) -> Fields:
    """InitProducerId (22).

    Emulated: a new id for an idempotent producer; for a transactional one the next epoch of its id, after the
    transaction left open was aborted (CONCURRENT_TRANSACTIONS until then), and KIP-360's continuing with a known id and
    epoch.
    """
    try:
        context.check_script()
        producer_id, epoch = _new_identity(context)
    except ApiError as refused:
        return {"error_code": context.fenced(refused, _INIT_FENCES_SINCE), "producer_id": -1, "producer_epoch": -1}
    return {"producer_id": producer_id, "producer_epoch": epoch}


def _new_identity(context: RequestContext) -> ProducerIdentity:
    transactional_id = context.body.transactional_id
    if transactional_id is None:
        return ProducerIdentity(context.cluster.next_producer_id(), 0)
    context.check_coordinator(transactional_id)
    given = ProducerIdentity(getattr(context.body, "producer_id", -1), getattr(context.body, "producer_epoch", -1))
    return context.state.transactions.init_producer_id(
        transactional_id,
        milliseconds(context.body.transaction_timeout),
        None if given.producer_id == -1 else given,
        context.now_ms,
    )


def add_partitions_to_txn(context: RequestContext) -> Fields:
    """AddPartitionsToTxn (24): a client of transactions version 1 sends it before it writes to a partition.

    Emulated: one transaction, and the many of version 4 on that brokers send each other, with verify_only; internal
    topics (TOPIC_AUTHORIZATION_FAILED) and unknown partitions make the whole transaction fail (OPERATION_NOT_ATTEMPTED
    for the others).
    """
    body = context.body
    if context.version >= _BATCHED_SINCE:
        return {"results_by_transaction": [_add_batched(context, transaction) for transaction in body.transactions]}
    identity = ProducerIdentity(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
    partitions = _asked_partitions(body.v3_and_below_topics)
    results = _add(context, body.v3_and_below_transactional_id, identity, partitions)
    return {"results_by_topic_v3_and_below": results}


def _add_batched(context: RequestContext, asked: Any) -> Fields:
    identity = ProducerIdentity(asked.producer_id, asked.producer_epoch)
    partitions = _asked_partitions(asked.topics)
    results = _add(context, asked.transactional_id, identity, partitions, verify_only=asked.verify_only)
    return {"transactional_id": asked.transactional_id, "topic_results": results}


def _asked_partitions(topics: Any) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _add(
    context: RequestContext,
    transactional_id: str,
    identity: ProducerIdentity,
    partitions: list[TopicPartition],
    *,
    verify_only: bool = False,
) -> list[Fields]:
    errors = {
        name: ErrorCode.unknown_topic_or_partition for name in partitions if context.cluster.partition(*name) is None
    }
    errors |= {name: ErrorCode.topic_authorization_failed for name in partitions if name.topic in INTERNAL_TOPICS}
    errors |= {name: error for name in partitions if (error := context.scripted(*name))}
    if errors:
        return _add_results(partitions, lambda name: errors.get(name, ErrorCode.operation_not_attempted))
    try:
        context.check_coordinator(transactional_id)
        if verify_only:
            for name in partitions:
                context.state.transactions.verify_partition(transactional_id, identity, name)
        else:
            context.state.transactions.add_partitions(transactional_id, identity, partitions, context.now_ms)
        error = ErrorCode.none
    except ApiError as refused:
        error = context.fenced(refused, _FENCED_SINCE)
    return _add_results(partitions, lambda _: error)


def _add_results(partitions: list[TopicPartition], error: Callable[[TopicPartition], ErrorCode]) -> list[Fields]:
    rows: list[tuple[str, Fields]] = [
        (name.topic, {"partition_index": name.partition, "partition_error_code": error(name)}) for name in partitions
    ]
    return by_topic(rows, "name", "results_by_partition")


def add_offsets_to_txn(context: RequestContext) -> Fields:
    """AddOffsetsToTxn (25): a group's offsets become part of a transaction (transactions version 1).

    Emulated: the check of identity and state; the group's partition of ``__consumer_offsets`` becomes part of the
    transaction and gets its marker. The offsets themselves come with TxnOffsetCommit.
    """
    body = context.body
    try:
        context.check_script()
        context.check_coordinator(body.transactional_id)
        identity = ProducerIdentity(body.producer_id, body.producer_epoch)
        partition = context.state.offsets.partition(body.group_id).name
        context.state.transactions.add_partitions(body.transactional_id, identity, [partition], context.now_ms)
    except ApiError as refused:
        return {"error_code": context.fenced(refused, _FENCED_SINCE)}
    return {}


def end_txn(context: RequestContext) -> Fields:
    """EndTxn (26): commit or abort.

    Emulated: the transitions of both transaction versions (``END_TXN_V1``, ``END_TXN_V2``), repeated requests, the
    bumped epoch in the response from version 5 on. The markers are in the logs before the response, unless the script
    holds them.
    """
    body = context.body
    try:
        context.check_script()
        context.check_coordinator(body.transactional_id)
        producer_id, epoch = context.state.transactions.end(
            body.transactional_id,
            ProducerIdentity(body.producer_id, body.producer_epoch),
            committed=body.committed,
            bump=context.version >= _BUMPS_SINCE,
            now_ms=context.now_ms,
        )
    except ApiError as refused:
        return {"error_code": context.fenced(refused, _FENCED_SINCE), "producer_id": -1, "producer_epoch": -1}
    return {"producer_id": producer_id, "producer_epoch": epoch}


def list_transactions(context: RequestContext) -> Fields:
    """ListTransactions (66): the transactional ids that the asked node coordinates (KIP-664).

    Emulated: the filters by state (unknown names are returned), producer id, duration (version 1) and pattern (version
    2), all of which an id must meet.
    """
    states: Collection[str] = context.body.state_filters
    context.check_script()
    pattern = _id_pattern(context)
    return {
        "unknown_state_filters": [state for state in states if state not in _STATE_NAMES],
        "transaction_states": [
            {
                "transactional_id": transaction.transactional_id,
                "producer_id": transaction.producer_id,
                "transaction_state": transaction.state.value,
            }
            for transaction in context.state.transactions.transactions.values()
            if context.coordinates(transaction.transactional_id)
            and _is_listed(context, transaction)
            and pattern.fullmatch(transaction.transactional_id)
        ],
    }


def _is_listed(context: RequestContext, transaction: Transaction) -> bool:
    body = context.body
    longest = getattr(body, "duration_filter", -1)
    return (
        context.coordinates(transaction.transactional_id)
        and (not body.state_filters or transaction.state.value in body.state_filters)
        and (not body.producer_id_filters or transaction.producer_id in body.producer_id_filters)
        and (longest < 0 or context.now_ms - transaction.started_ms > longest)
    )


def _id_pattern(context: RequestContext) -> re.Pattern[str]:
    try:
        return re.compile(getattr(context.body, "transactional_id_pattern", None) or ".*", re.DOTALL)
    except re.error:
        raise ApiError(ErrorCode.invalid_regular_expression) from None


def describe_transactions(context: RequestContext) -> Fields:
    """DescribeTransactions (65): producer id and epoch, state, start and partitions of transactional ids (KIP-664).

    Emulated: the coordinator's state; partitions only while the transaction is open or its markers are held.
    """
    return {"transaction_states": [_described(context, id_) for id_ in context.body.transactional_ids]}


def _described(context: RequestContext, transactional_id: str) -> Fields:
    named: Fields = {"transactional_id": transactional_id}
    try:
        context.check_script()
        if not transactional_id:
            raise ApiError(ErrorCode.invalid_request)
        context.check_coordinator(transactional_id)
        transaction = context.state.transactions.transactions.get(transactional_id)
        if transaction is None:
            raise ApiError(ErrorCode.transactional_id_not_found)
    except ApiError as refused:
        return {**named, "error_code": refused.error}
    partitions = ((name.topic, name.partition) for name in sorted(transaction.partitions))
    return {
        **named,
        "transaction_state": transaction.state.value,
        "transaction_timeout": transaction.timeout_ms,
        "transaction_start_time": transaction.started_ms,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.epoch,
        "topics": by_topic(partitions, "topic", "partitions"),
    }
