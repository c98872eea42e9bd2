"""Commit, the third of four processes: all tasks have reported. It records the intent, which decides the batch, and
completes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from spark_kafka_sink.common.clock import NEVER
from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError, clause
from spark_kafka_sink.exactly_once import failpoints
from spark_kafka_sink.exactly_once.complete import complete
from spark_kafka_sink.exactly_once.decisions import commit_order, done
from spark_kafka_sink.exactly_once.errors import (
    ExactlyOnceError,
    FencedRunError,
    LostRowsError,
    NotDecidedError,
    Progress,
)
from spark_kafka_sink.exactly_once.ledger import LAG_MS
from spark_kafka_sink.exactly_once.ledger_format import shown_id
from spark_kafka_sink.exactly_once.session import CommitSettings, Session, session_for
from spark_kafka_sink.exactly_once.sweep import ended_tasks, is_current
from spark_kafka_sink.exactly_once.values import DriverIdentity, Entry, EntryState, TaskReport, TopicId, list_numbers

_PAUSE_MS: Final = 100.0


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """What commit did. ``entry`` is None if the batch was committed before.

    ``cleanup_failure`` says what could not be cleaned up afterwards, with the command that does it, or is "".
    ``missing`` are topics that a replayed batch, or a part of it, was committed to, and which do not exist now.
    """

    entry: Entry | None
    cleanup_failure: str = ""
    missing: tuple[str, ...] = ()


def commit_batch(settings: CommitSettings, reports: Sequence[TaskReport]) -> CommitOutcome:
    """Makes all rows visible, within delivery.timeout.ms. Raises ``ExactlyOnceError``.

    After an error before the intent is committed, nothing is visible and the batch may be aborted. After a later error
    the batch is decided, and the next process to read the ledger completes it. Errors after the last task's transaction
    is committed are returned, because they affect no reader.
    """
    with session_for(settings) as session:
        order = commit_order(reports, settings.producer.transaction_timeout_ms, session.clock.epoch_ms())
        entry, write = order.entry, reports[0].write
        deadline = session.deadline(settings.producer.delivery_timeout_ms)
        missing = check_replay(session, reports, deadline)
        if entry is None:
            return CommitOutcome(None, missing=missing)
        entry = replace(entry, query_name=settings.query_name)
        _refuse_recreated(session, reports, deadline)
        _refuse_ended(session, reports[0], entry, deadline)
        failpoints.hit("before the intent")
        driver = _decide(session, reports[0], entry, order.decide_by, deadline)
        failpoints.hit("intent committed")
        lost = complete(session, entry, deadline) if entry.state is EntryState.INTENT else None
        if lost:
            progress = Progress.of_lost(entry, lost)
            others = "The other tasks' rows are committed. " if progress is Progress.LOST else ""
            raise LostRowsError(
                f"{write} is decided, but the transactions of task {list_numbers(lost)} are gone: they timed out, or "
                f"another attempt of the task took their ids. {others}{settings.advice(entry.kind, progress)}"
            )
    try:
        with session_for(settings) as session:
            _clean_up(session, driver, entry, deadline)
    except Exception as error:
        failure = (
            f"{write} is committed, all of it is visible. What it leaves behind could not be cleaned up: "
            f"{clause(error)}. The next run under this name, or `{settings.command('commit')}` does it."
        )
        return CommitOutcome(entry, failure, missing)
    return CommitOutcome(entry, missing=missing)


def all_reports(settings: CommitSettings, reports: Sequence[TaskReport | None]) -> list[TaskReport]:
    """The reports. Raises ``ExactlyOnceError`` if a task's report is missing, which would be an error in Spark."""
    present = [report for report in reports if report is not None]
    if len(present) != len(reports) or not present:
        raise ExactlyOnceError(
            f"Commit under the name {settings.name} has {len(present)} reports of {len(reports)} tasks; nothing is "
            "committed."
        )
    return present


def _refuse_recreated(session: Session, reports: Sequence[TaskReport], deadline: float) -> None:
    """Raises ``ExactlyOnceError`` unless the ledger that each task has found is still there, with its marker."""
    write, topic = reports[0].write, session.settings.topic
    again = session.settings.advice(reports[0].write_id.kind, Progress.NOT_DECIDED)
    found = [TopicId(topic, report.ledger_id) for report in reports if report.ledger_id is not None]
    try:
        gone = topic_changes(session, found, deadline).gone
    except KafkaError as error:
        raise ExactlyOnceError(
            f"{write} is not committed: no broker says whether its ledgerTopic is still the one that its tasks "
            f"wrote to: {clause(error)}. {again}"
        ) from error
    if gone:
        raise ExactlyOnceError(
            f"{write} is not committed: ledgerTopic {topic} was deleted (and perhaps created again) after its tasks "
            f"wrote to it. {again}"
        )


