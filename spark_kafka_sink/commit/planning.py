"""The first kind of process: before the tasks start, with the fence in hand, it reads the ledger and finishes what
stands half done."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from spark_kafka_sink.accumulator.batch import NO_IDENTITY
from spark_kafka_sink.commit.cluster import CodeAt, Question
from spark_kafka_sink.commit.decisions import done
from spark_kafka_sink.commit.errors import ExactlyOnceError, PlanningError
from spark_kafka_sink.commit.fault_points import reach
from spark_kafka_sink.commit.finishing import finish
from spark_kafka_sink.commit.ledger_topic import broker_limit_ms
from spark_kafka_sink.commit.session import CommitSettings, Session, session_for
from spark_kafka_sink.commit.values import Entry, Stage, Unit, WritePlan, task_id
from spark_kafka_sink.errors import ConfigError, KafkaError, UnsupportedVersionError


@dataclass(frozen=True, slots=True)
class PlanningRequest:
    """``unit`` None: the tasks know it. ``trust_checkpoint``: ledgerStart=trust-checkpoint."""

    settings: CommitSettings
    unit: Unit | None = None
    trust_checkpoint: bool = False


def plan_write(request: PlanningRequest) -> WritePlan:
    """Fence, ledger, and nothing left half done; within max.block.ms. Raises ``PlanningError``."""
    try:
        with session_for(request.settings) as session:
            return _plan(session, request, session.deadline(request.settings.producer.max_block_ms))
    except KafkaError as error:
        raise PlanningError(
            f"Exactly-once write under the prefix {request.settings.prefix} cannot start: {error}"
        ) from error


def _plan(session: Session, request: PlanningRequest, deadline: float) -> WritePlan:
    if session.planned is None:
        session.verify_ledger(deadline)
        _check_timeout(session, deadline)
    driver = session.take_fence(deadline)
    view = session.ledger.read(deadline)
    entries = dict(view.entries)
    lost: dict[str, frozenset[int]] = {}
    for query, entry in entries.items():
        if entry.stage is Stage.DONE:
            continue
        missing = finish(session, entry, deadline)
        if missing:
            lost[query] = missing
        else:
            entries[query] = done(entry)
            driver = session.record(driver, entries[query], deadline)
    if not _moved_on(session.planned, entries):
        sweep(session, entries, deadline)
    session.planned = entries
    reach("planned")
    place = session.ledger.place
    return WritePlan(session.settings.prefix, place, driver, entries, lost, request.unit, request.trust_checkpoint)


def sweep(session: Session, entries: Mapping[str, Entry], deadline: float) -> None:
    """Abort what runs of this prefix have left open without an intent: it would hold read_committed readers up."""
    ids = _open_transactions(session, deadline)
    if ids is None:
        width = max((len(entry.tasks) for entry in entries.values()), default=0)
        ids = [task_id(session.settings.prefix, task) for task in range(width)]
    init_all(session, ids, deadline)


def init_all(session: Session, ids: list[str], deadline: float) -> None:
    """InitProducerId on each: aborts what was open, and fences whoever had it open."""
    outcomes = session.committer.take_fences(dict.fromkeys(ids, NO_IDENTITY), deadline - session.clock.now())
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if failed:
        raise ExactlyOnceError(
            f"{len(failed)} transactions that an earlier attempt left open (such as {failed[0].transactional_id}) "
            f"could not be aborted: {failed[0].error}"
        )


def _moved_on(before: Mapping[str, Entry] | None, entries: Mapping[str, Entry]) -> bool:
    """Whether the batch that this process planned last has been committed since: then nothing of it is open."""
    if before is None:
        return False
    changed = [entry for query, entry in entries.items() if before.get(query) != entry]
    return len(changed) == 1 and changed[0].stage is Stage.DONE


def _open_transactions(session: Session, deadline: float) -> list[str] | None:
    """The tasks' ids under this prefix that have a transaction open; None when the brokers cannot tell (before 3.0)."""
    pattern = re.compile(re.escape(session.settings.prefix) + r"-\d+")

    def make(module: ModuleType, version: int) -> Any:
        return module.ListTransactionsRequest(state_filters=("Ongoing",), producer_id_filters=())

    def codes(body: Any) -> list[CodeAt]:
        return [CodeAt("ListTransactions", body.error_code)]

    question = Question("list_transactions", (0, 1), make, codes)
    try:
        answers = [session.cluster.ask_node(node, question, deadline) for node in session.cluster.node_ids(deadline)]
    except UnsupportedVersionError:
        return None
    return [
        each.transactional_id
        for answer in answers
        for each in answer.transaction_states
        if pattern.fullmatch(each.transactional_id)
    ]


def _check_timeout(session: Session, deadline: float) -> None:
    limit = broker_limit_ms(session.cluster, deadline)
    asked = session.settings.producer.transaction_timeout_ms
    if limit is not None and asked > limit:
        raise ConfigError(
            [
                f"kafka.transaction.timeout.ms is {asked}, the brokers allow up to {limit} (their "
                f"transaction.max.timeout.ms): set it to {limit} or less."
            ]
        )
