"""Aborting what earlier runs and attempts have left open: it would hold read_committed readers up until it times out.

The order is what makes it safe: list what is open, with producer id and epoch; take the fence; read the ledger and
finish what stands; then end exactly what was listed. What was listed before the fence belongs to runs with an older
one: either their intent is in what was read, or they can never have one. InitProducerId instead would also hit what a
successor has prepared and decided meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import ModuleType
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import UnsupportedVersionError
from spark_kafka_sink.exactly_once.cluster import BrokerGoneError, Cluster, CodeAt, Question
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.session import Session
from spark_kafka_sink.exactly_once.values import DriverIdentity
from spark_kafka_sink.transactions.committer import EndVerdict
from spark_kafka_sink.transactions.values import PreparedTransaction

OPEN: Final = "Ongoing"


class Listed(NamedTuple):
    """A task's transaction as its coordinator describes it."""

    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    started_at: int = -1

    @property
    def is_open(self) -> bool:
        return self.state == OPEN


class Listing(NamedTuple):
    transactions: tuple[Listed, ...]


def list_open(session: Session, deadline: float) -> Listing:
    return list_transactions(session, (OPEN,), deadline)


def list_transactions(session: Session, states: tuple[str, ...], deadline: float) -> Listing:
    """The tasks' ids of exactly this prefix in these states (all: ``()``), whatever run or attempt they are of."""
    pattern = re.compile(re.escape(session.settings.prefix) + r"-\d+(\.\d+)?")
    return list_matching(session.cluster, pattern, states, deadline)


def list_matching(cluster: Cluster, pattern: re.Pattern[str], states: tuple[str, ...], deadline: float) -> Listing:
    """The ids that match as a whole, in these states (all: ``()``)."""
    found: list[Listed] = []
    try:
        for node in cluster.node_ids(deadline):
            ours = [each for each in _listed_by(cluster, node, states, deadline) if pattern.fullmatch(each)]
            found += _described(cluster, node, ours, deadline) if ours else []
    except BrokerGoneError:  # its transactions are coordinated elsewhere now
        return list_matching(cluster, pattern, states, deadline)
    return Listing(tuple(each for each in found if not states or each.state in states))


def list_ids(cluster: Cluster, deadline: float) -> frozenset[str]:
    """Every transactional id that the brokers have not forgotten."""
    try:
        nodes = cluster.node_ids(deadline)
        return frozenset(each for node in nodes for each in _listed_by(cluster, node, (), deadline))
    except BrokerGoneError:
        return list_ids(cluster, deadline)


def sweep(session: Session, listing: Listing, driver: DriverIdentity, deadline: float) -> int:
    """Under the fence, with nothing half done any more: aborts what was listed; says how much of it was still open."""
    return len(abort_all(session, left_open(listing, driver), deadline))


def left_open(listing: Listing, driver: DriverIdentity) -> list[PreparedTransaction]:
    """What was open when it was listed."""
    version = driver.identity.end_txn_version
    return [PreparedTransaction(*each[:3], version) for each in listing.transactions if each.is_open]


def abort_all(
    session: Session, prepared: Iterable[PreparedTransaction], deadline: float
) -> frozenset[PreparedTransaction]:
    """Exactly these, if they are open; gives those that were."""
    asked = list(prepared)
    outcomes = session.committer.abort(asked, deadline - session.clock.now())
    failed = [outcome for outcome in outcomes if outcome.verdict is EndVerdict.UNDECIDED]
    if failed:
        raise ExactlyOnceError(
            f"{len(failed)} of {len(asked)} transactions under the name {session.settings.name} could not be "
            f"aborted: {failed[0].error}. {session.settings.successor}`{session.settings.command('abort')}` does it, "
            "or kafka.transaction.timeout.ms."
        )
    return frozenset(outcome.prepared for outcome in outcomes if outcome.verdict is EndVerdict.ABORTED)


def _listed_by(cluster: Cluster, node: int, states: tuple[str, ...], deadline: float) -> list[str]:
    def make(module: ModuleType, version: int) -> Any:
        return module.ListTransactionsRequest(state_filters=states, producer_id_filters=())

    def codes(body: Any) -> list[CodeAt]:
        return [CodeAt("ListTransactions", body.error_code)]

    try:
        body = cluster.ask_node(node, Question("list_transactions", (0, 1), make, codes), deadline)
    except UnsupportedVersionError as error:
        raise ExactlyOnceError(
            "These brokers cannot list transactions (Kafka before 3.0), so that what a dead run has left open cannot "
            "be aborted. Use deliveryGuarantee=at-least-once, or newer brokers."
        ) from error
    return [each.transactional_id for each in body.transaction_states]


def _described(cluster: Cluster, node: int, ids: list[str], deadline: float) -> list[Listed]:
    """By the broker that listed them, which coordinates them; one that has moved meanwhile is left out."""

    def make(module: ModuleType, version: int) -> Any:
        return module.DescribeTransactionsRequest(transactional_ids=tuple(ids))

    def codes(body: Any) -> list[CodeAt]:
        return [CodeAt("DescribeTransactions", ErrorCode.none) for _ in body.transaction_states]

    body = cluster.ask_node(node, Question("describe_transactions", (0, 0), make, codes), deadline)
    return [
        Listed(
            each.transactional_id,
            int(each.producer_id),
            int(each.producer_epoch),
            each.transaction_state,
            int(each.transaction_start_time),
        )
        for each in body.transaction_states
        if each.error_code is ErrorCode.none
    ]
