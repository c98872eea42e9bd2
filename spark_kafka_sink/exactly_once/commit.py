"""Commit, the third of four processes: all tasks have reported. It records the intent, which decides the batch, and
completes it, by committing the transactions that the intent names.

Any process that reads an intent may complete it, any number of times.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from spark_kafka_sink.common.clock import NEVER
from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError, clause
from spark_kafka_sink.exactly_once import failpoints
from spark_kafka_sink.exactly_once.committer import EndTxnOutcome, EndVerdict
from spark_kafka_sink.exactly_once.decisions import commit_order, done
from spark_kafka_sink.exactly_once.errors import (
    ExactlyOnceError,
    FencedRunError,
    LostRowsError,
    NotDecidedError,
    Progress,
)
from spark_kafka_sink.exactly_once.ledger import LAG_MS, Ledger
from spark_kafka_sink.exactly_once.ledger_format import shown_id
from spark_kafka_sink.exactly_once.ledger_view import LedgerView
from spark_kafka_sink.exactly_once.session import CommitSettings, Session, session_for
from spark_kafka_sink.exactly_once.sweep import ended_tasks, is_current
from spark_kafka_sink.exactly_once.values import DriverIdentity, Entry, TaskReport, TopicId, list_numbers
from spark_kafka_sink.producer.transaction_requests import PreparedTransaction

_log = logging.getLogger("spark_kafka_sink.exactly_once")

_PAUSE_MS: Final = 100.0


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """The outcome of a commit. ``entry``: None if the batch was committed before. ``cleanup_failure``: what could not
    be cleaned up afterwards, with the command that cleans it up, or "". ``missing``: topics that a replayed batch, or a
    part of it, was committed to, and that do not exist now.
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
        lost = complete(session, entry, deadline) if entry.must_be_completed else None
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
            f"{write} is committed, and all of it is visible, but what it leaves behind could not be cleaned up: "
            f"{clause(error)}. The next run under this name cleans it up, or `{settings.command('commit')}`."
        )
        return CommitOutcome(entry, failure, missing)
    return CommitOutcome(entry, missing=missing)


def _refuse_recreated(session: Session, reports: Sequence[TaskReport], deadline: float) -> None:
    """Raises ``ExactlyOnceError`` unless the ledger that each task has found is still there, with its marker."""
    write, topic = reports[0].write, session.settings.topic
    again = session.settings.advice(reports[0].write_id.kind, Progress.NOT_DECIDED)
    found = [TopicId(topic, report.ledger_id) for report in reports if report.ledger_id is not None]
    try:
        gone = topic_changes(session, found, deadline).gone
    except KafkaError as error:
        raise ExactlyOnceError(
            f"{write} is not committed: no broker says whether ledgerTopic is still the topic that its tasks wrote "
            f"to: {clause(error)}. {again}"
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
            return  # another driver has fenced this run: recording the intent will fail and say so
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
            f"{report.write} is not committed by this run: {clause(error)}. Unless a newer run continues: "
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
        " (this must happen within kafka.delivery.timeout.ms, and before the oldest transaction ends after "
        f"kafka.transaction.timeout.ms={timeout_ms})"
    )


def _clean_up(session: Session, driver: DriverIdentity, entry: Entry, deadline: float) -> None:
    failpoints.hit("before done")
    if entry.must_be_completed:
        session.record(driver, done(entry), deadline)
    failpoints.hit("committed")


class TopicChanges(NamedTuple):
    """The names of topics that changed. Topics are compared by id, unless the brokers are too old to send ids."""

    missing: tuple[str, ...] = ()
    recreated: tuple[TopicId, ...] = ()

    @property
    def gone(self) -> tuple[str, ...]:
        """The topics that no longer hold what was written to them."""
        return tuple(sorted({*self.missing, *(topic.name for topic in self.recreated)}))


def topic_changes(session: Session, written: Iterable[TopicId], deadline: float) -> TopicChanges:
    """The differences between the topics now and when they were written. Asks again for up to ``LAG_MS`` if there are
    any, because a broker's metadata may be stale. Raises ``KafkaError``."""
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
            f"{report.write} was committed before, but no broker says whether the topics that it was written to still "
            f"exist: {clause(error)}. Nothing is written. Start it again."
        ) from error
    if changes.recreated:
        old = ", ".join(f"{topic.name} (topic id {shown_id(topic.id)})" for topic in changes.recreated)
        remove = f"`{session.settings.command('forget')}`"
        if report.tasks_before:  # of a decided batch; forget removes what is done
            remove = f"`{session.settings.command('abort')} --force` and {remove}"
        raise ExactlyOnceError(
            f"{report.write} was committed into topic {old}, which was deleted and created again since. What was "
            f"written to it is gone, and nothing is written now. ledgerStart=trust-ledger:{number} accepts it as "
            f"committed. To write its rows again, even into its other topics, remove its entry with {remove}, then "
            f"start it with ledgerStart=trust-checkpoint:{number}."
        )
    return changes.missing


# How long the ledger is read for the marker of a transaction before its EndTxn is sent again, twice as long each time.
_PATIENCE_MS: Final = 2_000.0


@dataclass(frozen=True, slots=True)
class Completed:
    """The ledger after its intents were completed, and the driver identity to go on with.

    ``lost``: query → the tasks of its entry whose rows are lost; that entry stays an intent.
    """

    driver: DriverIdentity
    entries: Mapping[str, Entry]
    lost: Mapping[str, frozenset[int]]


