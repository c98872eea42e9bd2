"""What an error code in a coordinator's answer means, as one table per API (Kafka: the handlers in
``TransactionManager``). A code that is not in an API's table is fatal.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from kio.schema.errors import ErrorCode


class Fate(IntEnum):
    """What becomes of a call, from harmless to final: of several codes in one answer the highest counts."""

    DONE = 0
    RETRY = 1
    """Ask again after retry.backoff.ms."""
    RETRY_SOON = 2
    """Ask again within milliseconds: the transaction before this one is just being ended."""
    FIND = 3
    """Look the coordinator up again, then ask again."""
    ABORTABLE = 4
    """The transaction has failed; the producer lives."""
    FATAL = 5
    FENCED = 6
    """Fatal: another producer has the transactional id, or the coordinator ended the transaction by its timeout."""


_EVERYWHERE: Final[Mapping[ErrorCode, Fate]] = MappingProxyType(
    {
        ErrorCode.none: Fate.DONE,
        ErrorCode.coordinator_load_in_progress: Fate.RETRY,
        ErrorCode.request_timed_out: Fate.RETRY,
        ErrorCode.throttling_quota_exceeded: Fate.RETRY,
        ErrorCode.concurrent_transactions: Fate.RETRY_SOON,
        ErrorCode.not_coordinator: Fate.FIND,
        ErrorCode.coordinator_not_available: Fate.FIND,
        ErrorCode.transaction_abortable: Fate.ABORTABLE,
        ErrorCode.transactional_id_authorization_failed: Fate.FATAL,
        ErrorCode.cluster_authorization_failed: Fate.FATAL,
        ErrorCode.invalid_txn_state: Fate.FATAL,
        ErrorCode.unknown_producer_id: Fate.FATAL,
        ErrorCode.invalid_producer_id_mapping: Fate.FATAL,
        ErrorCode.producer_fenced: Fate.FENCED,
        ErrorCode.invalid_producer_epoch: Fate.FENCED,
    }
)

FATES: Final[Mapping[str, Mapping[ErrorCode, Fate]]] = MappingProxyType(
    {
        "find_coordinator": {
            **_EVERYWHERE,
            ErrorCode.coordinator_not_available: Fate.RETRY,
            ErrorCode.group_authorization_failed: Fate.ABORTABLE,
        },
        "init_producer_id": {
            **_EVERYWHERE,
            ErrorCode.invalid_transaction_timeout: Fate.FATAL,
        },
        "add_partitions_to_txn": {
            **_EVERYWHERE,
            ErrorCode.operation_not_attempted: Fate.RETRY,
            ErrorCode.unknown_topic_or_partition: Fate.RETRY,
            ErrorCode.topic_authorization_failed: Fate.ABORTABLE,
        },
        "add_offsets_to_txn": {
            **_EVERYWHERE,
            ErrorCode.group_authorization_failed: Fate.ABORTABLE,
        },
        "txn_offset_commit": {
            **_EVERYWHERE,
            ErrorCode.request_timed_out: Fate.FIND,
            ErrorCode.unknown_topic_or_partition: Fate.RETRY,
            ErrorCode.topic_authorization_failed: Fate.ABORTABLE,
            ErrorCode.group_authorization_failed: Fate.ABORTABLE,
            ErrorCode.illegal_generation: Fate.ABORTABLE,
            ErrorCode.unknown_member_id: Fate.ABORTABLE,
            ErrorCode.fenced_instance_id: Fate.ABORTABLE,
            ErrorCode.stale_member_epoch: Fate.ABORTABLE,
            ErrorCode.offset_metadata_too_large: Fate.ABORTABLE,
            ErrorCode.invalid_commit_offset_size: Fate.ABORTABLE,
        },
        "end_txn": {
            **_EVERYWHERE,
        },
    }
)

FATAL_IN_PRODUCE: Final = frozenset(
    {
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.transactional_id_authorization_failed,
        ErrorCode.cluster_authorization_failed,
    }
)
"""Errors of a batch that end the producer. Every other one fails the transaction only: INVALID_PRODUCER_EPOCH too may
come from a timeout of the coordinator, after which an abort can set things right (KIP-588); it tells."""

GONE: Final = frozenset(
    {
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_txn_state,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.unknown_producer_id,
        ErrorCode.transaction_abortable,
    }
)
"""What EndTxn answers for a prepared transaction that was ended before, by whomever and however: a committed one may
answer the same later."""


FEATURE: Final = "transaction.version"
"""The cluster's finalized feature that decides the protocol: from level 2 on it is KIP-890's."""


def fate(api: str, code: ErrorCode) -> Fate:
    return FATES[api].get(code, Fate.FATAL)
