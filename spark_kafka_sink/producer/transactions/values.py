"""Transactional identities, prepared transactions and consumer offsets: frozen, picklable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.common.model import (
    LARGEST_INT16,
    LARGEST_INT32,
    LARGEST_INT64,
    ProducerIdentity,
    check_number,
    check_text,
)

END_TXN_V1: Final = 3
"""Stands for the first transaction protocol, in which EndTxn has versions up to 4. Ledgers have this number."""

END_TXN_V2: Final = 5
"""Version of EndTxn in the second protocol (KIP-890), whose response has the producer id and epoch of the next
transaction.
"""

_TRANSACTION_VERSION: Final = "transaction.version"
"""The finalized feature of a cluster that chooses the protocol: the second one from level 2 on."""


def end_txn_version(features: Mapping[str, int]) -> int:
    """The protocol of a cluster with these finalized features."""
    return END_TXN_V2 if features.get(_TRANSACTION_VERSION, 0) >= 2 else END_TXN_V1


@dataclass(frozen=True, slots=True)
class TransactionalIdentity:
    """A transactional id with the producer id and epoch from InitProducerId, which fences earlier producers.

    ``end_txn_version``: the protocol of its transactions, ``END_TXN_V1`` or ``END_TXN_V2``.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    end_txn_version: int

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for a field that no request can carry."""
        check_text("transactional_id", self.transactional_id)
        check_number("producer_id", self.producer_id, -1, LARGEST_INT64)
        check_number("epoch", self.epoch, -1, LARGEST_INT16)
        if self.end_txn_version not in (END_TXN_V1, END_TXN_V2):
            raise ValueError(
                f"Invalid end_txn_version: it must be {END_TXN_V1} or {END_TXN_V2}, but is {self.end_txn_version!r}."
            )

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.epoch)

    @property
    def key(self) -> tuple[str, int, int]:
        """Identifies a transaction regardless of ``end_txn_version``. A listed one has the driver's version and a
        reported one its task's, and these differ if transaction.version has changed in between."""
        return self.transactional_id, self.producer_id, self.epoch


@dataclass(frozen=True, slots=True)
class PreparedTransaction(TransactionalIdentity):
    """An open transaction with all its records in the log. Any process may commit or abort it, until
    ``transaction.timeout.ms`` after its first record or until the next InitProducerId for its id.

    ``end_txn_version``: the protocol of every attempt of EndTxn; a retry in the other protocol fails.
    """


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """``offset`` of the next record to read, as a consumer commits it. ``leader_epoch`` -1: unknown.

    Raises ``ValueError`` for a field that no request can carry.
    """

    offset: int
    metadata: str | None = ""
    leader_epoch: int = -1

    def __post_init__(self) -> None:
        check_number("offset", self.offset, -LARGEST_INT64, LARGEST_INT64)
        if self.offset < 0:
            raise ValueError(f"Invalid negative offset: {self.offset}")  # Java's text
        check_number("leader_epoch", self.leader_epoch, -1, LARGEST_INT32)
        if self.metadata is not None:
            check_text("metadata", self.metadata)


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """The consumer of a transaction's input. The defaults do not fence zombie members (KIP-447).

    ``group_instance_id``: of a static member. Raises ``ValueError`` for a field that no request can carry.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    def __post_init__(self) -> None:
        check_text("group_id", self.group_id)
        check_text("member_id", self.member_id)
        check_number("generation_id", self.generation_id, -1, LARGEST_INT32)
        if self.group_instance_id is not None:
            check_text("group_instance_id", self.group_instance_id)
