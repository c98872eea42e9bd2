"""The one table of error codes: code × API → ``Action``.

Kafka: ``Errors``, ``Sender.completeBatch``, the handlers in ``TransactionManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import (
    AuthenticationError,
    BrokerError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    RequestBuildError,
    UnsupportedVersionError,
    sanitize,
)

_log = logging.getLogger("spark_kafka_sink.network")


KNOWN_CODES: Final[Mapping[int, ErrorCode]] = {int(code): code for code in ErrorCode}
MAX_WARNINGS: Final = 10
_unknown_codes: set[int] = set()


class Action(IntEnum):
    """An action for an error code. Of several codes in one response the highest action counts."""

    SUCCEED = 0
    RETRY = 1
    """Retry after retry.backoff.ms."""
    RETRY_SOON = 2
    """Retry after a few milliseconds, because the coordinator is completing the previous transaction."""
    REFRESH_RETRY = 3
    """Find the leader or coordinator again, then retry after retry.backoff.ms."""
    SPLIT = 4
    """Halve the batch and send both parts."""
    BUMP_EPOCH = 5
    """The broker lacks an earlier sequence: retry after the earlier batches, or with a new epoch if there are none."""
    ABORT = 6
    """The call or batch fails, and its transaction must be aborted. The producer continues."""
    FAIL = 7
    """The call or batch fails. A transactional producer must be closed."""
    FENCED = 8
    """``FAIL``: another producer has the transactional id, or the coordinator aborted the transaction by timeout."""


TRANSACTIONAL_PRODUCE: Final = "transactional_produce"
"""Produce in a transaction. Only the coordinator bumps its producer's epoch. Other APIs have kio's names."""

OK, RETRY, SOON, REFRESH = Action.SUCCEED, Action.RETRY, Action.RETRY_SOON, Action.REFRESH_RETRY
SPLIT, BUMP, ABORT, FAIL, FENCED = Action.SPLIT, Action.BUMP_EPOCH, Action.ABORT, Action.FAIL, Action.FENCED

_COLUMNS: Final = {
    "produce": 0,
    TRANSACTIONAL_PRODUCE: 1,
    "find_coordinator": 2, "init_producer_id": 2, "add_partitions_to_txn": 2, "add_offsets_to_txn": 2, "end_txn": 2,
    "describe_transactions": 2,
    "txn_offset_commit": 3,
}  # fmt: skip
_OTHER_APIS: Final = 4
_OTHER_CODES: Final = (FAIL, ABORT, FAIL, FAIL, FAIL)

_TABLE: Final[Mapping[int, tuple[Action, ...]]] = {
    #                                                produce  transac- coordi-  TxnOffset-  other
    #                                                         tional   nators   Commit      APIs
    ErrorCode.none:                                  (OK,      OK,      OK,      OK,      OK),
    ErrorCode.corrupt_message:                       (RETRY,   RETRY,   RETRY,   RETRY,   RETRY),
    ErrorCode.unknown_topic_or_partition:            (REFRESH, REFRESH, RETRY,   RETRY,   REFRESH),
    ErrorCode.leader_not_available:                  (REFRESH, REFRESH, RETRY,   RETRY,   REFRESH),
    ErrorCode.not_leader_or_follower:                (REFRESH, REFRESH, RETRY,   RETRY,   REFRESH),
    ErrorCode.request_timed_out:                     (RETRY,   RETRY,   RETRY,   REFRESH, RETRY),
    ErrorCode.broker_not_available:                  (REFRESH, REFRESH, FAIL,    FAIL,    REFRESH),
    ErrorCode.replica_not_available:                 (REFRESH, REFRESH, RETRY,   RETRY,   REFRESH),
    ErrorCode.message_too_large:                     (SPLIT,   SPLIT,   FAIL,    FAIL,    FAIL),
    ErrorCode.offset_metadata_too_large:             (FAIL,    ABORT,   FAIL,    ABORT,   FAIL),
    ErrorCode.network_exception:                     (REFRESH, REFRESH, RETRY,   RETRY,   REFRESH),
    ErrorCode.coordinator_load_in_progress:          (RETRY,   RETRY,   RETRY,   RETRY,   RETRY),
    ErrorCode.coordinator_not_available:             (FAIL,    ABORT,   REFRESH, REFRESH, FAIL),
    ErrorCode.not_coordinator:                       (FAIL,    ABORT,   REFRESH, REFRESH, FAIL),
    ErrorCode.not_enough_replicas:                   (RETRY,   RETRY,   RETRY,   RETRY,   RETRY),
    ErrorCode.not_enough_replicas_after_append:      (RETRY,   RETRY,   RETRY,   RETRY,   RETRY),
    ErrorCode.illegal_generation:                    (FAIL,    ABORT,   FAIL,    ABORT,   FAIL),
    ErrorCode.unknown_member_id:                     (FAIL,    ABORT,   FAIL,    ABORT,   FAIL),
    ErrorCode.invalid_commit_offset_size:            (FAIL,    ABORT,   FAIL,    ABORT,   FAIL),
    ErrorCode.topic_authorization_failed:            (FAIL,    ABORT,   FAIL,    ABORT,   FAIL),
    ErrorCode.group_authorization_failed:            (FAIL,    ABORT,   FAIL,    ABORT,   FAIL),
    ErrorCode.cluster_authorization_failed:          (FAIL,    FAIL,    FAIL,    FAIL,    FAIL),
    ErrorCode.not_controller:                        (FAIL,    ABORT,   RETRY,   RETRY,   FAIL),
    ErrorCode.out_of_order_sequence_number:          (BUMP,    BUMP,    FAIL,    FAIL,    FAIL),
    ErrorCode.duplicate_sequence_number:             (OK,      OK,      FAIL,    FAIL,    OK),
    ErrorCode.invalid_producer_epoch:                (BUMP,    ABORT,   FENCED,  FENCED,  FAIL),
    ErrorCode.invalid_producer_id_mapping:           (FAIL,    FAIL,    FAIL,    FAIL,    FAIL),
    ErrorCode.concurrent_transactions:               (SOON,    SOON,    SOON,    SOON,    SOON),
    ErrorCode.transactional_id_authorization_failed: (FAIL,    FAIL,    FAIL,    FAIL,    FAIL),
    ErrorCode.kafka_storage_error:                   (REFRESH, REFRESH, RETRY,   RETRY,   REFRESH),
    ErrorCode.unknown_producer_id:                   (BUMP,    ABORT,   FAIL,    FAIL,    FAIL),
    ErrorCode.fenced_leader_epoch:                   (REFRESH, REFRESH, RETRY,   RETRY,   REFRESH),
    ErrorCode.unknown_leader_epoch:                  (REFRESH, REFRESH, RETRY,   RETRY,   REFRESH),
    ErrorCode.fenced_instance_id:                    (FAIL,    ABORT,   FAIL,    ABORT,   FAIL),
    ErrorCode.throttling_quota_exceeded:             (RETRY,   RETRY,   RETRY,   RETRY,   RETRY),
    ErrorCode.producer_fenced:                       (FAIL,    FAIL,    FENCED,  FENCED,  FAIL),
    ErrorCode.unknown_topic_id:                      (REFRESH, REFRESH, RETRY,   RETRY,   REFRESH),
    ErrorCode.inconsistent_topic_id:                 (REFRESH, REFRESH, RETRY,   RETRY,   REFRESH),
    ErrorCode.stale_member_epoch:                    (FAIL,    ABORT,   FAIL,    ABORT,   FAIL),
    ErrorCode.transaction_abortable:                 (FAIL,    ABORT,   ABORT,   ABORT,   FAIL),
}  # fmt: skip
"""The actions by code. The other codes are in ``_OTHER_CODES``."""

_EXCEPTIONS: Final[Mapping[tuple[str, int], Action]] = {
    ("fetch", ErrorCode.offset_out_of_range): Action.SUCCEED,
    ("create_topics", ErrorCode.topic_already_exists): Action.SUCCEED,
    ("delete_topics", ErrorCode.unknown_topic_or_partition): Action.SUCCEED,
    ("find_coordinator", ErrorCode.coordinator_not_available): Action.RETRY,
    ("list_transactions", ErrorCode.coordinator_not_available): Action.RETRY,
    ("add_partitions_to_txn", ErrorCode.topic_authorization_failed): Action.ABORT,
    ("find_coordinator", ErrorCode.group_authorization_failed): Action.ABORT,
    ("add_offsets_to_txn", ErrorCode.group_authorization_failed): Action.ABORT,
    ("add_partitions_to_txn", ErrorCode.operation_not_attempted): Action.RETRY,
}

TOPIC_ERRORS: Final[Mapping[int, str]] = {
    ErrorCode.unknown_topic_or_partition: (
        "The brokers do not have topic {topic} and did not create it (see their auto.create.topics.enable). Create "
        "it, or correct its name."
    ),
    ErrorCode.leader_not_available: "Topic {topic} has no leaders yet (LEADER_NOT_AVAILABLE).",
    ErrorCode.invalid_topic_exception: "Invalid topics: [{topic}]",
    ErrorCode.topic_authorization_failed: (
        "Not authorized to access topics: [{topic}]; the principal needs WRITE and DESCRIBE on it"
    ),
}
"""The texts of a topic's codes in a Metadata response that end a wait. With other codes, waits continue."""

