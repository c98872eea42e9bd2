"""Exactly-once writes in Spark's driver: planning, commit, abort. It imports no producer: tasks do.

``spark_kafka_sink.exactly_once`` has the protocol; this file has what only Spark knows, such as the contents of commit
messages.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Final

from pyspark import SparkFiles

from spark_kafka_sink.common.clock import Clock, SystemClock
from spark_kafka_sink.common.plain_json import UNREADABLE, parse
from spark_kafka_sink.errors import sanitize
from spark_kafka_sink.exactly_once.abort import abort_batch
from spark_kafka_sink.exactly_once.commit import commit_batch
from spark_kafka_sink.exactly_once.plan import plan_write
from spark_kafka_sink.exactly_once.session import CommitSettings
from spark_kafka_sink.exactly_once.values import (
    LedgerStart,
    Target,
    TaskReport,
    WriteId,
    WriteKind,
    WritePlan,
    WriteRun,
)
from spark_kafka_sink.schemas.registry.cache import ApplicationFile
from spark_kafka_sink.spark.commit_message import Committed, KafkaCommitMessage, LogLine, WriterCommitMessage, committed
from spark_kafka_sink.spark.options import ExactlyOnce, SinkOptions
from spark_kafka_sink.spark.python_process import announce

_RUN: Final = ("run",)


def plan_transactions(options: SinkOptions) -> WritePlan:
    """Plans the transactions when Spark pickles a writer for its tasks. (The number of a micro-batch is known only to
    tasks.)

    Raises ``PlanningError``.
    """
    chosen = _exactly_once(options)
    write_id = None if chosen.version is None else WriteId(*chosen.version, WriteKind.VERSION, Target(options.topic))
    query = None if chosen.is_named_by_query else chosen.query
    start, target = LedgerStart.parse(chosen.ledger_start), Target(options.topic)
    plan = plan_write(_settings(options), write_id, start, query, target)
    if (notes := _notes(options)) is not None:
        notes.add(_RUN, asdict(plan.run), alone=True)
    return plan


def commit_exactly_once(
    messages: Sequence[WriterCommitMessage | None], options: SinkOptions, clock: Clock
) -> Committed:
    """Makes the batch visible. Raises ``ExactlyOnceError``."""
    reports = [report for report in _reports(messages) if report is not None]
    assert len(reports) == len(messages)  # check_reports has refused a task without one
    settings = _settings(options, _run(reports))
    outcome = commit_batch(settings, reports)
    if outcome.cleanup_failure:
        announce(outcome.cleanup_failure, logging.WARNING)
    if outcome.missing:
        announce(
            f"{reports[0].write_id} was committed before{'' if outcome.entry is None else ' in part'}, but topic "
            f"{', '.join(outcome.missing)} no longer exists: the rows that were written to it are lost, and are "
            "not written again.",
            logging.WARNING,
        )
    if outcome.entry is None:
        return Committed(f"{reports[0].write_id} was committed before, so nothing was written", replayed=True)
    written = reports[0].write_id
    shown_id = f"micro-batch {written.number} of query {settings.query_name}" if settings.query_name else str(written)
    tells_name = written.kind is WriteKind.MICRO_BATCH and written.query not in settings.name
    named = f" (transactionalIdPrefix {settings.name})" if tells_name else ""
    return Committed(f"{shown_id}: {committed(messages, clock)}, committed exactly once{named}")


def abort_exactly_once(
    messages: Sequence[WriterCommitMessage | None], options: SinkOptions, plan: WritePlan | None
) -> LogLine:
    """Aborts the batch, unless it was decided before. ``plan``: the plan of a batch writer. Returns the line for the
    log."""
    reports = _reports(messages)
    run = plan.run if plan is not None else _run(reports) or _noted_run(options)
    settings = _settings(options, run)
    outcome = abort_batch(settings, reports, WritePlan(run) if plan is None and run is not None else plan)
    left_open = (
        "Its tasks may have left transactions open. read_committed readers of these topics wait for them until the "
        f"query or job starts again, {options.producer.transaction_timeout_ms / 60_000:.3g} min "
        f"(kafka.transaction.timeout.ms) are over, or `{settings.command('abort')}` is run."
    )
    if outcome.skipped:
        aborted = f" {outcome.aborted} prepared transactions aborted." if outcome.aborted else ""
        return LogLine(f"The write was given up: {outcome.skipped}.{aborted} {left_open}", logging.WARNING)
    if outcome.decided:
        return LogLine(f"The write was aborted, but {' and '.join(outcome.decided)}", logging.WARNING)
    if outcome.gone:
        return LogLine(
            f"The write was aborted, and no more of its rows become visible: {outcome.aborted} prepared transactions "
            f"were aborted, and {outcome.gone} had already been ended by a timeout or by another driver",
            logging.WARNING,
        )
    line = (
        f"The write was aborted, and none of its rows is visible: {outcome.aborted} prepared transactions were aborted"
    )
    return LogLine(f"{line}. {left_open}", logging.WARNING) if outcome.left else LogLine(line)


def _noted_run(options: SinkOptions) -> WriteRun | None:
    """The run that the query's planning in this application has noted last. Spark aborts this run, because it plans a
    query's next batch, and starts the query again, only after the abort."""
    run: WriteRun | None = None
    if (notes := _notes(options)) is not None:
        with suppress(*UNREADABLE):
            run = parse(WriteRun, notes.get(_RUN))
    return run


def _notes(options: SinkOptions) -> ApplicationFile | None:
    """The notes that this application's processes leave for each other on the query, in a file of their own because
    each micro-batch replaces them. None for a batch write, and if no option distinguishes queries that share a name by
    mistake."""
    chosen, settings = _exactly_once(options), _settings(options)
    application = SparkFiles._root_directory  # a folder that is new in each application
    if chosen.version is not None or not chosen.place or application is None:
        return None
    key = (application, settings.name, settings.topic, settings.producer.bootstrap_servers, chosen.place)
    return ApplicationFile(repr(key), SystemClock())


def _settings(options: SinkOptions, run: WriteRun | None = None) -> CommitSettings:
    """The settings of the write. ``run``: the planned run, whose name is used, because a name that is derived again may
    differ if the checkpoint is gone."""
    chosen = _exactly_once(options)
    name = chosen.name if run is None else run.name
    assert name is not None
    return CommitSettings(options.producer, name, chosen.ledger_topic, sanitize(options.query_name or ""))


def _run(reports: Sequence[TaskReport | None]) -> WriteRun | None:
    """The run of the first report; None without reports."""
    return next((report.run for report in reports if report is not None), None)


def _exactly_once(options: SinkOptions) -> ExactlyOnce:
    assert options.exactly_once is not None
    return options.exactly_once


def _reports(messages: Sequence[WriterCommitMessage | None]) -> list[TaskReport | None]:
    return [message.report if isinstance(message, KafkaCommitMessage) else None for message in messages]
