"""Planning, the first of four processes: before the tasks start it fences earlier drivers, reads the ledger, completes
decided batches and aborts what earlier runs left open."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import ConfigError, KafkaError
from spark_kafka_sink.exactly_once import failpoints
from spark_kafka_sink.exactly_once.commit import Completed, complete_intents
from spark_kafka_sink.exactly_once.decisions import (
    changes_target,
    check_kind,
    check_owner,
    check_target,
    decision_margin_ms,
    last_entry,
    task_action,
)
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError, PlanningError
from spark_kafka_sink.exactly_once.ledger_topic import broker_limit_ms
from spark_kafka_sink.exactly_once.session import CommitSettings, Session, session_for
from spark_kafka_sink.exactly_once.sweep import list_open, sweep
from spark_kafka_sink.exactly_once.values import (
    STRICT,
    Entry,
    LedgerStart,
    RecoveryMode,
    Target,
    WriteId,
    WriteKind,
    WritePlan,
    WriteRun,
)
from spark_kafka_sink.network.api_versions import FIND_COORDINATOR_OF_TRANSACTION, INIT_PRODUCER_ID_WITH_IDENTITY, every
from spark_kafka_sink.network.diagnosis import missing_apis, require
from spark_kafka_sink.network.rpc import Rpc

_log = logging.getLogger("spark_kafka_sink.exactly_once")

_SWEEPS: Final = 2
"""The number of sweeps in a process. Two, because a transaction whose coordinator moves during the first listing may be
in no broker's response."""


def plan_write(
    settings: CommitSettings,
    write_id: WriteId | None = None,
    ledger_start: LedgerStart = STRICT,
    query: str | None = None,
    target: Target | None = None,
) -> WritePlan:
    """Plans a write in at most max.block.ms. Raises ``PlanningError``.

    ``write_id``: None for a micro-batch, whose number only tasks know. ``query``: the stream's id, None if only tasks
    know it, or if no other query can have the name. ``target``: the stream's target.
    """
    try:
        with session_for(settings) as session:
            deadline = session.deadline(settings.producer.max_block_ms)
            state = _plan(session, write_id, ledger_start, query, deadline)
            plan = WritePlan(
                run=WriteRun(settings.name, session.ledger.partitions, state.driver, bool(state.entries)),
                entries=state.entries,
                lost=state.lost,
                write_id=write_id,
                ledger_start=ledger_start,
                max_entry_bytes=session.max_entry_bytes,
                forget=settings.command("forget"),
                query_name=settings.query_name,
            )
            if write_id is None:
                _warn_of_target(settings.name, last_entry(state.entries), target)
            else:
                task_action(plan, write_id, 0)  # what each task would refuse
            return plan
    except KafkaError as error:
        raise PlanningError(f"Exactly-once write under the name {settings.name} cannot start: {error}") from error


def _plan(
    session: Session, write_id: WriteId | None, ledger_start: LedgerStart, query: str | None, deadline: float
) -> Completed:
    kind = WriteKind.MICRO_BATCH if write_id is None else write_id.kind
    if session.planned is None:
        require_transactions(session.cluster, session.settings.producer, deadline)
        session.verify_ledger(deadline)
        _check_timeout(session, deadline)
    if query is not None or not session.planned:
        deadline = session.catch_up(deadline)
    # Before the driver id is initialised, because that would fence the other query.
    check_kind(session.settings.name, kind, session.ledger.view.entries, session.settings.command("forget"))
    if query is not None:
        _refuse_replaced(session, query, ledger_start)
    listing = None if session.sweeps >= _SWEEPS else list_open(session, deadline)
    state = _complete(session, kind, ledger_start, deadline)
    if write_id is not None:
        check_target(write_id, state.entries.get(write_id.query))
        if not ledger_start.trusts(RecoveryMode.CHECKPOINT, write_id.number):
            _warn_of_unknown_version(session, write_id, state.entries)
    if listing is None and not _was_committed(session.planned, state.entries):
        listing = list_open(session, deadline)
        state = _complete(session, kind, ledger_start, deadline)
    # Without an entry this may be the wrong ledger: the open transactions may be decided in another one.
    if listing is not None and state.entries:
        sweep(session, listing, state.driver, deadline)
        session.sweeps += 1
    session.planned, session.planned_driver = state.entries, state.driver
    failpoints.hit("planned")
    return state