def complete_intents(
    session: Session,
    driver: DriverIdentity,
    entries: Mapping[str, Entry],
    deadline: float,
    accepted_losses: Collection[str] = (),
) -> Completed:
    """Completes every intent. ``entries`` are the entries read under ``driver``. ``accepted_losses``: the queries whose
    batch is recorded as done even if some of its rows are lost.
    """
    completed = dict(entries)
    lost: dict[str, frozenset[int]] = {}
    for query, entry in entries.items():
        if not entry.must_be_completed:
            continue
        missing = complete(session, entry, deadline)
        if missing and query not in accepted_losses:
            lost[query] = missing
        else:
            if missing:
                _log.warning("%s counts as committed, but rows of its tasks %s are lost", entry, list_numbers(missing))
            completed[query] = done(entry)
            driver = session.record(driver, completed[query], deadline)
    return Completed(driver, completed, lost)


def complete(session: Session, entry: Entry, deadline: float) -> frozenset[int]:
    """Commits every transaction that the entry names. Returns the tasks whose rows are lost.

    A transaction that is no longer open may have been committed before; its marker shows whether it was. A coordinator
    that does not know yet that it was deposed gives the same response for an open transaction, so EndTxn is sent again
    for transactions without a marker. Raises ``ExactlyOnceError`` if a broker refuses or does not respond; some
    transactions may be committed then, and the next process to read the ledger completes the rest.
    """
    batch = f"Batch {entry.number} of {entry.query} (name {session.settings.name})"
    advice = session.settings.advice(entry.kind, Progress.DECIDED)
    outcomes: dict[int, EndTxnOutcome] = {}
    transactions = asked = entry.prepared
    patience_ms = _PATIENCE_MS
    while True:
        ended = session.committer.end(
            [(transaction, True) for transaction in asked.values()], deadline - session.clock.now()
        )
        outcomes.update(zip(asked, ended, strict=True))
        undecided = [outcome for outcome in ended if outcome.verdict is EndVerdict.UNDECIDED]
        if undecided:
            raise ExactlyOnceError(
                f"{batch} is decided, but {len(undecided)} of its {len(transactions)} "
                f"transactions could not be committed yet: {undecided[0].error}. {_states(outcomes)}. {advice}"
            )
        gone = {task: transactions[task] for task, each in outcomes.items() if each.verdict is EndVerdict.GONE}
        if not gone:
            return frozenset()
        try:
            return lost_tasks(session.ledger, entry, gone, _within(session.clock.now(), patience_ms, deadline))
        except ExactlyOnceError:
            raise
        except KafkaError as error:
            if isinstance(error, KafkaTimeoutError) and session.clock.now() < deadline:
                asked, patience_ms = gone, 2 * patience_ms
                continue
            raise ExactlyOnceError(
                f"{batch} is decided, but the ledger does not say whether the rows of task {list_numbers(gone)} are "
                f"committed: {clause(error)}. {_states(outcomes)}. {advice}"
            ) from error


def _within(now: float, patience_ms: float, deadline: float) -> float:
    """The time (monotonic ms) until which to wait: ``patience_ms`` from now, or the deadline if less than twice as much
    is left before it."""
    return now + patience_ms if now + 2 * patience_ms < deadline else deadline


def _states(outcomes: Mapping[int, EndTxnOutcome]) -> str:
    """The states of the transactions, by task, as text."""
    states: dict[str, list[int]] = {}
    for task, outcome in outcomes.items():
        state = "no longer open, committed or aborted" if outcome.verdict is EndVerdict.GONE else "committed"
        if outcome.verdict is EndVerdict.UNDECIDED:
            state = "open or committed, as a request had no response" if outcome.unanswered else "open"
        states.setdefault(state, []).append(task)
    return "Transactions by task: " + "; ".join(f"{list_numbers(tasks)}: {state}" for state, tasks in states.items())


def lost_tasks(
    ledger: Ledger, entry: Entry, gone: Mapping[int, PreparedTransaction], deadline: float
) -> frozenset[int]:
    """The tasks whose transaction was aborted; none if another process has completed the entry meanwhile. ``gone`` maps
    each task to its transaction, which is no longer open.
    """
    # A metadata response may lack the ledger, and its id, for a moment.
    while not _is_decided(view := ledger.read(deadline), entry) or (entry.ledger_id and not ledger.topic_id):
        ledger.await_control_records(deadline)
    found = view.entries.get(entry.query)
    if found is None or found.is_done:
        return frozenset()
    if entry.ledger_id is not None and entry.ledger_id != ledger.topic_id:
        raise ExactlyOnceError(
            f"Batch {entry.number} of {entry.query} (name {ledger.view.name}) is decided, but ledgerTopic "
            f"{ledger.partitions.topic} was deleted and created again after its tasks had written to it, so it does "
            f"not say whether the rows of task {list_numbers(gone)} are committed. Look in Kafka whether they are "
            "there, then continue with a new name (transactionalIdPrefix, or txnAppId)."
        )
    assert entry.marker_partition is not None
    markers = {task: (entry.tasks[task].marker or 0, prepared) for task, prepared in gone.items()}
    return frozenset(gone) - ledger.committed_markers(entry.marker_partition, markers, deadline)


def _is_decided(view: LedgerView, entry: Entry) -> bool:
    """Whether this ledger has, or had, the intent. Only then does a missing marker mean lost rows."""
    found = view.entries.get(entry.query)
    if found is not None and found.number > entry.number:
        raise ExactlyOnceError(
            f"Batch {entry.number} of {entry.query} (name {view.name}) was overtaken: another driver is at batch "
            f"{found.number}. Stop the run that is not wanted."
        )
    return found.number == entry.number if found is not None else entry.query in view.removed
