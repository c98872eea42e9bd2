"""The session of a driver process: its connections and the ledger as far as it has read it, kept from one micro-batch
to the next. This only saves time: Spark ends idle processes after a minute, and a new process reads everything again.
One thread at a time; a forked child starts without sessions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.common.clock import NEVER, Clock, SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import NO_IDENTITY
from spark_kafka_sink.common.shell import option, server_options
from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError, ProducerFencedError
from spark_kafka_sink.exactly_once import failpoints
from spark_kafka_sink.exactly_once.committer import Cluster, Committer, EndVerdict
from spark_kafka_sink.exactly_once.errors import ADVICE, ExactlyOnceError, FencedRunError, NotDecidedError, Progress
from spark_kafka_sink.exactly_once.ledger import Ledger, LedgerPart
from spark_kafka_sink.exactly_once.ledger_format import LedgerWrite, entry_write
from spark_kafka_sink.exactly_once.ledger_topic import ensure_ledger, ledger_partitions
from spark_kafka_sink.exactly_once.ledger_view import LedgerView
from spark_kafka_sink.exactly_once.values import DRIVER_TIMEOUT_MS, DriverIdentity, Entry, WriteKind, driver_id
from spark_kafka_sink.producer.transaction_requests import END_TXN_V1, END_TXN_V2, TransactionalIdentity

_MAX_SESSIONS: Final = 8
"""Limit per process. An application has few streams, but each batch job may have a txnAppId of its own."""


@dataclass(frozen=True, slots=True)
class CommitSettings:
    """The settings of a write that a driver needs. ``producer``: the options of the rows' producer. ``topic``: the
    ledger's topic.

    Ledger entry, ledger partition and all transactional ids derive from ``name``, which is stable across restarts and
    unique per write: a query's transactionalIdPrefix, a batch write's txnAppId. ``query_name``: the name of a streaming
    query, for people; "" if it has none.
    """

    producer: ProducerConfig
    name: str
    topic: str
    query_name: str = ""

    def advice(self, kind: WriteKind, progress: Progress) -> str:
        """The advice for a write that failed."""
        timeout = f"kafka.transaction.timeout.ms={self.producer.transaction_timeout_ms}"
        return ADVICE[kind, progress].format(timeout=timeout)

    def command(self, action: str) -> str:
        """The shell command with which an operator does what a driver could not."""
        name = self.name[:-1] + r"\*" if action == "forget" and self.name.endswith("*") else self.name
        return (
            f"spark-kafka-sink transactions {action} {server_options(self.producer)} {option('--prefix', name)} "
            f"{option('--ledger-topic', self.topic)}"
        )


class Session:
    """The connections, the ledger and what was planned last.

    ``planned``: the entries of the last planning in this process, and ``planned_driver``: the identity that it passed
    to commit; both None before the first planning. ``sweeps`` counts how often the transactions that earlier processes
    left open have been aborted. ``max_entry_bytes`` is the largest record that the ledger's topic takes, if it is
    known.
    """

    def __init__(self, settings: CommitSettings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self.cluster = Cluster(settings.producer, clock)
        self.committer = Committer(self.cluster, DRIVER_TIMEOUT_MS)
        self.ledger = Ledger(self.cluster, settings.name, ledger_partitions(settings.name, settings.topic))
        self.planned: Mapping[str, Entry] | None = None
        self.planned_driver: DriverIdentity | None = None
        self.sweeps = 0
        self.max_entry_bytes: int | None = None

    def close(self) -> None:
        self.cluster.close()

    def deadline(self, timeout_ms: float) -> float:
        return self.clock.now() + timeout_ms

    def verify_ledger(self, deadline: float) -> None:
        """Creates the ledger's topic, or checks its settings."""
        found = ensure_ledger(self.cluster, self.settings.topic, deadline)
        self.ledger.partitions = ledger_partitions(self.settings.name, self.settings.topic, found.partitions)
        self.max_entry_bytes = found.max_message_bytes

    def catch_up(self, deadline: float) -> float:
        """Reads the ledger before the driver id is initialised. Returns ``deadline`` extended by the time it took: a
        long log is read once."""
        began = self.clock.now()
        self.ledger.read(deadline)
        return deadline + self.clock.now() - began

    def read_ledger(self, driver: DriverIdentity, deadline: float) -> LedgerView:
        """The ledger with everything acknowledged before ``driver`` was initialised. Takes one Fetch if the batch
        planned last in this process is done and no other driver came between.
        """
        if self.planned_driver is not None:
            view = self.ledger.read(deadline)
            if view.continues(self.planned_driver, driver.identity):
                return view
        return self.ledger.read_acknowledged(self.clock.epoch_ms(), deadline)

    def init_driver(self, deadline: float) -> DriverIdentity:
        """InitProducerId of the driver id. It fences every earlier driver of this name, so that none can decide
        anything more.
        """
        unknown = TransactionalIdentity(driver_id(self.settings.name), *NO_IDENTITY, END_TXN_V1)
        return DriverIdentity(self._init_producer_id(unknown, deadline))

    def bump_driver_epoch(self, driver: DriverIdentity, deadline: float) -> DriverIdentity | None:
        """Fences the run that has ``driver``, and no other run (KIP-360). None if another driver has fenced it already.

        EndTxn comes first, because while a transaction is open InitProducerId aborts it and is then refused.
        InitProducerId is called twice, because after an EndTxn of transactions v2, which bumped the epoch, the first
        call returns the run's own epoch once more.
        """
        (ended,) = self.committer.end([(driver.identity, False)], deadline - self.clock.now())
        if ended.verdict is EndVerdict.UNDECIDED:
            raise ended.error or KafkaError(f"{ended.verdict.value}: {driver.identity}")
        identity = ended.identity or driver.identity
        try:
            for _ in range(2):
                identity = self._init_producer_id(identity, deadline)
        except ProducerFencedError:
            return None
        return DriverIdentity(identity)

    def record(self, driver: DriverIdentity, entry: Entry, deadline: float, latest_ms: float = NEVER) -> DriverIdentity:
        return self.record_write(driver, entry_write(self.settings.name, entry), deadline, latest_ms)

    def record_write(
        self, driver: DriverIdentity, write: LedgerWrite, deadline: float, latest_ms: float = NEVER
    ) -> DriverIdentity:
        """Commits ``write`` in a transaction of the driver, which proves that the driver is not fenced. Returns the
        identity of its next transaction. ``latest_ms``: the time (epoch ms) from which on no EndTxn is sent.

        Raises ``NotDecidedError`` if the write is not committed and never will be. After any other error it may or may
        not be committed; only a reader with a newer driver identity can find out.
        """
        name = driver.identity.transactional_id
        try:
            driver = self.in_own_epoch(driver, deadline)
            parts = self._append(driver.identity, self.ledger.parts(driver, write), deadline)
            if self.clock.now() >= deadline or self.clock.epoch_ms() >= latest_ms:
                raise KafkaTimeoutError(f"the time was up before EndTxn of {name} was sent")
        except ProducerFencedError as error:
            raise FencedRunError(fenced_message(name, error)) from error
        except KafkaError as error:
            raise NotDecidedError(str(error)) from error
        identity = driver.identity
        (outcome,) = self.committer.end([(identity, True)], deadline - self.clock.now(), latest_ms)
        if outcome.verdict is EndVerdict.GONE:
            error_type = ExactlyOnceError if outcome.repeated else FencedRunError
            raise error_type(fenced_message(name, outcome.error)) from outcome.error
        if outcome.identity is None:
            raise outcome.error or KafkaError(f"{outcome.verdict.value}: {identity}")
        if outcome.identity != identity:
            return DriverIdentity(outcome.identity)
        *markers, entries = parts  # transactions v1: the epoch stays, the sequences go on
        return DriverIdentity(
            identity,
            driver.sequence + len(entries.records),
            driver.marker_sequence + sum(len(p.records) for p in markers),
            outcome.unanswered,
        )

    def in_own_epoch(self, driver: DriverIdentity, deadline: float) -> DriverIdentity:
        """The driver with an epoch in which no EndTxn of an earlier transaction can arrive."""
        if not driver.end_unanswered:
            return driver
        return DriverIdentity(self._init_producer_id(driver.identity, deadline))

    def _append(self, identity: TransactionalIdentity, parts: list[LedgerPart], deadline: float) -> list[LedgerPart]:
        """Appends the parts in a transaction, which stays open."""
        if identity.end_txn_version < END_TXN_V2:
            partitions = [part.log.partition for part in parts]
            self.committer.add_partitions(identity, partitions, deadline - self.clock.now())
        now_ms = self.clock.epoch_ms()
        for part in parts:
            part.append(identity, now_ms, deadline)
        failpoints.hit("intent in the log")
        return parts

    def _init_producer_id(self, identity: TransactionalIdentity, deadline: float) -> TransactionalIdentity:
        return self.committer.init_producer_id(identity, deadline - self.clock.now())