NOT_OPEN: Final = frozenset({
    ErrorCode.producer_fenced,
    ErrorCode.invalid_producer_epoch,
    ErrorCode.invalid_txn_state,
    ErrorCode.invalid_producer_id_mapping,
    ErrorCode.unknown_producer_id,
    ErrorCode.transaction_abortable,
})  # fmt: skip
"""EndTxn's codes for a prepared transaction that was ended before. A repeated commit may get them as well."""

NOT_RETRIED: Final = (AuthenticationError, UnsupportedVersionError, RequestBuildError)
"""Errors without a code that the same request would meet again. Other errors of a connection are retried."""

FORBIDDEN: Final = frozenset({ErrorCode.topic_authorization_failed, ErrorCode.cluster_authorization_failed})
"""The codes of responses to admin requests that the principal may not send."""

_ERROR_CLASSES: dict[ErrorCode, type[BrokerError]] = {
    ErrorCode.out_of_order_sequence_number: OutOfOrderSequenceError,
    ErrorCode.producer_fenced: ProducerFencedError,
    ErrorCode.invalid_producer_epoch: ProducerFencedError,
}

_ADVICE: dict[ErrorCode, str] = {
    ErrorCode.message_too_large: "a record is larger than the topic's max.message.bytes: raise it or shrink the record",
    ErrorCode.topic_authorization_failed: (
        "the principal needs WRITE and DESCRIBE on it; on ledgerTopic READ and DESCRIBE_CONFIGS too"
    ),
    ErrorCode.invalid_topic_exception: "the topic's name is invalid, or it is one of Kafka's internal topics",
    ErrorCode.unsupported_compression_type: "choose another compression.type",
    ErrorCode.invalid_record: "the broker refused a record; a compacted topic does not accept null keys",
    ErrorCode.invalid_timestamp: "a timestamp is outside the topic's message.timestamp.before.max.ms / after.max.ms",
    ErrorCode.producer_fenced: "fenced by another producer, or the transaction exceeded transaction.timeout.ms",
    ErrorCode.invalid_producer_epoch: "fenced by another producer, or the transaction exceeded transaction.timeout.ms",
    ErrorCode.invalid_txn_state: "the transaction is not open: ended before, or it exceeded transaction.timeout.ms",
    ErrorCode.transactional_id_authorization_failed: "the principal needs WRITE (and DESCRIBE) on the transactional.id",
    ErrorCode.group_authorization_failed: "the principal needs READ on the consumer group",
    ErrorCode.invalid_transaction_timeout: "transaction.timeout.ms exceeds the brokers' transaction.max.timeout.ms",
    ErrorCode.invalid_producer_id_mapping: "the transactional.id has expired: open a new producer",
    ErrorCode.not_enough_replicas: "fewer replicas are in sync than min.insync.replicas requires",
}

