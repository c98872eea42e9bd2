"""Produce (0): records into logs (Kafka: ``KafkaApis.handleProduceRequest``, ``ReplicaManager``, ``DelayedProduce``).

Emulated, in the broker's order: required acks, topic and leader (with the new leader's address from version 10 on,
KIP-951), internal topics (one client id may write to them), the transaction a batch belongs to (checked from 3.6 on;
added by the broker from version 12 on, KIP-890), ISR, size, CRC, header, epoch and sequence; then acks=0
gets no response or, after an error, a closed connection, acks=1 after the append, acks=all when the high watermark is
behind the records or the timeout has passed. Quotas are the handler pool's.
"""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import NO_LEADER, ProducerIdentity, TopicPartition
from spark_kafka_sink.testing.broker.request_context import (
    Delayed,
    HaltError,
    HandlerResult,
    HangupError,
    RequestContext,
    by_topic,
    endpoint,
    milliseconds,
)
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.internal_topics import INTERNAL_TOPICS
from spark_kafka_sink.testing.broker.state.partition import ALL_REPLICAS, LogAppendInfo, Partition
from spark_kafka_sink.testing.broker.state.validation import only_batch
from spark_kafka_sink.testing.broker.wire import Fields

_log = logging.getLogger(__name__)

_NO_ID: Final = uuid.UUID(int=0)
_TOPIC_IDS_SINCE: Final = 13
_ADDS_PARTITIONS_SINCE: Final = 12
_ABORTABLE_SINCE: Final = 11
_ADMIN_CLIENT_ID: Final = "__admin_client"
"""Kafka's ``AdminUtils.ADMIN_CLIENT_ID``: it may write to internal topics."""
_KNOWN_ACKS: Final = frozenset({-1, 0, 1})


@dataclass(slots=True)
class _Outcome:
    """The outcome of one partition of the request. ``end_offset``: the offset that the high watermark must reach for
    acks=all."""

    topic: str
    topic_id: uuid.UUID | None
    index: int
    partition: Partition | None = None
    appended: LogAppendInfo | None = None
    error: ErrorCode = ErrorCode.none
    message: str | None = None
    record_errors: Sequence[tuple[int, str]] = ()


def produce(context: RequestContext) -> HandlerResult:
    acks = context.body.acks
    outcomes = list(_appended(context))
    if acks == 0:
        if any(outcome.error for outcome in outcomes):
            _log_unanswered(context, outcomes)
            raise HangupError("an error with acks=0")
        return None
    if acks != ALL_REPLICAS or not any(outcome.appended for outcome in outcomes):
        return _response(context, outcomes)

    def try_complete() -> Fields | None:
        settled = [_is_settled(context, outcome) for outcome in outcomes]
        return _response(context, outcomes) if all(settled) else None

    def expire() -> Fields:
        for outcome in outcomes:
            if not _is_settled(context, outcome):
                outcome.error = ErrorCode.request_timed_out
        return _response(context, outcomes)

    return Delayed(milliseconds(context.body.timeout), try_complete, expire)


def _appended(context: RequestContext) -> Iterator[_Outcome]:
    for topic in context.body.topic_data:
        name, topic_id = _topic(context, topic)
        for asked in topic.partition_data:
            outcome = _Outcome(name, topic_id, asked.index)
            try:
                _append(context, outcome, asked.records or b"")
            except ApiError as refused:
                outcome.error, outcome.message = refused.error, refused.message
                outcome.record_errors = refused.records
            except HangupError:
                raise
            except Exception:
                _log.exception("error processing append operation on partition %s-%d", name, asked.index)
                outcome.error = ErrorCode.unknown_server_error
            yield outcome


def _named(context: RequestContext, outcome: _Outcome) -> str:
    """The text for topic and partition. A broker whose Produce knows topic ids writes the id before them, zeros for an
    unknown one."""
    name = f"{outcome.topic}-{outcome.index}"
    if _TOPIC_IDS_SINCE not in context.state.release.versions["Produce"]:
        return name
    topic = context.cluster.topics.get(outcome.topic)
    topic_id = outcome.topic_id or (_NO_ID if topic is None else topic.id)
    return f"{base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip('=')}:{name}"


def _log_unanswered(context: RequestContext, outcomes: list[_Outcome]) -> None:
    """Logs Kafka's own line, which with acks=0 is the only sign that these records are lost."""
    errors = ", ".join(f"{_named(context, outcome)} -> {exception_name(outcome.error)}" for outcome in outcomes)
    _log.info(
        "Closing connection due to error during produce request with correlation id %d from client id %s with ack=0\n"
        "Topic and partition to exceptions: %s",
        context.request.correlation_id,
        context.request.client_id,
        errors,
    )


def _topic(context: RequestContext, topic: Any) -> tuple[str, uuid.UUID | None]:
    if context.version < _TOPIC_IDS_SINCE:
        return topic.name, None
    topic_id = topic.topic_id
    known = context.cluster.topic_by_id(topic_id)
    return ("" if known is None else known.name), topic_id