def fenced_message(transactional_id: str, reason: object) -> str:
    return (
        f"Another driver has fenced {transactional_id}: a newer run of this query or job, or another one of "
        f"the same name (transactionalIdPrefix, or txnAppId: give each its own). If there is neither, its transaction "
        f"outlived {DRIVER_TIMEOUT_MS} ms, or a broker was cut off from the others. This run commits nothing more. "
        f"({reason})"
    )


_sessions: dict[tuple[int, CommitSettings], Session] = {}


def close_sessions() -> None:
    """Closes this process's sessions, so that the next one starts as in a new process."""
    for key in [key for key in _sessions if key[0] == os.getpid()]:
        _sessions.pop(key).close()


@contextmanager
def session_for(settings: CommitSettings) -> Iterator[Session]:
    """This process's session for ``settings``. It is closed if the block raises; beyond a limit the least recently used
    ones are closed."""
    key = os.getpid(), settings
    session = _sessions.pop(key, None) or Session(settings, SystemClock())
    try:
        yield session
    except BaseException:
        session.close()
        raise
    if (other := _sessions.pop(key, None)) is not None:  # another thread has used a session of its own meanwhile
        other.close()
    _sessions[key] = session
    for unused in [each for each in list(_sessions) if each[0] == key[0]][:-_MAX_SESSIONS]:
        if (least := _sessions.pop(unused, None)) is not None:
            least.close()
