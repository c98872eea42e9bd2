"""DescribeTransactions (65): producer id and epoch, state, start and partitions of transactional ids (KIP-664).

Emulated: the coordinator's state; partitions only while the transaction is open or its markers are held.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.request_context import RequestContext, by_topic
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.wire import Fields


def handle(context: RequestContext) -> Fields:
    return {"transaction_states": [_described(context, each) for each in context.body.transactional_ids]}


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
