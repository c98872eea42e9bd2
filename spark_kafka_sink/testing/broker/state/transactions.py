"""The transaction coordinator (Kafka: ``TransactionCoordinator``, ``TransactionMetadata``; KIP-98, KIP-360, KIP-890).

Emulated: states and their transitions, fencing by epoch and by a new InitProducerId, epochs that run out, transactions
version 1 (the client adds partitions) and 2 (Produce adds them, each end bumps the epoch), timeouts. Markers are
written in the same step as the end unless the script holds them; a real broker takes some milliseconds, in which it
responds CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import NO_IDENTITY, ProducerIdentity, TopicPartition
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.cluster import ClusterState
from spark_kafka_sink.testing.broker.state.log import EndTransactionMarker
from spark_kafka_sink.testing.broker.state.offsets import GroupOffsets

LAST_EPOCH: Final = 2**15 - 2
"""The last epoch that a producer gets, because 32,767 is kept for fencing."""


class TransactionState(Enum):
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


class End(Enum):
    """The effects of an EndTxn that is not an error."""

    COMPLETE = "write the markers"
    DONE_BEFORE = "respond success, it was done before"


COMMIT, ABORT = True, False

END_TXN_V1: Final[Mapping[tuple[TransactionState, bool], End | ErrorCode]] = MappingProxyType(
    {
        (TransactionState.EMPTY, COMMIT): ErrorCode.invalid_txn_state,
        (TransactionState.EMPTY, ABORT): ErrorCode.invalid_txn_state,
        (TransactionState.ONGOING, COMMIT): End.COMPLETE,
        (TransactionState.ONGOING, ABORT): End.COMPLETE,
        (TransactionState.PREPARE_COMMIT, COMMIT): ErrorCode.concurrent_transactions,
        (TransactionState.PREPARE_COMMIT, ABORT): ErrorCode.invalid_txn_state,
        (TransactionState.PREPARE_ABORT, COMMIT): ErrorCode.invalid_txn_state,
        (TransactionState.PREPARE_ABORT, ABORT): ErrorCode.concurrent_transactions,
        (TransactionState.COMPLETE_COMMIT, COMMIT): End.DONE_BEFORE,
        (TransactionState.COMPLETE_COMMIT, ABORT): ErrorCode.invalid_txn_state,
        (TransactionState.COMPLETE_ABORT, COMMIT): ErrorCode.invalid_txn_state,
        (TransactionState.COMPLETE_ABORT, ABORT): End.DONE_BEFORE,
    }
)

RETRY, FIRST = True, False

END_TXN_V2: Final[Mapping[tuple[TransactionState, bool, bool], End | ErrorCode]] = MappingProxyType(
    {
        # A retry carries the epoch from before the bump; with the present epoch it ends the next transaction.
        (TransactionState.EMPTY, COMMIT, FIRST): ErrorCode.invalid_txn_state,
        (TransactionState.EMPTY, COMMIT, RETRY): ErrorCode.producer_fenced,
        (TransactionState.EMPTY, ABORT, FIRST): End.COMPLETE,
        (TransactionState.EMPTY, ABORT, RETRY): ErrorCode.producer_fenced,
        (TransactionState.ONGOING, COMMIT, FIRST): End.COMPLETE,
        (TransactionState.ONGOING, COMMIT, RETRY): ErrorCode.producer_fenced,
        (TransactionState.ONGOING, ABORT, FIRST): End.COMPLETE,
        (TransactionState.ONGOING, ABORT, RETRY): ErrorCode.producer_fenced,
        (TransactionState.PREPARE_COMMIT, COMMIT, FIRST): ErrorCode.producer_fenced,
        (TransactionState.PREPARE_COMMIT, COMMIT, RETRY): ErrorCode.concurrent_transactions,
        (TransactionState.PREPARE_COMMIT, ABORT, FIRST): ErrorCode.producer_fenced,
        (TransactionState.PREPARE_COMMIT, ABORT, RETRY): ErrorCode.invalid_txn_state,
        (TransactionState.PREPARE_ABORT, COMMIT, FIRST): ErrorCode.producer_fenced,
        (TransactionState.PREPARE_ABORT, COMMIT, RETRY): ErrorCode.invalid_txn_state,
        (TransactionState.PREPARE_ABORT, ABORT, FIRST): ErrorCode.producer_fenced,
        (TransactionState.PREPARE_ABORT, ABORT, RETRY): ErrorCode.concurrent_transactions,
        (TransactionState.COMPLETE_COMMIT, COMMIT, FIRST): ErrorCode.invalid_txn_state,
        (TransactionState.COMPLETE_COMMIT, COMMIT, RETRY): End.DONE_BEFORE,
        (TransactionState.COMPLETE_COMMIT, ABORT, FIRST): End.COMPLETE,
        (TransactionState.COMPLETE_COMMIT, ABORT, RETRY): ErrorCode.invalid_txn_state,
        (TransactionState.COMPLETE_ABORT, COMMIT, FIRST): ErrorCode.invalid_txn_state,
        (TransactionState.COMPLETE_ABORT, COMMIT, RETRY): ErrorCode.invalid_txn_state,
        (TransactionState.COMPLETE_ABORT, ABORT, FIRST): End.COMPLETE,
        (TransactionState.COMPLETE_ABORT, ABORT, RETRY): End.DONE_BEFORE,
    }
)


NOT_STARTED: Final = -1


@dataclass(slots=True)
class Transaction:
    """The coordinator's state of one transactional id. ``epoch``: -1 if it was just created."""

    transactional_id: str
    producer_id: int
    timeout_ms: int
    epoch: int = -1
    previous: ProducerIdentity = NO_IDENTITY
    state: TransactionState = TransactionState.EMPTY
    partitions: set[TopicPartition] = field(default_factory=set)
    started_ms: int = NOT_STARTED
    """The time at which the last transaction took its first partition. A new producer id or epoch resets it."""
    marker: EndTransactionMarker | None = None
    """The marker to write to each partition, in a Prepare state."""

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.epoch)

    def become(self, identity: ProducerIdentity) -> None:
        self.previous = self.identity
        self.producer_id, self.epoch = identity


