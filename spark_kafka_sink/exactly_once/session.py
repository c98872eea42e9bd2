"""What a process of the driver needs of the cluster, kept from one micro-batch to the next.

Nothing depends on its being kept: Spark ends idle processes after a minute, and whatever is remembered here is read
anew. One thread at a time; a fork starts without.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from spark_kafka_sink.clock import Clock, SystemClock
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import KafkaError, ProducerFencedError
from spark_kafka_sink.exactly_once.cluster import Cluster
from spark_kafka_sink.exactly_once.ledger import Ledger, record_decision
from spark_kafka_sink.exactly_once.ledger_format import entry_write
from spark_kafka_sink.exactly_once.ledger_topic import ensure_ledger, ledger_partitions
from spark_kafka_sink.exactly_once.ledger_view import LedgerView
from spark_kafka_sink.exactly_once.values import DRIVER_TIMEOUT_MS, DriverIdentity, Entry, driver_id
from spark_kafka_sink.model import NO_IDENTITY
from spark_kafka_sink.transactions.committer import Committer, EndVerdict
from spark_kafka_sink.transactions.values import PreparedTransaction


@dataclass(frozen=True, slots=True)
class CommitSettings:
    """``producer`` as for the rows; ``topic`` is the ledger's.

    ``name``: what ledger entry, ledger partition and driver id derive from; the same in every run, and of no other
    write. ``prefix``: what the tasks' transactional ids begin with. ``per_attempt``: each attempt of a task has an id
    of its own, as in a batch job that nobody replays.
    """

    producer: ProducerConfig
    name: str
    prefix: str
    topic: str
    per_attempt: bool = False

    @property
    def successor(self) -> str:
        """Who tidies up besides an operator: a batch job that nobody replays has no next run."""
        return "" if self.per_attempt else "The next run under this name, or "

    def command(self, action: str) -> str:
        """What an operator types to do by hand what a driver could not."""
        servers = ",".join(f"{host}:{port}" for host, port in self.producer.bootstrap_servers)
        return (
            f"spark-kafka-sink transactions {action} --bootstrap-server {servers} --prefix {self.name} "
            f"--commit-log-topic {self.topic}"
        )


class Session:
    """``planned``: the entries of the last planning in this process, ``handed``: the driver's identity that it gave to
    commit; None before the first. ``swept``: what earlier processes left open has been aborted."""

    def __init__(self, settings: CommitSettings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self.cluster = Cluster(settings.producer, clock)
        self.committer = Committer(
            replace(settings.producer, transaction_timeout_ms=DRIVER_TIMEOUT_MS), brokers=self.cluster
        )
        self.ledger = Ledger(self.cluster, settings.name, ledger_partitions(settings.name, settings.topic))
        self.planned: Mapping[str, Entry] | None = None
        self.handed: DriverIdentity | None = None
        self.swept = False
        self._verified = False

    def close(self) -> None:
        self.committer.__exit__(None, None, None)
        self.cluster.close()

    def deadline(self, timeout_ms: float) -> float:
        return self.clock.now() + timeout_ms

    def verify_ledger(self, deadline: float) -> None:
        """Once per session: settings of a topic do not change by themselves."""
        if not self._verified:
            partitions = ensure_ledger(self.cluster, self.settings.topic, deadline)
            self.ledger.partitions = ledger_partitions(self.settings.name, self.settings.topic, partitions)
            self._verified = True

    def catch_up(self, deadline: float) -> float:
        """Reads the ledger while the fence is still another's; gives the deadline of what follows, later by the time
        that this took: a log may be long, and nothing of what was read is lost by it."""
        began = self.clock.now()
        self.ledger.read(deadline)
        return deadline + self.clock.now() - began

    def read_ledger(self, driver: DriverIdentity, deadline: float) -> LedgerView:
        """Under the new fence, without missing anything that was acknowledged before. As a rule a kept session finds
        the batch it planned last done and nobody in between, which takes one Fetch."""
        if self.handed is not None and self.ledger.read(deadline).continues(self.handed, driver.identity):
            return self.ledger.view
        return self.ledger.read_acknowledged(self.clock.epoch_ms(), deadline)

    def init_driver(self, deadline: float) -> DriverIdentity:
        """From here on no other driver of this name can decide anything."""
        name = driver_id(self.settings.name)
        (outcome,) = self.committer.take_fences({name: NO_IDENTITY}, deadline - self.clock.now())
        if outcome.fence is None:
            raise outcome.error or KafkaError(f"No fence on {name}")
        return DriverIdentity(outcome.fence)

    def bump_driver_epoch(self, driver: DriverIdentity, deadline: float) -> DriverIdentity | None:
        """A newer epoch of this very fence, after which its run can decide nothing more; None when another driver has
        taken it since (KIP-360).

        EndTxn first: while a transaction is open InitProducerId fences it and then refuses, whoever it was. Twice:
        after an EndTxn of transactions version 2 the first only repeats the epoch that this gave to the run itself.
        """
        name, fence = driver.identity.transactional_id, driver.identity
        left = PreparedTransaction(name, *fence.identity, fence.end_txn_version)
        (ended,) = self.committer.end([(left, False)], deadline - self.clock.now())
        if ended.verdict is EndVerdict.UNDECIDED:
            raise ended.error or KafkaError(f"{ended.verdict.value}: {left}")
        fence = ended.fence or fence
        for _ in range(2):
            (taken,) = self.committer.take_fences({name: fence.identity}, deadline - self.clock.now())
            if taken.fence is None:
                if isinstance(taken.error, ProducerFencedError):
                    return None
                raise taken.error or KafkaError(f"No fence on {name}")
            fence = taken.fence
        return DriverIdentity(fence)

    def record(self, driver: DriverIdentity, entry: Entry, deadline: float) -> DriverIdentity:
        write = entry_write(self.settings.name, entry)
        return record_decision(self.ledger, self.committer, driver, write, self.clock, deadline)


_MOST_KEPT: Final = 8
"""Sessions a process keeps. The streams of one application are a few; each batch job has a name of its own."""

_sessions: dict[tuple[int, CommitSettings], Session] = {}


def close_sessions() -> None:
    """Closes what this process has kept: what follows goes on as in another one."""
    for key in [key for key in _sessions if key[0] == os.getpid()]:
        _sessions.pop(key).close()


@contextmanager
def session_for(settings: CommitSettings) -> Iterator[Session]:
    """This process's session; one that failed is closed and not used again. Those used longest ago are closed."""
    key = os.getpid(), settings
    session = _sessions.pop(key, None) or Session(settings, SystemClock())
    try:
        yield session
    except BaseException:
        session.close()
        raise
    _sessions[key] = session
    for other in [other for other in _sessions if other[0] == key[0]][:-_MOST_KEPT]:
        _sessions.pop(other).close()
