"""The fourth kind of process: Spark has given a batch up. It may be wrong: commit may have decided before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_kafka_sink.commit.decisions import done
from spark_kafka_sink.commit.fault_points import reach
from spark_kafka_sink.commit.finishing import finish
from spark_kafka_sink.commit.session import CommitSettings, Session, session_for
from spark_kafka_sink.commit.sweeping import abort_all, init_all, list_transactions
from spark_kafka_sink.commit.values import Stage, TaskReport, task_id
from spark_kafka_sink.sender.transactions.values import PreparedTransaction


@dataclass(frozen=True, slots=True)
class AbortOutcome:
    """``committed``: batches whose intent stood, so that they were committed. ``aborted``: transactions ended."""

    committed: tuple[str, ...]
    aborted: int


def abort_batch(settings: CommitSettings, reports: Sequence[TaskReport | None]) -> AbortOutcome:
    """Under a fence of its own: finish what was decided, abort everything else these tasks left open.

    ``reports``: one for each task, None for those that failed. Within delivery.timeout.ms.
    """
    with session_for(settings) as session:
        deadline = session.deadline(settings.producer.delivery_timeout_ms)
        driver = session.take_fence(deadline)
        reach("abort fenced")
        committed = []
        decided: set[object] = set()
        for entry in list(session.read_ledger(driver, deadline).entries.values()):
            if entry.stage is Stage.DONE:
                continue
            decided.update(share.prepared for share in entry.tasks)
            if not finish(session, entry, deadline):
                driver = session.record(driver, done(entry), deadline)
                committed.append(f"batch {entry.number} of {entry.query}")
        aborted = _abort(session, reports, decided, deadline)
        return AbortOutcome(tuple(committed), aborted)


def _abort(session: Session, reports: Sequence[TaskReport | None], decided: set[object], deadline: float) -> int:
    prepared = [report.share.prepared for report in reports if report is not None]
    aborted = abort_all(session, [each for each in prepared if each is not None and each not in decided], deadline)
    init_all(session, _unreported(session, reports, decided, deadline), deadline)
    return aborted


def _unreported(
    session: Session, reports: Sequence[TaskReport | None], decided: set[object], deadline: float
) -> list[str]:
    """The ids of attempts that told nothing: they may have initialised without having written yet."""
    if not session.settings.per_attempt:
        return [task_id(session.settings.prefix, task) for task, report in enumerate(reports) if report is None]
    told = {report.share.prepared for report in reports if report is not None} | decided
    names = {each.transactional_id for each in told if isinstance(each, PreparedTransaction)}
    listed = list_transactions(session, (), deadline).transactions or ()
    return [each.transactional_id for each in listed if each.transactional_id not in names]
