"""Aborts the transactions that earlier runs and attempts left open, because read_committed readers wait for their end.

The order makes it safe: list the open transactions with producer id and epoch; initialise the driver id; read the
ledger and complete its intents; then abort exactly the listed ones. They belong to fenced runs: the intent of such a
run is in the ledger as read, or can never be committed. InitProducerId of their ids would also abort what a successor
prepared and decided meanwhile.

Only readers need the sweep: a transaction that no intent names is never committed. On brokers that cannot list
transactions, such a transaction ends after transaction.timeout.ms (ADR 22).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import BrokerError, KafkaTimeoutError, NetworkError, UnsupportedVersionError
from spark_kafka_sink.exactly_once.committer import Cluster, EndVerdict
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.session import Session
from spark_kafka_sink.exactly_once.values import DriverIdentity, OpenTransaction, name_of_task
from spark_kafka_sink.network.api_versions import every
from spark_kafka_sink.network.calls import SOON_MS, BrokerGoneError, Call, Calls, CallTarget, CodeAt
from spark_kafka_sink.network.response_check import impossible
from spark_kafka_sink.producer.transaction_requests import PreparedTransaction, transaction_key

_log = logging.getLogger("spark_kafka_sink.exactly_once")

_OPEN: Final = "Ongoing"
_DESCRIBED: Final = (ErrorCode.none, ErrorCode.transactional_id_not_found)
_BRIEF_MS: Final = 2_000.0
_SHARE_OF_TIME: Final = 4
"""The listing may take this part of the time that is left, and the description as much, because no write depends on
them."""

_warned: set[str] = set()


class CannotListError(ExactlyOnceError):
    """The brokers do not list transactions, or do not describe the listed ones well enough."""


def list_open(session: Session, deadline: float) -> list[OpenTransaction]:
    """The open transactions of this name's tasks, from any run. Brokers that cannot list transactions yield none and a
    warning; correctness does not depend on this list."""
    name = session.settings.name
    try:
        return list_matching(session.cluster, lambda each: name_of_task(each) == name, deadline)
    except CannotListError as error:
        if name not in _warned:
            _warned.add(name)
            _log.warning(
                "%s. Transactions under %s that an earlier run left open are ended by the brokers after its "
                "kafka.transaction.timeout.ms. Until then readers with isolation.level=read_committed wait for them; "
                "no row is lost or written twice. Start a write again only when its earlier run has ended: its tasks "
                "may not learn that they were replaced, and end what this run has prepared.",
                error,
                name,
            )
        return []


def list_matching(cluster: Cluster, is_wanted: Callable[[str], bool], deadline: float) -> list[OpenTransaction]:
    """The open transactions with ids that are wanted. Raises ``CannotListError``, even if the brokers only take too
    long."""
    nodes, until = cluster.node_ids(deadline), _share(cluster, deadline)
    found: list[OpenTransaction] = []
    try:
        for node in nodes:
            ids = [
                transactional_id
                for transactional_id in _list_by(cluster, node, (_OPEN,), until)
                if is_wanted(transactional_id)
            ]
            found += _describe(cluster, node, ids, until) if ids else []
    except BrokerGoneError:  # another broker coordinates the id's transactions now
        return list_matching(cluster, is_wanted, deadline)
    return found


def list_ids(cluster: Cluster, deadline: float) -> frozenset[str]:
    """Every transactional id that the brokers know. Raises ``CannotListError``, even if they only take too long."""
    nodes, until = cluster.node_ids(deadline), _share(cluster, deadline)
    try:
        return frozenset(transactional_id for node in nodes for transactional_id in _list_by(cluster, node, (), until))
    except BrokerGoneError:
        return list_ids(cluster, deadline)


def _share(cluster: Cluster, deadline: float) -> float:
    now = cluster.now()
    return now + (deadline - now) / _SHARE_OF_TIME


def is_current(calls: Calls, driver: DriverIdentity) -> bool:
    """Whether the driver's id is as planning left it: no other process has initialised it since, and, under
    transactions v2, its own commit has not used it. True if no broker responds in two seconds.

    Call it before an InitProducerId of a task's id, which would end what another run has prepared under that id.
    """
    name, identity = driver.identity.transactional_id, driver.identity.identity
    until = calls.now() + _BRIEF_MS
    while True:
        try:
            found = _of_ids(calls.call(_describe_call(transaction_key(name), [name]), until), [name])[name]
        except (UnsupportedVersionError, BrokerError, NetworkError, KafkaTimeoutError):
            return True
        if found.error_code is not ErrorCode.none or identity == (found.producer_id, found.producer_epoch):
            return True
        # While a transaction is being completed, its id still has the last producer id.
        if not found.transaction_state.startswith("Prepare"):
            return False
        calls.pause(SOON_MS)


def ended_tasks(cluster: Cluster, prepared: Mapping[int, PreparedTransaction], deadline: float) -> list[int]:
    """The tasks whose transactions have ended. A transaction that no broker describes in two seconds counts as open."""
    ids: dict[CallTarget, list[str]] = {}
    for key in [transaction_key(transaction.transactional_id) for transaction in prepared.values()]:
        node = cluster.located(key)
        ids.setdefault(key if node is None else node.id, []).append(key.name)
    calls = [_describe_call(target, names) for target, names in ids.items()]
    cluster.run(calls, min(deadline, cluster.now() + _BRIEF_MS))
    bodies = [call.end.body for call in calls if call.end is not None and call.end.error is None]
    described = [state for body in bodies for state in body.transaction_states if impossible(state) is None]
    states = [state for state in described if state.error_code in _DESCRIBED]
    found = {state.transactional_id: _open_transaction(state).key if _is_open(state) else None for state in states}
    return [task for task, each in prepared.items() if found.get(each.transactional_id, each.key) != each.key]


def sweep(session: Session, listing: Sequence[OpenTransaction], driver: DriverIdentity, deadline: float) -> int:
    """Aborts the transactions that were listed before ``driver`` was initialised. Returns how many were still open."""
    return len(abort_all(session, left_open(listing, driver), deadline, driver))


def left_open(listing: Sequence[OpenTransaction], driver: DriverIdentity) -> list[PreparedTransaction]:
    version = driver.identity.end_txn_version
    return [PreparedTransaction(*transaction.key, version) for transaction in listing]


def abort_all(
    session: Session, prepared: Iterable[PreparedTransaction], deadline: float, driver: DriverIdentity | None = None
) -> frozenset[PreparedTransaction]:
    """Aborts the transactions, and returns those that were still open. Without ``driver`` it uses only EndTxn, and with
    ``driver`` InitProducerId, too. If another driver has replaced this one, the rest is left to the other driver."""
    transactions, committer = list(prepared), session.committer
    if driver and any(map(committer.aborts_by_init, transactions)) and not is_current(session.cluster, driver):
        return frozenset()
    timeout_ms = deadline - session.clock.now()
    if driver is None:
        outcomes = committer.end([(transaction, False) for transaction in transactions], timeout_ms)
    else:
        outcomes = committer.abort(transactions, timeout_ms)
    failed = [outcome for outcome in outcomes if outcome.verdict is EndVerdict.UNDECIDED]
    if failed:
        settings = session.settings
        raise ExactlyOnceError(
            f"{len(failed)} of {len(transactions)} transactions under the name {settings.name} could not be aborted: "
            f"{failed[0].error}. The next run under this name aborts them, or `{settings.command('abort')}`, or the "
            "brokers after kafka.transaction.timeout.ms."
        )
    verdicts = zip(transactions, outcomes, strict=True)
    return frozenset(each for each, outcome in verdicts if outcome.verdict is EndVerdict.ABORTED)


def _list_by(cluster: Cluster, node: int, states: tuple[str, ...], deadline: float) -> list[str]:
    def make(module: ModuleType, version: int) -> Any:
        return module.ListTransactionsRequest(state_filters=states, producer_id_filters=())

    def codes(body: Any) -> list[CodeAt]:
        return [CodeAt("ListTransactions", body.error_code)]

    try:
        body = cluster.call(Call("list_transactions", every("list_transactions"), node, make, codes), deadline)
    except KafkaTimeoutError as error:
        cluster.disconnect(error)
        raise CannotListError(f"These brokers do not list transactions in time ({error})") from error
    except (UnsupportedVersionError, BrokerError) as error:
        raise CannotListError(f"These brokers do not list transactions ({error})") from error
    return [state.transactional_id for state in body.transaction_states]


def _describe(cluster: Cluster, node: int, ids: list[str], deadline: float) -> list[OpenTransaction]:
    """Descriptions by the broker that listed the transactions, or by their coordinator if the coordinator has moved
    meanwhile."""
    try:
        described = _descriptions(cluster, node, ids, deadline)
        for name, each in described.items():
            if each.error_code not in _DESCRIBED:
                described |= _descriptions(cluster, transaction_key(name), [name], deadline)
    except BrokerGoneError:
        raise
    except KafkaTimeoutError as error:
        cluster.disconnect(error)
        raise CannotListError(f"These brokers list transactions, but do not describe them in time ({error})") from error
    except (UnsupportedVersionError, BrokerError, NetworkError) as error:
        raise CannotListError(f"These brokers list transactions, but do not describe them ({error})") from error
    return [_open_transaction(description) for description in described.values() if _is_open(description)]


def _is_open(described: Any) -> bool:
    return described.error_code is ErrorCode.none and bool(described.transaction_state == _OPEN)


def _open_transaction(described: Any) -> OpenTransaction:
    return OpenTransaction(
        described.transactional_id,
        int(described.producer_id),
        int(described.producer_epoch),
        int(described.transaction_start_time),
        tuple((str(topic.topic), tuple(map(int, topic.partitions))) for topic in described.topics),
    )


def _descriptions(cluster: Cluster, target: CallTarget, ids: list[str], deadline: float) -> dict[str, Any]:
    """Descriptions by a coordinator, with retries, or by a node, with its errors. Raises ``NetworkError`` if the
    response lacks one."""
    return _of_ids(cluster.call(_describe_call(target, ids), deadline), ids)


def _of_ids(body: Any, ids: Sequence[str]) -> dict[str, Any]:
    """The descriptions of exactly these ids, because the transactions of others are not this sink's to end."""
    described = {str(state.transactional_id): state for state in body.transaction_states}
    if missing := [id_ for id_ in ids if id_ not in described]:
        raise NetworkError(f"The DescribeTransactions response lacks {missing[0]}")
    if faults := [fault for description in described.values() if (fault := impossible(description)) is not None]:
        raise NetworkError(f"The DescribeTransactions response is impossible: {faults[0]}")
    return {id_: described[id_] for id_ in ids}


def _describe_call(target: CallTarget, ids: list[str]) -> Call:
    def make(module: ModuleType, version: int) -> Any:
        return module.DescribeTransactionsRequest(transactional_ids=tuple(ids))

    def codes(body: Any) -> list[CodeAt]:
        return [
            CodeAt(
                f"DescribeTransactions of {state.transactional_id}",
                ErrorCode.none if isinstance(target, int) or state.error_code in _DESCRIBED else state.error_code,
            )
            for state in body.transaction_states
        ]

    return Call("describe_transactions", every("describe_transactions"), target, make, codes)