_LOWERED: Final = (
    "a transaction that was open when transaction.version was lowered ends once its coordinator is restarted"
)
_IDEMPOTENT: Final = "the principal needs IDEMPOTENT_WRITE, or set enable.idempotence=false"
_ADVICE_OF_API: Final[Mapping[tuple[str, int], str]] = {
    ("produce", ErrorCode.cluster_authorization_failed): _IDEMPOTENT,
    ("init_producer_id", ErrorCode.cluster_authorization_failed): _IDEMPOTENT,
    ("produce", ErrorCode.unsupported_version): _LOWERED,
    ("end_txn", ErrorCode.unsupported_version): _LOWERED,
    ("describe_configs", ErrorCode.cluster_authorization_failed): "the principal needs DESCRIBE_CONFIGS on the cluster",
    ("describe_configs", ErrorCode.topic_authorization_failed): "the principal needs DESCRIBE_CONFIGS on the topic",
    ("list_transactions", ErrorCode.cluster_authorization_failed): (
        "the principal needs DESCRIBE on the transactional ids"
    ),
}
"""Advice that depends on the API, such as which right is missing: each API has other operations on the cluster."""


def action(api: str, code: int) -> Action:
    """The action for a code. ``api``: kio's name (``end_txn``) or ``TRANSACTIONAL_PRODUCE``."""
    exception = _EXCEPTIONS.get((api, code))
    return _TABLE.get(code, _OTHER_CODES)[_COLUMNS.get(api, _OTHER_APIS)] if exception is None else exception


def error_code(number: int) -> ErrorCode:
    """The code, or UNKNOWN_SERVER_ERROR for a number that this client does not know (Java: ``Errors.forCode``).

    Warns once per number, and of the first numbers only: a response may have 65,000.
    """
    if number in KNOWN_CODES:
        return KNOWN_CODES[number]
    if number not in _unknown_codes and len(_unknown_codes) < MAX_WARNINGS:
        _unknown_codes.add(number)
        _log.warning("A broker sent error code %d, which this client does not know", number)
    return ErrorCode.unknown_server_error


def known_codes() -> list[ErrorCode]:
    """The codes that the table or the advice knows, without ``none``."""
    known = (*_TABLE, *_ADVICE, *(code for api, code in _ADVICE_OF_API if api == "produce"))
    return [ErrorCode(code) for code in dict.fromkeys(known) if code != ErrorCode.none]


def advice(code: ErrorCode, api: str = "produce") -> str | None:
    """The cause and remedy in an error's text. ``api``: as for ``action``."""
    return _ADVICE_OF_API.get((api, code)) or _ADVICE.get(code)


def broker_error(code: ErrorCode, where: str, detail: str | None = None, api: str = "produce") -> BrokerError:
    """The exception for ``code``: Kafka's name, the place, the broker's message and advice."""
    name = code.name.upper()
    parts = [f"{sanitize(where)}: {name}"]
    if said := sanitize(detail or ""):
        parts.append(said)
    if (text := advice(code, api)) is not None:
        parts.append(text)
    error = _ERROR_CLASSES.get(code, BrokerError)(int(code), name, "; ".join(parts))
    error.broker_message = said.rstrip(".")
    return error
