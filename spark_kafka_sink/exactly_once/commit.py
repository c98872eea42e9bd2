"""The third kind of process: all tasks have reported. It records the intent, which is the decision, and
carries it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once import steps
from spark_kafka_sink.exactly_once.complete import finish
from spark_kafka_sink.exactly_once.decisions import CommitOrder, commit_order, done
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError, LostRowsError, NotDecidedError
from spark_kafka_sink.exactly_once.session import CommitSettings, Session, session_for
from spark_kafka_sink.exactly_once.sweep import list_open, sweep
from spark_kafka_sink.exactly_once.values import DriverIdentity, Entry, EntryState, TaskReport

_NEWS_MS: Final = 2_000.0
_PAUSE_MS: Final = 100.0


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """``entry`` None: the batch was committed before. ``cleanup_failure``: what could not be cleaned up afterwards,
    with the command that does it, or "". ``recreated``: topics that were deleted before their rows were visible.
    """

    entry: Entry | None
    cleanup_failure: str = ""
    recreated: tuple[str, ...] = ()


def commit_batch(settings: CommitSettings, reports: Sequence[TaskReport]) -> CommitOutcome:
    """Everything becomes visible, within delivery.timeout.ms. Raises ``ExactlyOnceError``.

    Whatever it raises before the intent is committed, nothing is visible and the batch may be aborted; what it raises
    afterwards says that the batch is decided, and whoever reads the ledger next finishes it. Once every task's
    transaction is committed it raises nothing: what fails then concerns no reader.
    """
    with session_for(settings) as session:
        order = commit_order(reports, settings.producer.transaction_timeout_ms, session.clock.epoch_ms())
        entry = order.entry
        if entry is None:
            return CommitOutcome(None)
        deadline = session.deadline(settings.producer.delivery_timeout_ms)
        _refuse_remade(session, order.report, reports, deadline)
        steps.reach("before the intent")
        driver = _decide(session, order, deadline)
        steps.reach("intent committed")
        lost = finish(session, entry, deadline) if entry.state is EntryState.INTENT else None
        if lost:
            raise LostRowsError(_lost(order.report, lost))
    recreated: tuple[str, ...] = ()
    try:
        with session_for(settings) as session:
            recreated = _remade(session, reports, deadline)
            _tidy(session, driver, entry, deadline)
    except Exception as error:
        return CommitOutcome(entry, _untidied(settings, order.report, error), recreated)
    return CommitOutcome(entry, recreated=recreated)


def _remade(session: Session, reports: Sequence[TaskReport], deadline: float) -> tuple[str, ...]:
    """Topics that are not those any more that rows were written to. A broker may hear of a new topic a moment late."""
    written = {each for report in reports for each in report.topics}
    patience = min(deadline, session.deadline(_NEWS_MS))
    while written:
        ids = session.cluster.topic_ids(sorted({name for name, _ in written}), deadline)
        gone = tuple(sorted({name for name, topic_id in written if ids.get(name, topic_id) != topic_id}))
        if not gone or session.clock.now() >= patience:
            return gone
        session.cluster.pause(_PAUSE_MS)
    return ()


def _refuse_remade(session: Session, report: TaskReport, reports: Sequence[TaskReport], deadline: float) -> None:
    try:
        gone = _remade(session, reports, deadline)
    except KafkaError as error:
        raise ExactlyOnceError(
            f"{report.write_id} (name {report.name}) is not committed: no broker says whether its topics are still "
            f"those that its tasks wrote to: {error}. Start the query again: it writes the batch anew."
        ) from error
    if gone:
        raise ExactlyOnceError(_deleted(report, gone))


def _deleted(report: TaskReport, topics: Sequence[str]) -> str:
    return (
        f"{report.write_id} (name {report.name}) is not committed: topic {', '.join(topics)} was deleted (and perhaps "
        "made again) after its tasks wrote to it, and their rows are gone. Start the query again: it writes the batch "
        "anew."
    )


def _decide(session: Session, order: CommitOrder, deadline: float) -> DriverIdentity:
    """No EndTxn is sent after ``deadline``, or after the one that the oldest transaction gives."""
    if order.decide_by is not None:
        deadline = min(deadline, session.deadline(order.decide_by - session.clock.epoch_ms()))
    report, entry = order.report, order.entry
    assert entry is not None
    try:
        return session.record(report.driver, entry, deadline)
    except NotDecidedError as error:
        timeout_ms = session.settings.producer.transaction_timeout_ms
        raise ExactlyOnceError(
            f"{report.write_id} (name {report.name}) is not committed: {error}, by delivery.timeout.ms or by what "
            f"kafka.transaction.timeout.ms={timeout_ms} leaves the oldest transaction. Start the query again: it "
            "writes the batch anew."
        ) from error
    except ExactlyOnceError:
        raise
    except KafkaError as error:
        timeout_ms = session.settings.producer.transaction_timeout_ms
        raise ExactlyOnceError(
            f"{report.write_id} (name {report.name}) may be decided or not, no broker says which: {error}. Start the "
            "query again with the same checkpoint (or rerun the job with its txnAppId and txnVersion): it reads what "
            "is decided, and commits the batch or writes it anew. No decision is sent when the batch's oldest "
            f"transaction is about to end by kafka.transaction.timeout.ms={timeout_ms}."
        ) from error


def _tidy(session: Session, driver: DriverIdentity, entry: Entry, deadline: float) -> None:
    steps.reach("before done")
    if entry.state is EntryState.INTENT:
        session.record(driver, done(entry), deadline)
    if session.settings.per_attempt:
        sweep(session, list_open(session, deadline), driver, deadline)
    steps.reach("committed")


def _untidied(settings: CommitSettings, report: TaskReport, error: Exception) -> str:
    return (
        f"{report.write_id} (name {report.name}) is committed, all of it is visible. What it leaves behind could not "
        f"be tidied up: {error}. {settings.successor}`{settings.command('commit')}` does it, then the same with "
        "`abort`."
    )


def only_reports(settings: CommitSettings, reports: Sequence[TaskReport | None]) -> list[TaskReport]:
    """All tasks' reports; a commit without one of them is Spark's error."""
    present = [report for report in reports if report is not None]
    if len(present) != len(reports) or not present:
        raise ExactlyOnceError(
            f"Commit under the name {settings.name} has {len(present)} reports of {len(reports)} tasks; nothing is "
            "committed."
        )
    return present


def _lost(report: TaskReport, lost: frozenset[int]) -> str:
    tasks = ", ".join(map(str, sorted(lost)))
    return (
        f"{report.write_id} (name {report.name}) is decided, but the transactions of task {tasks} are gone: they "
        "timed out, or a task of an earlier attempt took their ids. The other tasks' rows are committed. Start the "
        "query again with the same checkpoint (or rerun the job with its txnAppId and txnVersion): the replay writes "
        "the missing rows again, and only those."
    )
