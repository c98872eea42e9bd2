"""What a broker's error code on a produced partition means, as one table (Kafka: ``Errors`` and
``Sender.completeBatch``).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import BrokerError, OutOfOrderSequenceError, ProducerFencedError


class Action(Enum):
    SUCCEED = "the records are in the log"
    RETRY = "send the same bytes again after retry.backoff.ms"
    SPLIT = "halve the batch and send the parts"
    RESEQUENCE = "the broker misses an earlier sequence: retry behind it, or under a new epoch when there is none"
    FAIL = "give the error to whoever waits for the records"


class Verdict(NamedTuple):
    action: Action
    refresh_metadata: bool = False


_SUCCEED = Verdict(Action.SUCCEED)
_RETRY = Verdict(Action.RETRY)
_RETRY_ELSEWHERE = Verdict(Action.RETRY, refresh_metadata=True)
_RESEQUENCE = Verdict(Action.RESEQUENCE)
_FAIL = Verdict(Action.FAIL)

VERDICTS: dict[ErrorCode, Verdict] = {
    ErrorCode.none: _SUCCEED,
    ErrorCode.duplicate_sequence_number: _SUCCEED,
    ErrorCode.corrupt_message: _RETRY,
    ErrorCode.unknown_topic_or_partition: _RETRY_ELSEWHERE,
    ErrorCode.leader_not_available: _RETRY_ELSEWHERE,
    ErrorCode.not_leader_or_follower: _RETRY_ELSEWHERE,
    ErrorCode.request_timed_out: _RETRY,
    ErrorCode.broker_not_available: _RETRY_ELSEWHERE,
    ErrorCode.replica_not_available: _RETRY_ELSEWHERE,
    ErrorCode.message_too_large: Verdict(Action.SPLIT),
    ErrorCode.network_exception: _RETRY_ELSEWHERE,
    ErrorCode.coordinator_load_in_progress: _RETRY,
    ErrorCode.not_enough_replicas: _RETRY,
    ErrorCode.not_enough_replicas_after_append: _RETRY,
    ErrorCode.kafka_storage_error: _RETRY_ELSEWHERE,
    ErrorCode.fenced_leader_epoch: _RETRY_ELSEWHERE,
    ErrorCode.unknown_leader_epoch: _RETRY_ELSEWHERE,
    ErrorCode.throttling_quota_exceeded: _RETRY,
    ErrorCode.unknown_topic_id: _RETRY_ELSEWHERE,
    ErrorCode.inconsistent_topic_id: _RETRY_ELSEWHERE,
    ErrorCode.concurrent_transactions: _RETRY,
    ErrorCode.out_of_order_sequence_number: _RESEQUENCE,
    ErrorCode.unknown_producer_id: _RESEQUENCE,
    ErrorCode.invalid_producer_epoch: _RESEQUENCE,
    ErrorCode.invalid_topic_exception: _FAIL,
    ErrorCode.record_list_too_large: _FAIL,
    ErrorCode.invalid_required_acks: _FAIL,
    ErrorCode.topic_authorization_failed: _FAIL,
    ErrorCode.cluster_authorization_failed: _FAIL,
    ErrorCode.unsupported_version: _FAIL,
    ErrorCode.unsupported_for_message_format: _FAIL,
    ErrorCode.policy_violation: _FAIL,
    ErrorCode.unsupported_compression_type: _FAIL,
    ErrorCode.invalid_record: _FAIL,
    ErrorCode.invalid_timestamp: _FAIL,
    ErrorCode.producer_fenced: _FAIL,
    ErrorCode.invalid_txn_state: _FAIL,
    ErrorCode.transactional_id_authorization_failed: _FAIL,
    ErrorCode.unknown_server_error: _FAIL,
}

TRANSACTIONAL_VERDICTS: dict[ErrorCode, Verdict] = {
    ErrorCode.unknown_producer_id: _FAIL,
    ErrorCode.invalid_producer_epoch: _FAIL,
}
"""What a transactional producer, whose epochs are the coordinator's to give, does otherwise. An
OUT_OF_ORDER_SEQUENCE_NUMBER it waits out as long as an earlier batch may be the reason."""

_ERROR_CLASSES: dict[ErrorCode, type[BrokerError]] = {
    ErrorCode.out_of_order_sequence_number: OutOfOrderSequenceError,
    ErrorCode.producer_fenced: ProducerFencedError,
    ErrorCode.invalid_producer_epoch: ProducerFencedError,
}

_ADVICE: dict[ErrorCode, str] = {
    ErrorCode.message_too_large: "a record is over the topic's max.message.bytes: raise it, or make the record smaller",
    ErrorCode.topic_authorization_failed: "the principal needs WRITE and DESCRIBE on it; on commitLogTopic READ too",
    ErrorCode.cluster_authorization_failed: "the principal needs IDEMPOTENT_WRITE, or set enable.idempotence=false",
    ErrorCode.invalid_topic_exception: "the topic's name is not legal, or it is one of Kafka's internal topics",
    ErrorCode.unsupported_compression_type: "choose another compression.type",
    ErrorCode.invalid_record: "the broker refused a record: a compacted topic takes no null keys",
    ErrorCode.invalid_timestamp: "a timestamp is outside the topic's message.timestamp.before.max.ms / after.max.ms",
    ErrorCode.producer_fenced: "another producer has taken over, or the transaction outlived transaction.timeout.ms",
    ErrorCode.invalid_producer_epoch: "another producer has taken over, or it outlived transaction.timeout.ms",
    ErrorCode.invalid_txn_state: "the transaction is not open: ended before, or it outlived transaction.timeout.ms",
    ErrorCode.transactional_id_authorization_failed: "the principal needs WRITE (and DESCRIBE) on the transactional.id",
    ErrorCode.group_authorization_failed: "the principal needs READ on the consumer group",
    ErrorCode.invalid_transaction_timeout: "transaction.timeout.ms is above the brokers' transaction.max.timeout.ms",
    ErrorCode.invalid_producer_id_mapping: "the transactional.id has expired: open a new producer",
    ErrorCode.not_enough_replicas: "fewer replicas are in sync than min.insync.replicas asks for",
}


def verdict(code: ErrorCode, transactional: bool = False) -> Verdict:
    """A code that is not in the table fails the batch, as in Kafka's client."""
    if transactional and code in TRANSACTIONAL_VERDICTS:
        return TRANSACTIONAL_VERDICTS[code]
    return VERDICTS.get(code, _FAIL)


def broker_error(code: ErrorCode, where: str, detail: str | None = None) -> BrokerError:
    """The exception for ``code``: Kafka's name, where it happened, the broker's own words, and what to do about it."""
    name = code.name.upper()
    parts = [f"{where}: {name}"]
    if detail:
        parts.append(detail)
    if code in _ADVICE:
        parts.append(_ADVICE[code])
    return _ERROR_CLASSES.get(code, BrokerError)(int(code), name, "; ".join(parts))
