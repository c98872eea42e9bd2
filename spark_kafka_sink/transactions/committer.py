"""Ends prepared transactions and takes fences on the caller's thread: no sender thread, one deadline, many at a time.

What a producer prepared in one process is committed or aborted here in another. Everything is told by EndTxn and
InitProducerId alone, so nothing of the producer need be left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from types import TracebackType
from typing import Final, Protocol, Self

from kio.schema.errors import ErrorCode

from spark_kafka_sink.clock import Clock, SystemClock
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import BrokerError, KafkaError, KafkaTimeoutError
from spark_kafka_sink.model import NO_IDENTITY, Node, ProducerIdentity, TopicPartition
from spark_kafka_sink.network.backoff import ExponentialBackoff
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.codec import camel_case
from spark_kafka_sink.network.error_table import NOT_OPEN
from spark_kafka_sink.network.metadata import bootstrap_nodes
from spark_kafka_sink.network.selector import Selector
from spark_kafka_sink.network.transport import Transport
from spark_kafka_sink.transactions import messages
from spark_kafka_sink.transactions.calls import (
    SOON_MS,
    CallEnd,
    CoordinatorCall,
    CoordinatorCalls,
    last_reason,
)
from spark_kafka_sink.transactions.messages import Subject
from spark_kafka_sink.transactions.values import (
    END_TXN_V1,
    END_TXN_V2,
    TRANSACTION_VERSION_FEATURE,
    PreparedTransaction,
    TransactionalIdentity,
)

Config = ProducerConfig | Mapping[str, object]

CONNECTIONS: Final = 10
"""To one coordinator: a broker serves one request of a connection at a time."""


class EndVerdict(Enum):
    COMMITTED = "committed, now or by an earlier attempt with the same verdict"
    ABORTED = "aborted, now or by an earlier attempt with the same verdict"
    GONE = "this transaction is not open any more: it was ended before, or its id was initialised again"
    UNDECIDED = "no answer until the deadline, or a refusal: it may be open, and may have been ended by this attempt"


@dataclass(frozen=True, slots=True)
class EndTxnOutcome:
    """What came of one EndTxn. ``error`` and its Kafka ``error_code`` (0: none) say why it is GONE or UNDECIDED.

    ``fence`` is the transactional id's identity for its next transaction, when it was COMMITTED or ABORTED.
    """

    prepared: PreparedTransaction
    verdict: EndVerdict
    error_code: int = 0
    error: KafkaError | None = None
    fence: TransactionalIdentity | None = None


@dataclass(frozen=True, slots=True)
class FenceOutcome:
    """The fence that was taken on an id, or the error that prevented it."""

    transactional_id: str
    fence: TransactionalIdentity | None
    error: KafkaError | None


def end_transactions(
    config: Config,
    endings: Sequence[tuple[PreparedTransaction, bool]],
    timeout_ms: float,
    connections: int = CONNECTIONS,
) -> list[EndTxnOutcome]:
    """Commit (True) or abort (False) prepared transactions; one outcome for each, in their order. Raises nothing.

    All attempts of one transaction use the EndTxn version it names, so that the same verdict may be sent again, in this
    call or a later one.
    """
    with Committer(_parsed(config), connections=connections) as committer:
        return committer.end(endings, timeout_ms)


def take_fence(
    config: Config, transactional_id: str, timeout_ms: float | None = None, held: TransactionalIdentity | None = None
) -> TransactionalIdentity:
    """InitProducerId: abort what was left open under the id, and fence whoever had it; default max.block.ms.

    With ``held`` only if that fence still stands (KIP-360), else ``ProducerFencedError``; a broker takes the same
    ``held`` twice in a row for one attempt repeated and gives the same epoch to both.
    """
    parsed = _parsed(config)
    with Committer(parsed) as committer:
        identities = {transactional_id: held.identity if held is not None else NO_IDENTITY}
        (outcome,) = committer.take_fences(identities, parsed.max_block_ms if timeout_ms is None else timeout_ms)
    if outcome.fence is None:
        raise outcome.error or KafkaError(f"No fence on {transactional_id}")
    return outcome.fence


def take_fences(
    config: Config, transactional_ids: Iterable[str], timeout_ms: float, connections: int = CONNECTIONS
) -> list[FenceOutcome]:
    """``take_fence`` for many ids at a time; one outcome for each, in their order. Raises nothing."""
    with Committer(_parsed(config), connections=connections) as committer:
        return committer.take_fences(dict.fromkeys(transactional_ids, NO_IDENTITY), timeout_ms)


def resume(prepared: PreparedTransaction, config: Config) -> ResumedTransaction:
    """A prepared transaction in whatever process is to end it."""
    return ResumedTransaction(prepared, _parsed(config))


@dataclass(frozen=True, slots=True)
class ResumedTransaction:
    """``commit`` and ``abort`` raise ``ProducerFencedError`` or another ``BrokerError`` when the transaction is gone,
    ``KafkaTimeoutError`` when nothing is known after ``timeout_ms`` (default max.block.ms): call the same again.
    """

    prepared: PreparedTransaction
    config: ProducerConfig

    def commit(self, timeout_ms: float | None = None) -> TransactionalIdentity:
        return self._end(True, timeout_ms)

    def abort(self, timeout_ms: float | None = None) -> TransactionalIdentity:
        return self._end(False, timeout_ms)

    def _end(self, commit: bool, timeout_ms: float | None) -> TransactionalIdentity:
        deadline = self.config.max_block_ms if timeout_ms is None else timeout_ms
        (outcome,) = end_transactions(self.config, [(self.prepared, commit)], deadline)
        if outcome.fence is None:
            raise outcome.error or KafkaError(f"{outcome.verdict.value}: {self.prepared}")
        return outcome.fence


class KnownBrokers(Protocol):
    def known_nodes(self) -> Sequence[Node]:
        """The brokers of the last metadata response; none before the first."""
        ...


class Committer:
    """Turns the calls' loop until all have ended or the time is up. ``transport`` is shut down at the end.

    ``brokers``: whom to ask for coordinators besides the bootstrap servers.
    """

    def __init__(
        self,
        config: ProducerConfig,
        transport: Transport | None = None,
        clock: Clock | None = None,
        connections: int = CONNECTIONS,
        brokers: KnownBrokers | None = None,
    ) -> None:
        self._brokers = brokers
        self._config = config
        self._clock = clock or SystemClock()
        self._transport = transport or Selector(config.send_buffer_bytes, config.receive_buffer_bytes)
        random = Random()
        self._client = NetworkClient(config, self._transport, random)
        self._bootstrap = bootstrap_nodes(config)
        backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
        soon = ExponentialBackoff(SOON_MS, config.retry_backoff_max_ms, random)
        self._calls = CoordinatorCalls(self._client, self._nodes, backoff, soon, connections)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._calls.stop()
        self._client.close()
        self._transport.shutdown()

    def _nodes(self, now: float) -> Sequence[Node]:
        return self._bootstrap if self._brokers is None else (*self._brokers.known_nodes(), *self._bootstrap)

    def end(self, endings: Sequence[tuple[PreparedTransaction, bool]], timeout_ms: float) -> list[EndTxnOutcome]:
        ends = [_Ending(prepared, commit) for prepared, commit in endings]
        return self._end([(each, each.end_txn()) for each in ends], timeout_ms)

    def abort(self, prepared: Iterable[PreparedTransaction], timeout_ms: float) -> list[EndTxnOutcome]:
        """Aborts, and fences whoever may still write under these identities; one outcome for each, in their order.

        EndTxn of transactions version 1 leaves the epoch as it is: partitions go on taking the rows of a zombie, and
        its successor commits them. InitProducerId with the identity (KIP-360) aborts what is open by markers of the
        next epoch, and nothing that is not this identity's. Never EndTxn before it: it would find nothing open.
        """
        timeout = self._config.transaction_timeout_ms
        ends = [_Ending(each, False) for each in prepared]
        calls = [
            each.end_txn() if each.prepared.end_txn_version >= END_TXN_V2 else each.fence(timeout) for each in ends
        ]
        return self._end(list(zip(ends, calls, strict=True)), timeout_ms)

    def _end(self, calls: Sequence[tuple[_Ending, CoordinatorCall]], timeout_ms: float) -> list[EndTxnOutcome]:
        self._run([call for _, call in calls], timeout_ms)
        for ending, call in calls:
            if ending.outcome is None:
                error = _timeout(camel_case(call.api), call, timeout_ms)
                ending.outcome = EndTxnOutcome(ending.prepared, EndVerdict.UNDECIDED, error=error)
        return [ending.outcome for ending, _ in calls if ending.outcome is not None]

    def take_fences(self, held: Mapping[str, ProducerIdentity], timeout_ms: float) -> list[FenceOutcome]:
        """``held``: transactional id → the identity that must still stand, or ``NO_IDENTITY``."""
        outcomes: dict[str, FenceOutcome] = {}

        def call(subject: Subject) -> CoordinatorCall:
            def ended(end: CallEnd) -> None:
                fence = None if end.error is not None else self._fence(subject, end)
                outcomes[subject.transactional_id] = FenceOutcome(subject.transactional_id, fence, end.error)

            return messages.init_producer_id(subject, self._config.transaction_timeout_ms, ended)

        calls = {each: call(Subject(each, identity)) for each, identity in held.items()}
        self._run(calls.values(), timeout_ms)
        for name in calls.keys() - outcomes.keys():
            outcomes[name] = FenceOutcome(name, None, _timeout("InitProducerId", calls[name], timeout_ms))
        return [outcomes[name] for name in held]

    def add_partitions(
        self, fence: TransactionalIdentity, partitions: Sequence[TopicPartition], timeout_ms: float
    ) -> None:
        """AddPartitionsToTxn, which the first transaction protocol wants before Produce; raises what refuses it."""
        ends: list[CallEnd] = []
        subject = Subject(fence.transactional_id, fence.identity)
        call = messages.add_partitions(subject, partitions, ends.append)
        self._run([call], timeout_ms)
        if not ends:
            raise _timeout("AddPartitionsToTxn", call, timeout_ms)
        if ends[0].error is not None:
            raise ends[0].error

    def _run(self, calls: Iterable[CoordinatorCall], timeout_ms: float) -> None:
        for call in calls:
            self._calls.start(call)
        wake_at = now = self._clock.now()
        deadline = now + timeout_ms
        while self._calls.busy and now < deadline:
            events = self._transport.poll(max(0.0, min(wake_at, deadline) - now))
            now = self._clock.now()
            self._client.handle(events, now)
            self._client.expire(now)
            if now < deadline:  # nothing is sent afterwards, however long this process was stopped
                wake_at = min(self._calls.advance(now), self._client.next_deadline(now))

    def _fence(self, subject: Subject, end: CallEnd) -> TransactionalIdentity:
        versions = self._client.api_versions(end.node_id)
        v2 = versions is not None and versions.features.get(TRANSACTION_VERSION_FEATURE, 0) >= 2
        version = END_TXN_V2 if v2 else END_TXN_V1
        return TransactionalIdentity(
            subject.transactional_id, int(end.body.producer_id), int(end.body.producer_epoch), version
        )


class _Ending:
    """One prepared transaction, its verdict, and what came of it."""

    def __init__(self, prepared: PreparedTransaction, commit: bool) -> None:
        self.prepared = prepared
        self.outcome: EndTxnOutcome | None = None
        self._commit = commit
        self._subject = Subject(prepared.transactional_id, prepared.identity)

    def end_txn(self) -> CoordinatorCall:
        return messages.end_txn(self._subject, self.prepared.end_txn_version, self._commit, self._ended)

    def fence(self, transaction_timeout_ms: int) -> CoordinatorCall:
        call = messages.init_producer_id(self._subject, transaction_timeout_ms, lambda end: self._fenced(end, call))
        return call

    def _ended(self, end: CallEnd) -> None:
        if end.error is not None:
            self._failed(end)
            return
        identity = messages.identity_after(end.body, self.prepared.identity)
        fence = TransactionalIdentity(self.prepared.transactional_id, *identity, self.prepared.end_txn_version)
        verdict = EndVerdict.COMMITTED if self._commit else EndVerdict.ABORTED
        self.outcome = EndTxnOutcome(self.prepared, verdict, fence=fence)

    def _fenced(self, end: CallEnd, call: CoordinatorCall) -> None:
        """A transaction that was open answers CONCURRENT_TRANSACTIONS while its markers are written, then
        PRODUCER_FENCED: its identity is the one before by then. One that was completing already, perhaps by a commit,
        ends in success."""
        before = call.last_error
        if (
            isinstance(before, BrokerError)
            and before.code == ErrorCode.concurrent_transactions
            and end.code in NOT_OPEN
        ):
            self.outcome = EndTxnOutcome(self.prepared, EndVerdict.ABORTED)
        elif end.error is None:
            self.outcome = EndTxnOutcome(self.prepared, EndVerdict.GONE)
        else:
            self._failed(end)

    def _failed(self, end: CallEnd) -> None:
        verdict = EndVerdict.GONE if end.code in NOT_OPEN else EndVerdict.UNDECIDED
        self.outcome = EndTxnOutcome(self.prepared, verdict, int(end.code), end.error)


def _timeout(api: str, call: CoordinatorCall, timeout_ms: float) -> KafkaTimeoutError:
    return KafkaTimeoutError(f"{api} for {call.key.name} has no answer after {timeout_ms:.0f} ms: {last_reason(call)}")


def _parsed(config: Config) -> ProducerConfig:
    return config if isinstance(config, ProducerConfig) else ProducerConfig.parse(config)