def _refuse_ended(session: Session, report: TaskReport, entry: Entry, deadline: float) -> None:
    """Raises ``ExactlyOnceError`` unless all transactions that the intent names are still open."""
    patience = min(deadline, session.deadline(LAG_MS))
    while gone := ended_tasks(session.cluster, entry.prepared, deadline):
        if not is_current(session.cluster, report.run.driver):
            return  # the run was fenced, which its intent finds
        if session.clock.now() >= patience:
            raise ExactlyOnceError(
                f"{report.write} is not committed: the transactions of task {list_numbers(gone)} are gone. They timed "
                "out, or another attempt of the task, another run or `spark-kafka-sink transactions` has ended them. "
                f"{session.settings.advice(report.write_id.kind, Progress.NOT_DECIDED)}"
            )
        session.cluster.pause(_PAUSE_MS)


def _decide(
    session: Session, report: TaskReport, entry: Entry, decide_by: int | None, deadline: float
) -> DriverIdentity:
    """Records the entry. No EndTxn is sent after ``deadline`` or ``decide_by``.

    ``decide_by`` is checked with both clocks: the monotonic one stands still while the machine is suspended or
    migrated, and the wall clock may be set back.
    """
    if decide_by is not None:
        deadline = min(deadline, session.deadline(decide_by - session.clock.epoch_ms()))
    settings = session.settings
    try:
        return session.record(report.run.driver, entry, deadline, NEVER if decide_by is None else decide_by)
    except FencedRunError as error:
        raise ExactlyOnceError(
            f"{report.write} is not committed by this run: {clause(error)}. Unless a newer run goes on: "
            f"{settings.advice(report.write_id.kind, Progress.NOT_DECIDED)} What the other run has committed is not "
            "written again."
        ) from error
    except NotDecidedError as error:
        late = isinstance(error.__cause__, KafkaTimeoutError)
        raise ExactlyOnceError(
            f"{report.write} is not committed: {error}{_limit(settings) if late else ''}. "
            f"{settings.advice(report.write_id.kind, Progress.NOT_DECIDED)}"
        ) from error
    except KafkaError as error:
        raise ExactlyOnceError(
            f"{report.write} may or may not be decided, because no broker confirms it: {error}{_limit(settings)}. "
            f"{settings.advice(report.write_id.kind, Progress.UNKNOWN)}"
        ) from error


def _limit(settings: CommitSettings) -> str:
    timeout_ms = settings.producer.transaction_timeout_ms
    return (
        " (the time ends by kafka.delivery.timeout.ms, or when the oldest transaction is about to end by "
        f"kafka.transaction.timeout.ms={timeout_ms})"
    )


def _clean_up(session: Session, driver: DriverIdentity, entry: Entry, deadline: float) -> None:
    failpoints.hit("before done")
    if entry.state is EntryState.INTENT:
        session.record(driver, done(entry), deadline)
    failpoints.hit("committed")


class TopicChanges(NamedTuple):
    """The names of topics that changed. Topics are compared by id, unless the brokers are too old to send ids."""

    missing: tuple[str, ...] = ()
    recreated: tuple[TopicId, ...] = ()

    @property
    def gone(self) -> tuple[str, ...]:
        """Those that no longer hold what was written to them."""
        return tuple(sorted({*self.missing, *(topic.name for topic in self.recreated)}))


def topic_changes(session: Session, written: Iterable[TopicId], deadline: float) -> TopicChanges:
    """How the topics differ from ``written``. If they do, it repeats the request for a while. Raises ``KafkaError``."""
    topics = frozenset(written)
    patience = min(deadline, session.deadline(LAG_MS))
    while topics:
        found = session.cluster.topics(sorted({topic.name for topic in topics}), deadline)
        missing = {name for name, info in found.items() if info is None}
        ids = {name: info.topic_id for name, info in found.items() if info is not None}
        recreated = {topic for topic in topics if ids.get(topic.name) not in (None, topic.id)}
        changes = TopicChanges(tuple(sorted(missing)), tuple(sorted(recreated)))
        if not changes.gone or session.clock.now() >= patience:
            return changes
        session.cluster.pause(_PAUSE_MS)
    return TopicChanges()


def check_replay(session: Session, reports: Iterable[TaskReport], deadline: float) -> tuple[str, ...]:
    """Raises ``ExactlyOnceError`` if a batch that was decided before went to a topic that was created again since.
    Returns the topics that do not exist now."""
    report, *_ = reports
    if not report.decided_topics:
        return ()
    number = report.write_id.number
    try:
        changes = topic_changes(session, report.decided_topics, deadline)
    except KafkaError as error:
        raise ExactlyOnceError(
            f"{report.write} was committed before, but no broker says whether its topics are still those that it was "
            f"written to: {clause(error)}. Nothing is written. Start it again."
        ) from error
    if changes.recreated:
        old = ", ".join(f"{topic.name} (topic id {shown_id(topic.id)})" for topic in changes.recreated)
        remove = f"`{session.settings.command('forget')}`"
        if report.tasks_before:  # of a decided batch; forget removes what is done
            remove = f"`{session.settings.command('abort')} --force` and {remove}"
        raise ExactlyOnceError(
            f"{report.write} was committed into topic {old}, which was deleted and created again since: what was "
            f"written to it is gone, and nothing is written now. ledgerStart=trust-ledger:{number} accepts it as "
            f"committed. To write its rows again, also into its other topics, remove its entry with "
            f"{remove}, then start it with ledgerStart=trust-checkpoint:{number}."
        )
    return changes.missing
