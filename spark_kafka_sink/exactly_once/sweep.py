"""Aborts the transactions that earlier runs and attempts left open, because read_committed readers wait for their end.

The order makes it safe: list the open transactions with producer id and epoch; initialise the driver id; read the
ledger and complete its intents; then abort exactly the listed ones. They belong to fenced runs: the intent of such a
run is in the ledger as read, or can never be committed. InitProducerId of their ids would also abort what a successor
prepared and decided meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import UnsupportedVersionError
from spark_kafka_sink.exactly_once.cluster import Cluster
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.session import Session
from spark_kafka_sink.exactly_once.values import DriverIdentity
from spark_kafka_sink.network.calls import BrokerGoneError, Call, CodeAt, Target
from spark_kafka_sink.producer.transactions.committer import EndVerdict
from spark_kafka_sink.producer.transactions.requests import transaction_key
from spark_kafka_sink.producer.transactions.values import PreparedTransaction

_OPEN: Final = "Ongoing"


class OpenTransaction(NamedTuple):
    """A task's transaction as its coordinator describes it. ``started_at``: epoch ms, -1 if unknown."""

    transactional_id: str
    producer_id: int
    epoch: int
    started_at: int = -1


def list_open(session: Session, deadline: float) -> list[OpenTransaction]:
    """The open transactions of tasks with exactly this prefix, whatever their run and attempt."""
    return list_matching(session.cluster, re.compile(re.escape(session.settings.prefix) + r"-\d+(\.\d+)?"), deadline)


def list_matching(cluster: Cluster, pattern: re.Pattern[str], deadline: float) -> list[OpenTransaction]:
    """Open transactions whose whole id matches."""
    found: list[OpenTransaction] = []
    try:
        for node in cluster.node_ids(deadline):
            ids = [each for each in _listed_by(cluster, node, (_OPEN,), deadline) if pattern.fullmatch(each)]
            found += _described(cluster, node, ids, deadline) if ids else []
    except BrokerGoneError:  # another broker coordinates its transactions now
        return list_matching(cluster, pattern, deadline)
    return found


def list_ids(cluster: Cluster, deadline: float) -> frozenset[str]:
    """Every transactional id that the brokers know."""
    try:
        nodes = cluster.node_ids(deadline)
        return frozenset(each for node in nodes for each in _listed_by(cluster, node, (), deadline))
    except BrokerGoneError:
        return list_ids(cluster, deadline)


def sweep(session: Session, listing: Sequence[OpenTransaction], driver: DriverIdentity, deadline: float) -> int:
    """Aborts what was listed before ``driver`` was initialised. Returns how many were still open."""
    return len(abort_all(session, left_open(listing, driver), deadline))


def left_open(listing: Iterable[OpenTransaction], driver: DriverIdentity) -> list[PreparedTransaction]:
    version = driver.identity.end_txn_version
    return [PreparedTransaction(*each[:3], version) for each in listing]


def abort_all(
    session: Session, prepared: Iterable[PreparedTransaction], deadline: float
) -> frozenset[PreparedTransaction]:
    """Aborts the transactions. Returns those that were still open."""
    transactions = list(prepared)
    outcomes = session.committer.abort(transactions, deadline - session.clock.now())
    failed = [outcome for outcome in outcomes if outcome.verdict is EndVerdict.UNDECIDED]
    if failed:
        settings = session.settings
        raise ExactlyOnceError(
            f"{len(failed)} of {len(transactions)} transactions under the name {settings.name} could not be aborted: "
            f"{failed[0].error}. {settings.next_run}`{settings.command('abort')}` does it, or "
            "kafka.transaction.timeout.ms."
        )
    return frozenset(outcome.prepared for outcome in outcomes if outcome.verdict is EndVerdict.ABORTED)


def _listed_by(cluster: Cluster, node: int, states: tuple[str, ...], deadline: float) -> list[str]:
    def make(module: ModuleType, version: int) -> Any:
        return module.ListTransactionsRequest(state_filters=states, producer_id_filters=())

    def codes(body: Any) -> list[CodeAt]:
        return [CodeAt("ListTransactions", body.error_code)]

    try:
        body = cluster.call(Call("list_transactions", (0, 1), node, make, codes), deadline)
    except UnsupportedVersionError as error:
        raise ExactlyOnceError(
            "These brokers cannot list transactions (Kafka before 3.0), so transactions that a dead run left open "
            "cannot be aborted. Use deliveryGuarantee=at-least-once, or newer brokers."
        ) from error
    return [each.transactional_id for each in body.transaction_states]


def _described(cluster: Cluster, node: int, ids: list[str], deadline: float) -> list[OpenTransaction]:
    """Descriptions by the broker that listed the transactions, or by their coordinator if that has moved meanwhile."""
    described = list(_descriptions(cluster, node, ids, deadline))
    for index, each in enumerate(described):
        if each.error_code not in (ErrorCode.none, ErrorCode.transactional_id_not_found):
            (described[index],) = _descriptions(
                cluster, transaction_key(each.transactional_id), [each.transactional_id], deadline
            )
    return [
        OpenTransaction(
            each.transactional_id, int(each.producer_id), int(each.producer_epoch), int(each.transaction_start_time)
        )
        for each in described
        if each.error_code is ErrorCode.none and each.transaction_state == _OPEN
    ]


def _descriptions(cluster: Cluster, target: Target, ids: list[str], deadline: float) -> Sequence[Any]:
    """Descriptions by a coordinator, with retries, or by a node, with its errors."""
    accepted = (ErrorCode.none, ErrorCode.transactional_id_not_found)

    def make(module: ModuleType, version: int) -> Any:
        return module.DescribeTransactionsRequest(transactional_ids=tuple(ids))

    def codes(body: Any) -> list[CodeAt]:
        return [
            CodeAt(
                f"DescribeTransactions of {each.transactional_id}",
                ErrorCode.none if isinstance(target, int) or each.error_code in accepted else each.error_code,
            )
            for each in body.transaction_states
        ]

    body = cluster.call(Call("describe_transactions", (0, 0), target, make, codes), deadline)
    states: Sequence[Any] = body.transaction_states
    return states