def _complete(session: Session, kind: WriteKind, ledger_start: LedgerStart, deadline: float) -> Completed:
    driver = session.init_driver(deadline)
    failpoints.hit("driver initialised")
    entries = session.read_ledger(driver, deadline).entries
    check_kind(session.settings.name, kind, entries, session.settings.command("forget"))
    accepted = {query for query, entry in entries.items() if ledger_start.trusts(RecoveryMode.LEDGER, entry.number)}
    completed = complete_intents(session, driver, entries, deadline, accepted)
    # Not left to commit: abort knows the run by the identity in its plan.
    return replace(completed, driver=session.in_own_epoch(completed.driver, deadline))


def _refuse_replaced(session: Session, query: str, ledger_start: LedgerStart) -> None:
    """Raises ``ExactlyOnceError`` if the name belongs to another query. That query's intent is completed first."""
    settings, entries = session.settings, session.ledger.view.entries
    last = last_entry(entries)
    if last is None or last.must_be_completed:
        return
    try:
        check_owner(settings.name, query, entries, ledger_start, settings.query_name)
    except ExactlyOnceError as error:
        raise ExactlyOnceError(
            f"{error} (The query's id is that of the checkpoint which the driver finds at checkpointLocation in its "
            "own file system. If the query's is elsewhere, write checkpointLocation with its scheme.)"
        ) from None


def _warn_of_target(name: str, last: Entry | None, target: Target | None) -> None:
    if last is not None and changes_target(last, target):
        _log.warning(
            "The last batch under the name %s, %s, was written to %s, and the next one goes to %s.",
            name,
            last,
            last.target,
            target,
        )


def _warn_of_unknown_version(session: Session, write_id: WriteId, entries: Mapping[str, Entry]) -> None:
    """Warns of a version above 0 without an entry. Such a version is seldom the first one, so it may have been written
    before."""
    if write_id.kind is not WriteKind.VERSION or write_id.number == 0 or write_id.query in entries:
        return
    _log.warning(
        "No entry for txnAppId %s in ledgerTopic %s. Fine if this is its first run; otherwise the ledger was lost or "
        "ledgerTopic has changed, and this run may write rows twice.",
        write_id.query,
        session.settings.topic,
    )


def _was_committed(before: Mapping[str, Entry] | None, entries: Mapping[str, Entry]) -> bool:
    """Whether the batch planned last in this process has been committed since. If so, it left no transaction open."""
    if before is None:
        return False
    changed = [entry for query, entry in entries.items() if before.get(query) != entry]
    return len(changed) == 1 and changed[0].is_done


def _check_timeout(session: Session, deadline: float) -> None:
    timeout_ms = session.settings.producer.transaction_timeout_ms
    margin = decision_margin_ms(timeout_ms)
    if timeout_ms <= margin:
        raise ConfigError([
            f"kafka.transaction.timeout.ms is {timeout_ms}, and a decision alone may take {margin}. It must also "
            "cover the time in which a task writes its rows: leave it out (the default is 900000, 15 minutes), or "
            "set it to at least 60000."
        ])  # fmt: skip
    limit = broker_limit_ms(session.cluster, deadline)
    if limit is not None and timeout_ms > limit:
        raise ConfigError([
            f"kafka.transaction.timeout.ms is {timeout_ms}, the brokers allow up to {limit} (their "
            f"transaction.max.timeout.ms): set it to {limit} or less."
        ])  # fmt: skip


TRANSACTION_APIS: Final = (
    ("find_coordinator", FIND_COORDINATOR_OF_TRANSACTION),
    ("init_producer_id", INIT_PRODUCER_ID_WITH_IDENTITY),
    ("add_partitions_to_txn", every("add_partitions_to_txn")),
    ("end_txn", every("end_txn")),
)
"""The APIs of transactions by kio's names, with the versions that exactly-once needs."""


def require_transactions(rpc: Rpc, config: ProducerConfig, deadline: float) -> None:
    """Raises ``ExactlyOnceError`` if the brokers lack an API of transactions, and ``UnsupportedVersionError`` if they
    lack what the options of the producers need.
    """
    rpc.await_brokers(deadline)
    versions = rpc.any_api_versions()
    if versions is None:  # the connection was just lost; the first request fails with what is missing
        return
    if missing := list(map(str, missing_apis(versions, TRANSACTION_APIS))):
        raise ExactlyOnceError(
            f"These brokers lack APIs of transactions that exactly-once needs: {'; '.join(missing)}. Use brokers (or a "
            "tier of the service) that have them, or deliveryGuarantee=at-least-once."
        )
    require(config, versions)
