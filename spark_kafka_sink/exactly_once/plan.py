"""The first kind of process: before the tasks start, with the fence in hand, it reads the ledger and finishes what
stands half done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_sink.errors import ConfigError, KafkaError
from spark_kafka_sink.exactly_once import steps
from spark_kafka_sink.exactly_once.complete import Completed, complete_intents
from spark_kafka_sink.exactly_once.decisions import check_target, decision_margin_ms
from spark_kafka_sink.exactly_once.errors import PlanningError
from spark_kafka_sink.exactly_once.ledger_topic import broker_limit_ms
from spark_kafka_sink.exactly_once.session import CommitSettings, Session, session_for
from spark_kafka_sink.exactly_once.sweep import list_open, sweep
from spark_kafka_sink.exactly_once.values import STRICT, Entry, EntryState, LedgerStart, WriteId, WritePlan


@dataclass(frozen=True, slots=True)
class PlanningRequest:
    """``write_id`` None: the tasks know it. ``ledger_start``: ledgerStart."""

    settings: CommitSettings
    write_id: WriteId | None = None
    ledger_start: LedgerStart = STRICT


def plan_write(request: PlanningRequest) -> WritePlan:
    """Fence, ledger, and nothing left half done; within max.block.ms. Raises ``PlanningError``."""
    try:
        with session_for(request.settings) as session:
            return _plan(session, request, session.deadline(request.settings.producer.max_block_ms))
    except KafkaError as error:
        raise PlanningError(
            f"Exactly-once write under the name {request.settings.name} cannot start: {error}"
        ) from error


def _plan(session: Session, request: PlanningRequest, deadline: float) -> WritePlan:
    if session.planned is None:
        session.verify_ledger(deadline)
        _check_timeout(session, deadline)
        if not session.settings.per_attempt:
            deadline = session.catch_up(deadline)
    listed = None if session.swept else list_open(session, deadline)
    standing = _take_stock(session, deadline)
    if request.write_id is not None:
        check_target(request.write_id, standing.entries.get(request.write_id.query))
    if listed is None and not _moved_on(session.planned, standing.entries):
        listed = list_open(session, deadline)
        standing = _take_stock(session, deadline)
    # Without an entry this may be the wrong ledger, and what is open may be decided in another one.
    if listed is not None and standing.entries:
        sweep(session, listed, standing.driver, deadline)
        session.swept = True
    session.planned, session.handed = standing.entries, standing.driver
    steps.reach("planned")
    return WritePlan(
        name=session.settings.name,
        prefix=session.settings.prefix,
        ledger=session.ledger.partitions,
        driver=standing.driver,
        entries=standing.entries,
        lost=standing.lost,
        write_id=request.write_id,
        ledger_start=request.ledger_start,
    )


def _take_stock(session: Session, deadline: float) -> Completed:
    """A new fence, what the ledger says under it, and nothing of that half done any more."""
    driver = session.init_driver(deadline)
    steps.reach("driver initialised")
    if session.settings.per_attempt:
        return Completed(driver, {}, {})  # its name is fresh: the ledger has nothing under it
    return complete_intents(session, driver, session.read_ledger(driver, deadline).entries, deadline)


def _moved_on(before: Mapping[str, Entry] | None, entries: Mapping[str, Entry]) -> bool:
    """Whether the batch that this process planned last has been committed since: then nothing of it is open."""
    if before is None:
        return False
    changed = [entry for query, entry in entries.items() if before.get(query) != entry]
    return len(changed) == 1 and changed[0].state is EntryState.DONE


def _check_timeout(session: Session, deadline: float) -> None:
    asked = session.settings.producer.transaction_timeout_ms
    margin = decision_margin_ms(asked)
    if asked <= margin:
        raise ConfigError(
            [
                f"kafka.transaction.timeout.ms is {asked}, and a decision may take {margin}: set it to more than "
                f"{margin}."
            ]
        )
    limit = broker_limit_ms(session.cluster, deadline)
    if limit is not None and asked > limit:
        raise ConfigError(
            [
                f"kafka.transaction.timeout.ms is {asked}, the brokers allow up to {limit} (their "
                f"transaction.max.timeout.ms): set it to {limit} or less."
            ]
        )
