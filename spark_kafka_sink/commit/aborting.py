"""The fourth kind of process: Spark has given a batch up. It may be wrong: commit may have decided before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_kafka_sink.commit.decisions import done
from spark_kafka_sink.commit.errors import ExactlyOnceError
from spark_kafka_sink.commit.fault_points import reach
from spark_kafka_sink.commit.finishing import finish
from spark_kafka_sink.commit.planning import init_all
from spark_kafka_sink.commit.session import CommitSettings, Session, session_for
from spark_kafka_sink.commit.values import Stage, TaskReport, task_id
from spark_kafka_sink.producer.committer import EndVerdict


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
        for entry in list(session.ledger.read(deadline).entries.values()):
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
    endings = [(each, False) for each in prepared if each is not None and each not in decided]
    outcomes = session.committer.end(endings, deadline - session.clock.now())
    failed = [outcome for outcome in outcomes if outcome.verdict is EndVerdict.UNDECIDED]
    if failed:
        raise ExactlyOnceError(
            f"{len(failed)} of {len(endings)} transactions under the prefix {session.settings.prefix} could not be "
            f"aborted: {failed[0].error}. The next run does it, or kafka.transaction.timeout.ms."
        )
    ids = [task_id(session.settings.prefix, task) for task, report in enumerate(reports) if report is None]
    init_all(session, ids, deadline)
    return sum(outcome.verdict is EndVerdict.ABORTED for outcome in outcomes)
