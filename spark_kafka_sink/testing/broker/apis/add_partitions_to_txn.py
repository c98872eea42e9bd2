"""AddPartitionsToTxn (24): a client of transactions version 1 sends it before it writes to a partition.

Emulated: one transaction, and the many of version 4 on that brokers send each other, with verify_only; internal topics
(TOPIC_AUTHORIZATION_FAILED) and unknown partitions make the whole transaction fail (OPERATION_NOT_ATTEMPTED for the
others).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.testing.broker.request_context import RequestContext, by_topic
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.internal_topics import INTERNAL_TOPICS
from spark_kafka_sink.testing.broker.state.transactions import ProducerIdentity
from spark_kafka_sink.testing.broker.wire import Fields

_FENCED_SINCE: Final = 2
_BATCHED_SINCE: Final = 4


def handle(context: RequestContext) -> Fields:
    body = context.body
    if context.version >= _BATCHED_SINCE:
        return {"results_by_transaction": [_batched(context, each) for each in body.transactions]}
    identity = ProducerIdentity(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
    partitions = _partitions(body.v3_and_below_topics)
    results = _add(context, body.v3_and_below_transactional_id, identity, partitions)
    return {"results_by_topic_v3_and_below": results}


def _batched(context: RequestContext, asked: Any) -> Fields:
    identity = ProducerIdentity(asked.producer_id, asked.producer_epoch)
    partitions = _partitions(asked.topics)
    results = _add(context, asked.transactional_id, identity, partitions, verify_only=asked.verify_only)
    return {"transactional_id": asked.transactional_id, "topic_results": results}


def _partitions(topics: Any) -> list[TopicPartition]:
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
        return _results(partitions, lambda name: errors.get(name, ErrorCode.operation_not_attempted))
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
    return _results(partitions, lambda _: error)


def _results(partitions: list[TopicPartition], error: Callable[[TopicPartition], ErrorCode]) -> list[Fields]:
    rows: list[tuple[str, Fields]] = [
        (name.topic, {"partition_index": name.partition, "partition_error_code": error(name)}) for name in partitions
    ]
    return by_topic(rows, "name", "results_by_partition")