def _append(context: RequestContext, outcome: _Outcome, records: bytes) -> None:
    context.check_script(outcome.topic, outcome.index)
    if context.body.acks not in _KNOWN_ACKS:
        raise ApiError(ErrorCode.invalid_required_acks)
    outcome.partition = context.cluster.partition(outcome.topic, outcome.index)
    if outcome.partition is None:
        by_id = context.version >= _TOPIC_IDS_SINCE and not outcome.topic
        raise ApiError(ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition)
    if outcome.topic in INTERNAL_TOPICS and context.request.client_id != _ADMIN_CLIENT_ID:
        raise ApiError(ErrorCode.invalid_topic_exception)
    error = outcome.partition.leadership_error(context.request.node)
    if error:
        raise ApiError(error)
    if outcome.partition.halts_node:
        outcome.partition.fail_storage(False)
        raise HaltError("all log dirs have failed")
    header = only_batch(records)
    if header.is_transactional and not context.body.transactional_id:
        raise ApiError(ErrorCode.transactional_id_authorization_failed)
    identity = ProducerIdentity(header.producer_id, header.producer_epoch)
    if header.is_transactional and not outcome.partition.is_writing(identity):
        _join_transaction(context, identity, outcome.partition.name)
    outcome.appended = outcome.partition.append(records, header, context.body.acks, context.now_ms)


def _join_transaction(context: RequestContext, identity: ProducerIdentity, partition: TopicPartition) -> None:
    transactional_id = context.body.transactional_id
    try:
        if context.version >= _ADDS_PARTITIONS_SINCE:
            context.state.transactions.add_partitions(transactional_id, identity, [partition], context.now_ms)
        elif context.state.release.verifies_partitions:
            context.state.transactions.verify_partition(transactional_id, identity, partition)
    except ApiError as refused:
        raise ApiError(_produce_error(context, refused.error), refused.message) from None


def _produce_error(context: RequestContext, error: ErrorCode) -> ErrorCode:
    """The error code that Produce has in this version for the coordinator's error."""
    if error is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if error is ErrorCode.transaction_abortable and context.version < _ABORTABLE_SINCE:
        return ErrorCode.invalid_txn_state
    return error


def _is_settled(context: RequestContext, outcome: _Outcome) -> bool:
    """Whether this partition is ready for the response; sets its error if it failed meanwhile."""
    partition, appended = outcome.partition, outcome.appended
    if partition is None or appended is None or outcome.error:
        return True
    if context.cluster.partition(*partition.name) is not partition:
        outcome.error = ErrorCode.unknown_topic_or_partition
        return True
    if partition.leader != context.request.node:
        outcome.error = ErrorCode.not_leader_or_follower
        return True
    if partition.high_watermark < appended.end_offset:
        return False
    if not partition.has_enough_replicas():
        outcome.error = ErrorCode.not_enough_replicas_after_append
    return True


def _response(context: RequestContext, outcomes: list[_Outcome]) -> Fields:
    by_id = context.version >= _TOPIC_IDS_SINCE
    rows = [(outcome.topic_id if by_id else outcome.topic, _partition(outcome)) for outcome in outcomes]
    leaders = {outcome.partition.leader for outcome in outcomes if outcome.partition is not None and _is_hint(outcome)}
    return {
        "responses": by_topic(rows, "topic_id" if by_id else "name", "partition_responses"),
        "node_endpoints": [endpoint(context, context.cluster.nodes[leader]) for leader in sorted(leaders)],
    }


def _partition(outcome: _Outcome) -> Fields:
    partition = outcome.partition
    fields: Fields = {"index": outcome.index, "error_code": outcome.error, "error_message": outcome.message}
    if outcome.error or outcome.appended is None or partition is None:
        fields["base_offset"] = -1
        fields["record_errors"] = [
            {"batch_index": index, "batch_index_error_message": text} for index, text in outcome.record_errors
        ]
        if outcome.error is ErrorCode.unknown_producer_id and partition is not None:
            fields["log_start_offset"] = partition.log.start_offset
    else:
        fields["base_offset"] = outcome.appended.base_offset
        if outcome.appended.log_append_time is not None:
            fields["log_append_time"] = outcome.appended.log_append_time
        fields["log_start_offset"] = partition.log.start_offset
    if partition is not None and _is_hint(outcome):
        fields["current_leader"] = {"leader_id": partition.leader, "leader_epoch": partition.leader_epoch}
    return fields


def _is_hint(outcome: _Outcome) -> bool:
    partition = outcome.partition
    return outcome.error is ErrorCode.not_leader_or_follower and partition is not None and partition.leader != NO_LEADER


_PACKAGE: Final = "org.apache.kafka.common.errors."

_IRREGULAR: Final[Mapping[ErrorCode, str]] = MappingProxyType(
    {
        ErrorCode.corrupt_message: "CorruptRecordException",
        ErrorCode.invalid_topic_exception: "InvalidTopicException",
        ErrorCode.kafka_storage_error: "KafkaStorageException",
        ErrorCode.message_too_large: "RecordTooLargeException",
        ErrorCode.network_exception: "NetworkException",
        ErrorCode.out_of_order_sequence_number: "OutOfOrderSequenceException",
        ErrorCode.record_list_too_large: "RecordBatchTooLargeException",
        ErrorCode.request_timed_out: "TimeoutException",
        ErrorCode.unknown_server_error: "UnknownServerException",
    }
)


def exception_name(error: ErrorCode) -> str:
    """``UnknownTopicOrPartitionException`` with its package; ``null`` without an error, as Scala writes it."""
    if error is ErrorCode.none:
        return "null"
    words = "".join(word.capitalize() for word in error.name.split("_"))
    return _PACKAGE + _IRREGULAR.get(error, f"{words}Exception")