class TransactionCoordinator:
    """Every transactional id of the cluster; errors are raised as ``ApiError``."""

    def __init__(self, cluster: ClusterState, offsets: GroupOffsets) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.markers_held = False
        self._cluster = cluster
        self._offsets = offsets

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None, now_ms: int
    ) -> ProducerIdentity:
        """The identity to write with from now on; a transaction left open is aborted first (the client asks again)."""
        if not transactional_id:
            raise ApiError(ErrorCode.invalid_request)
        if not 0 < timeout_ms <= int(self._cluster.config["transaction.max.timeout.ms"]):
            raise ApiError(ErrorCode.invalid_transaction_timeout)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            transaction = Transaction(transactional_id, self._cluster.next_producer_id(), timeout_ms)
            self.transactions[transactional_id] = transaction
        if expected is not None and not _may_continue(transaction, expected):
            raise ApiError(ErrorCode.producer_fenced)
        if transaction.state in {TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}:
            raise ApiError(ErrorCode.concurrent_transactions)
        if transaction.state is TransactionState.ONGOING:
            self._fence(transaction, now_ms)
            raise ApiError(ErrorCode.concurrent_transactions)
        transaction.timeout_ms = timeout_ms
        return self._renew(transaction, expected)

    def add_partitions(
        self, transactional_id: str, identity: ProducerIdentity, partitions: Iterable[TopicPartition], now_ms: int
    ) -> None:
        """AddPartitionsToTxn, AddOffsetsToTxn, and what Produce v12 and TxnOffsetCommit v5 do by themselves."""
        transaction = self._not_ending(transactional_id, identity)
        if transaction.state is not TransactionState.ONGOING:
            transaction.state = TransactionState.ONGOING
            transaction.partitions.clear()
            transaction.started_ms = now_ms
        transaction.partitions.update(partitions)

    def verify_partition(self, transactional_id: str, identity: ProducerIdentity, partition: TopicPartition) -> None:
        """The check of transactions v1 before an append (KIP-890, first part)."""
        transaction = self._not_ending(transactional_id, identity)
        if transaction.state is not TransactionState.ONGOING or partition not in transaction.partitions:
            raise ApiError(ErrorCode.transaction_abortable)

    def verify_open(self, transactional_id: str, identity: ProducerIdentity) -> None:
        """The check of transactions v1 before offsets are taken into a transaction."""
        if self._checked(transactional_id, identity).state is not TransactionState.ONGOING:
            raise ApiError(ErrorCode.transaction_abortable)

    def end(
        self, transactional_id: str, identity: ProducerIdentity, *, committed: bool, bump: bool, now_ms: int
    ) -> ProducerIdentity:
        """An EndTxn. Returns the identity for the next transaction. ``bump``: whether it is of transactions version
        2."""
        if not transactional_id:
            raise ApiError(ErrorCode.invalid_request)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise ApiError(ErrorCode.invalid_producer_id_mapping)
        is_retry = bump and identity == transaction.previous and transaction.identity == _bumped(identity, transaction)
        if not is_retry:
            self._checked(transactional_id, identity)
        verdict = (
            END_TXN_V2[transaction.state, committed, is_retry] if bump else END_TXN_V1[transaction.state, committed]
        )
        if isinstance(verdict, ErrorCode):
            raise ApiError(verdict)
        if verdict is End.COMPLETE:
            if bump:
                transaction.become(_next_identity(transaction, self._cluster))
            marker_epoch = identity.epoch + 1 if bump else identity.epoch
            self._prepare(transaction, EndTransactionMarker(identity.producer_id, marker_epoch, committed), now_ms)
        return transaction.identity

    def expire(self, now_ms: int) -> None:
        """Abort and fence transactions that are open for longer than their timeout."""
        for transaction in self.transactions.values():
            if (
                transaction.state is TransactionState.ONGOING
                and now_ms - transaction.started_ms >= transaction.timeout_ms
            ):
                self._fence(transaction, now_ms)

    def hold_markers(self, held: bool, now_ms: int) -> None:
        """Holds markers, or writes the held ones. While markers are held, ended transactions stay in their Prepare
        state."""
        self.markers_held = held
        for transaction in self.transactions.values():
            self._complete(transaction, now_ms)

    def fence(self, transactional_id: str, now_ms: int) -> None:
        """Abort and fence a transaction now, as the timeout does."""
        self._fence(self.transactions[transactional_id], now_ms)

    def _checked(self, transactional_id: str, identity: ProducerIdentity) -> Transaction:
        if not transactional_id:
            raise ApiError(ErrorCode.invalid_request)
        transaction = self.transactions.get(transactional_id)
        if transaction is None or transaction.producer_id != identity.producer_id:
            raise ApiError(ErrorCode.invalid_producer_id_mapping)
        if transaction.epoch != identity.epoch:
            raise ApiError(ErrorCode.producer_fenced)
        return transaction

    def _not_ending(self, transactional_id: str, identity: ProducerIdentity) -> Transaction:
        """The ``_checked`` transaction, whose last EndTxn must be complete."""
        transaction = self._checked(transactional_id, identity)
        if transaction.state in {TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}:
            raise ApiError(ErrorCode.concurrent_transactions)
        return transaction

    def _renew(self, transaction: Transaction, expected: ProducerIdentity | None) -> ProducerIdentity:
        exhausted = transaction.epoch >= LAST_EPOCH and (expected is None or expected.epoch == transaction.epoch)
        if exhausted:
            transaction.become(ProducerIdentity(self._cluster.next_producer_id(), 0))
        elif expected is None or transaction.epoch in {-1, expected.epoch}:
            transaction.become(ProducerIdentity(transaction.producer_id, transaction.epoch + 1))
        elif expected.epoch != transaction.previous.epoch:
            raise ApiError(ErrorCode.producer_fenced)
        if expected is None:
            # A new producer: the holder of the epoch before is fenced, not a retry of its own bump.
            transaction.previous = NO_IDENTITY
        transaction.state = TransactionState.EMPTY
        transaction.started_ms = NOT_STARTED
        return transaction.identity

    def _fence(self, transaction: Transaction, now_ms: int) -> None:
        transaction.become(ProducerIdentity(transaction.producer_id, transaction.epoch + 1))
        transaction.previous = NO_IDENTITY  # the holder of this epoch is fenced, not a retry of its own bump
        self._prepare(
            transaction, EndTransactionMarker(transaction.producer_id, transaction.epoch, committed=False), now_ms
        )

    def _prepare(self, transaction: Transaction, marker: EndTransactionMarker, now_ms: int) -> None:
        transaction.state = TransactionState.PREPARE_COMMIT if marker.committed else TransactionState.PREPARE_ABORT
        transaction.marker = marker
        self._complete(transaction, now_ms)

    def _complete(self, transaction: Transaction, now_ms: int) -> None:
        marker = transaction.marker
        if self.markers_held or marker is None:
            return
        for name in transaction.partitions:
            partition = self._cluster.partition(*name)
            if partition is not None:
                partition.append_marker(marker, now_ms)
        self._offsets.end_transaction(marker.producer_id, committed=marker.committed)
        transaction.partitions.clear()
        transaction.marker = None
        transaction.state = TransactionState.COMPLETE_COMMIT if marker.committed else TransactionState.COMPLETE_ABORT


def _may_continue(transaction: Transaction, expected: ProducerIdentity) -> bool:
    if transaction.epoch == -1 or expected.producer_id == transaction.producer_id:
        return True
    return expected.producer_id == transaction.previous.producer_id and expected.epoch >= LAST_EPOCH


def _next_identity(transaction: Transaction, cluster: ClusterState) -> ProducerIdentity:
    if transaction.epoch >= LAST_EPOCH:
        return ProducerIdentity(cluster.next_producer_id(), 0)
    return ProducerIdentity(transaction.producer_id, transaction.epoch + 1)


def _bumped(identity: ProducerIdentity, transaction: Transaction) -> ProducerIdentity:
    """The identity after a bump of ``identity``: the next epoch, or epoch 0 of the transaction's new producer id."""
    if identity.epoch >= LAST_EPOCH:
        return ProducerIdentity(transaction.producer_id, 0)
    return ProducerIdentity(identity.producer_id, identity.epoch + 1)
