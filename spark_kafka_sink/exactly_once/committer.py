"""Ends prepared transactions and fences their producers on the caller's thread: no sender thread, many at a time.

A transaction that one process prepared is committed or aborted here in another. This needs only EndTxn and
InitProducerId, and nothing of the producer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.clock import NEVER, Clock, SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import TopicInfo, TopicPartition
from spark_kafka_sink.common.shell import server_options
from spark_kafka_sink.errors import BrokerError, KafkaError, KafkaTimeoutError, NetworkError
from spark_kafka_sink.network.calls import Call, timeout_error
from spark_kafka_sink.network.error_table import NOT_OPEN, Action, action, broker_error
from spark_kafka_sink.network.metadata_api import parse_metadata
from spark_kafka_sink.network.rpc import Rpc
from spark_kafka_sink.network.topics import topic_metadata
from spark_kafka_sink.producer import transaction_requests as requests
from spark_kafka_sink.producer.transaction_requests import (
    END_TXN_V1,
    END_TXN_V2,
    PreparedTransaction,
    TransactionalIdentity,
    end_txn_version,
)

Config = ProducerConfig | Mapping[str, object]

CONNECTIONS: Final = 10
"""The most connections to one coordinator, because a broker serves one request of a connection at a time."""


METADATA_VERSION: Final = "metadata.version"
KAFKA_3_6: Final = 12
"""Level of metadata.version (3.6-IV0) that only a cluster without older brokers can have."""


class EndVerdict(Enum):
    COMMITTED = "committed, now or by an earlier attempt with the same verdict"
    ABORTED = "aborted, now or by an earlier attempt with the same verdict"
    GONE = "this transaction is no longer open: it was ended before, or its id was initialised again"
    UNDECIDED = "no response until the deadline, or an error: it may be open, and may have been ended by this attempt"


@dataclass(frozen=True, slots=True)
class EndTxnOutcome:
    """The outcome of one EndTxn. ``error``: why the verdict is GONE or UNDECIDED.

    ``identity``: the identity for the id's next transaction, after COMMITTED and ABORTED. ``unanswered``: True if an
    attempt never had a response and may still arrive, so that the next transaction needs another epoch (KAFKA-17754).
    ``repeated``: True if there were earlier attempts, which may have ended the transaction.
    """

    prepared: TransactionalIdentity
    verdict: EndVerdict
    error: KafkaError | None = None
    identity: TransactionalIdentity | None = None
    unanswered: bool = False
    repeated: bool = False


def resume(prepared: PreparedTransaction, config: Config) -> ResumedTransaction:
    """Resumes a prepared transaction in the process that is to end it."""
    return ResumedTransaction(prepared, config if isinstance(config, ProducerConfig) else ProducerConfig.parse(config))


@dataclass(frozen=True, slots=True)
class ResumedTransaction:
    """A prepared transaction of another process. ``commit`` and ``abort`` raise ``ProducerFencedError`` or another
    ``BrokerError`` if the transaction is gone, and ``KafkaTimeoutError`` without a response in ``timeout_ms`` (default
    max.block.ms): call the same again.
    """

    prepared: PreparedTransaction
    config: ProducerConfig

    def commit(self, timeout_ms: float | None = None) -> TransactionalIdentity:
        return self._end(True, timeout_ms)

    def abort(self, timeout_ms: float | None = None) -> TransactionalIdentity:
        return self._end(False, timeout_ms)

    def _end(self, commit: bool, timeout_ms: float | None) -> TransactionalIdentity:
        if self.prepared.is_empty:  # the transaction is empty: its coordinator never heard of it
            return TransactionalIdentity(*self.prepared.key, self.prepared.end_txn_version)
        allowed_ms = self.config.max_block_ms if timeout_ms is None else timeout_ms
        with closing(Rpc(self.config, SystemClock(), connections=CONNECTIONS)) as rpc:
            committer = Committer(rpc, self.config.transaction_timeout_ms)
            (outcome,) = committer.end([(self.prepared, commit)], allowed_ms)
        if outcome.identity is None:
            raise outcome.error or KafkaError(f"{outcome.verdict.value}: {self.prepared}")
        return outcome.identity


class Committer:
    """Calls to transaction coordinators over ``rpc``, which stays open. New epochs get ``transaction_timeout_ms``."""

    def __init__(self, rpc: Rpc, transaction_timeout_ms: int) -> None:
        self._rpc = rpc
        self._transaction_timeout_ms = transaction_timeout_ms

    def end(
        self, endings: Sequence[tuple[TransactionalIdentity, bool]], timeout_ms: float, latest_ms: float = NEVER
    ) -> list[EndTxnOutcome]:
        """Commits (True) or aborts (False) each transaction; one outcome for each, in their order. Raises nothing. No
        EndTxn is sent from ``latest_ms`` (epoch ms) on.

        Every attempt uses the EndTxn version of the transaction, so the same verdict may be sent again, in this call or
        a later one.
        """
        calls = [requests.end_txn(each, commit) for each, commit in endings]
        self._rpc.run(calls, self._rpc.now() + timeout_ms, latest_ms)
        return [
            _end_transaction(prepared, commit, call, timeout_ms)
            for (prepared, commit), call in zip(endings, calls, strict=True)
        ]

    def abort(self, prepared: Iterable[PreparedTransaction], timeout_ms: float) -> list[EndTxnOutcome]:
        """Aborts these transactions, so that no row that arrives later can be committed; one outcome for each, in their
        order.

        EndTxn ends exactly this transaction, and rows that arrive later are refused: in transactions version 2 because
        of their epoch, in version 1 from Kafka 3.6 on because the transaction no longer has their partition. Older
        brokers would take the late rows, and commit them with the successor's. On older brokers, InitProducerId with
        the identity (KIP-360) aborts with markers of the next epoch. That is not exact: while a transaction of a
        successor is open, the coordinator compares the producer id only, and aborts the successor's transaction.
        """
        asked = list(prepared)
        timeout = self._transaction_timeout_ms
        calls = [
            requests.init_producer_id(transaction, timeout)
            if self.aborts_by_init(transaction)
            else requests.end_txn(transaction, False)
            for transaction in asked
        ]
        self._rpc.run(calls, self._rpc.now() + timeout_ms)
        return [
            _end_transaction(each, False, call, timeout_ms) if call.api == "end_txn" else _fence(each, call, timeout_ms)
            for each, call in zip(asked, calls, strict=True)
        ]

    def aborts_by_init(self, prepared: PreparedTransaction) -> bool:
        """Whether ``abort`` ends the transaction by InitProducerId."""
        return prepared.end_txn_version < END_TXN_V2 and not self._partitions_are_verified()

    def init_producer_id(self, identity: TransactionalIdentity, timeout_ms: float) -> TransactionalIdentity:
        """Aborts the open transaction of the id and fences its producer. Returns the id's new identity.

        ``identity`` must still be the latest one (KIP-360), otherwise this raises ``ProducerFencedError``.
        ``NO_IDENTITY`` fences any identity. A broker takes a repeated identity for a retry and
        returns the same epoch again.
        """
        call = requests.init_producer_id(identity, self._transaction_timeout_ms)
        body = self._rpc.call(call, self._rpc.now() + timeout_ms)
        assert call.end is not None
        versions = self._rpc.api_versions(call.end.node_id)
        version = END_TXN_V1 if versions is None else end_txn_version(versions.features)
        return TransactionalIdentity(
            identity.transactional_id, int(body.producer_id), int(body.producer_epoch), version
        )

    def add_partitions(
        self, identity: TransactionalIdentity, partitions: Sequence[TopicPartition], timeout_ms: float
    ) -> None:
        """AddPartitionsToTxn, which transactions version 1 needs before Produce; raises its error."""
        call = requests.add_partitions(identity, partitions)
        self._rpc.call(call, self._rpc.now() + timeout_ms)

    def _partitions_are_verified(self) -> bool:
        """Whether every broker asks the coordinator before it appends to a transaction (KIP-890, part 1). False without
        a connection, and for clusters with ZooKeeper, whose responses do not show it."""
        found = (self._rpc.api_versions(node) for node in self._rpc.snapshot.nodes)
        versions = next((apis for apis in found if apis is not None), None)
        return versions is not None and versions.features.get(METADATA_VERSION, 0) >= KAFKA_3_6


def _end_transaction(prepared: TransactionalIdentity, commit: bool, call: Call, timeout_ms: float) -> EndTxnOutcome:
    if call.end is None or call.end.error is not None:
        return _failed(prepared, call, timeout_ms)
    producer = requests.identity_after(call.end.body, prepared.identity)
    identity = TransactionalIdentity(prepared.transactional_id, *producer, prepared.end_txn_version)
    verdict = EndVerdict.COMMITTED if commit else EndVerdict.ABORTED
    return EndTxnOutcome(prepared, verdict, identity=identity, unanswered=call.unanswered)


def _fence(prepared: PreparedTransaction, call: Call, timeout_ms: float) -> EndTxnOutcome:
    """The outcome of InitProducerId with the transaction's identity.

    The coordinator of an open transaction responds CONCURRENT_TRANSACTIONS while it writes the markers, then
    PRODUCER_FENCED, because the transaction's epoch is bumped by then. InitProducerId succeeds if the transaction was
    already completing, perhaps by a commit.
    """
    end = call.end
    if end is not None and end.error is None:
        return EndTxnOutcome(prepared, EndVerdict.GONE)
    before = call.last_error.code if isinstance(call.last_error, BrokerError) else None
    if end is not None and end.code in NOT_OPEN and before == ErrorCode.concurrent_transactions:
        return EndTxnOutcome(prepared, EndVerdict.ABORTED)
    return _failed(prepared, call, timeout_ms)


def _failed(prepared: TransactionalIdentity, call: Call, timeout_ms: float) -> EndTxnOutcome:
    end = call.end
    if end is None:
        unanswered = call.unanswered or call.in_flight
        return EndTxnOutcome(
            prepared, EndVerdict.UNDECIDED, error=timeout_error(call, timeout_ms), unanswered=unanswered
        )
    verdict = EndVerdict.GONE if end.code in NOT_OPEN else EndVerdict.UNDECIDED
    return EndTxnOutcome(prepared, verdict, end.error, unanswered=call.unanswered, repeated=call.attempts > 1)


class Cluster(Rpc):
    """A client with requests about brokers and topics. Its methods raise ``KafkaTimeoutError`` at ``deadline``
    (monotonic ms), and ``BrokerError`` for codes that are not retried.
    """

    def __init__(self, config: ProducerConfig, clock: Clock) -> None:
        super().__init__(config, clock, connections=CONNECTIONS)
        self.server_options = server_options(config)

    def epoch_ms(self) -> int:
        """The time of the wall clock, which runs on while the machine is suspended."""
        return self._clock.epoch_ms()

    def node_ids(self, deadline: float) -> list[int]:
        self.await_brokers(deadline)
        return sorted(self.snapshot.nodes)

    def topic(self, name: str, deadline: float) -> TopicInfo | None:
        """The topic, or None if it does not exist. Never creates it."""
        found = parse_metadata(topic_metadata(self, [name], deadline))
        info = found.topics.get(name)
        if info is None:
            raise NetworkError(found.inconsistent.get(name, f"The Metadata response lacks topic {name}"))
        code = ErrorCode(info.error)
        if code is ErrorCode.unknown_topic_or_partition:
            return None
        if action("metadata", code) is Action.FAIL:
            raise broker_error(code, f"Metadata of topic {name}")
        return info

    def topics(self, names: Iterable[str], deadline: float) -> dict[str, TopicInfo | None]:
        """The topics, by one request: None for one that does not exist. Leaves out topics with another error."""
        topics = parse_metadata(topic_metadata(self, [*names], deadline)).topics
        return {
            name: info if info.error == ErrorCode.none.value else None
            for name, info in topics.items()
            if ErrorCode(info.error) in (ErrorCode.none, ErrorCode.unknown_topic_or_partition)
        }

    def check_time(self, deadline: float, what: str) -> None:
        if self.now() >= deadline:
            raise KafkaTimeoutError(f"{what} in time")
