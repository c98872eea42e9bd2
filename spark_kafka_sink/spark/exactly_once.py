"""Exactly-once writes in Spark's processes: planning, a task's write, commit, abort.

``spark_kafka_sink.exactly_once`` has the protocol; here is what only Spark knows: which batch a task belongs to, and
what commit messages carry.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark import TaskContext

from spark_kafka_sink.common.clock import Clock, SystemClock
from spark_kafka_sink.errors import KafkaError, RecordTooLargeError, clause, sanitize
from spark_kafka_sink.exactly_once.abort import abort_batch
from spark_kafka_sink.exactly_once.commit import commit_batch
from spark_kafka_sink.exactly_once.decisions import check_ledger_of_foreach_batch, replayed_schemas
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.plan import plan_write
from spark_kafka_sink.exactly_once.receipts import TaskName, receipt_columns
from spark_kafka_sink.exactly_once.session import CommitSettings
from spark_kafka_sink.exactly_once.task import TaskTransaction
from spark_kafka_sink.exactly_once.values import (
    LedgerStart,
    Run,
    SchemaId,
    Target,
    TaskAttempt,
    TaskReport,
    WriteId,
    WriteKind,
    WritePlan,
)
from spark_kafka_sink.spark.commit_message import Committed, KafkaCommitMessage, LogLine, WriterCommitMessage, committed
from spark_kafka_sink.spark.options import ExactlyOnce, Reason, SinkOptions
from spark_kafka_sink.spark.pipeline import Pipeline, task_formats
from spark_kafka_sink.spark.python_process import announce
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.write import BATCH_ID, PRODUCERS, QUERY_ID, partition_writes, with_query_name

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_sink.schemas.formats.plan import EarlierSchemas, FormatPlan

_SPECULATION = "spark.speculation"


def plan_transactions(options: SinkOptions) -> WritePlan:
    """Runs when Spark pickles a writer for its tasks; of a micro-batch, only these know the number.

    Raises ``PlanningError``.
    """
    chosen = _exactly_once(options)
    write_id = None if chosen.version is None else WriteId(*chosen.version, WriteKind.VERSION, Target(options.topic))
    return plan_write(_settings(options), write_id, LedgerStart.parse(chosen.ledger_start))


def write_exactly_once(
    batches: Iterator[pa.RecordBatch],
    layout: RowLayout,
    options: SinkOptions,
    plan: WritePlan,
    format_plan: FormatPlan | None,
) -> KafkaCommitMessage:
    """One task: its rows are in Kafka when this returns, not yet visible to read_committed readers."""
    context = TaskContext.get()
    assert context is not None
    clock = SystemClock()
    write_id = plan.write_id or _micro_batch(context, options)
    _refuse_speculation(context)
    check_ledger_of_foreach_batch(plan, write_id, int(context.getLocalProperty(BATCH_ID) or 0))
    name = TaskAttempt(write_id, context.partitionId(), context.attemptNumber() > 0)
    of_task = TaskName(write_id.query, write_id.number, context.partitionId())
    with (
        TaskTransaction(options.producer, plan, name, clock, PRODUCERS.leased) as end,
        refusals_explained(end, options),
    ):
        earlier = None if format_plan is None else _earlier(format_plan, plan, write_id)
        formats = task_formats(format_plan, options, end, earlier)
        Pipeline(options, end, clock, of_task, formats).write(batches, layout)
        if options.receipts_topic is not None and (receipts := with_query_name(end.receipts())):
            end.append_own(options.receipts_topic, receipt_columns(receipts))
        ids = () if formats is None else formats.ids
        report = end.prepare(tuple(SchemaId(side.value, subject, number) for side, subject, number in ids))
        return KafkaCommitMessage(partition_writes(end.receipt), report, end.figures)


@contextmanager
def refusals_explained(end: TaskTransaction, options: SinkOptions) -> Iterator[None]:
    """A record that only a broker finds too large fails its transaction; the error says why it was not found before."""
    try:
        yield
    except KafkaError as error:
        where, dead = end.refused_at, options.dead_letters
        if where is None or dead is None or Reason.RECORD_TOO_LARGE not in dead.reasons:
            raise
        from spark_kafka_sink.spark.validate import why_refused

        reason = why_refused(end.core(), where.topic)
        raise RecordTooLargeError(f"{clause(error)}. {reason}") from error


def _earlier(formats: FormatPlan, plan: WritePlan, write_id: WriteId) -> EarlierSchemas | None:
    """The schemas of a replay. Raises ``ExactlyOnceError`` if its rows cannot be encoded with them."""
    earlier = formats.earlier.get(write_id.query) if replayed_schemas(plan, write_id) else None
    if earlier is not None and earlier.fault is not None:
        raise ExactlyOnceError(
            f"{write_id} was committed before, and its replay cannot be encoded with the schemas that it was written "
            "with. Start it again with the columns as they were, once the registry responds, or set "
            f"ledgerStart=trust-ledger:{write_id.number}, which accepts it as committed. The reason: {earlier.fault}"
        )
    return earlier


def _refuse_speculation(context: TaskContext) -> None:
    """Raises an error, before the first row, for a setting that Spark passes only to tasks."""
    if (context.getLocalProperty(_SPECULATION) or "").strip().lower() == "true":
        raise ExactlyOnceError(
            f"{_SPECULATION}=true: a speculative attempt of a task would fence the other one. Set it to false for "
            "writes with deliveryGuarantee=exactly-once."
        )


def commit_exactly_once(
    messages: Sequence[WriterCommitMessage | None], options: SinkOptions, clock: Clock
) -> Committed:
    """Makes the batch visible. Raises ``ExactlyOnceError``."""
    reports = [report for report in _reports(messages) if report is not None]
    assert len(reports) == len(messages)  # check_reports has refused a task without one
    settings = _settings(options, _run(reports))
    if reports[0].other_queries:
        announce(
            f"{reports[0].write_id} is the query's first, but under its name {settings.name} ledgerTopic "
            f"{settings.topic} has {' and '.join(reports[0].other_queries)}. If the checkpoint of that query was "
            "deleted, or is elsewhere, the source is written again from the start, and the rows that the query has "
            "written are in Kafka twice.",
            logging.WARNING,
        )
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
        return Committed(f"{reports[0].write_id} was committed before; nothing written", replayed=True)
    written = reports[0].write_id
    shown_id = f"micro-batch {written.number} of query {settings.query_name}" if settings.query_name else str(written)
    named = f" (transactionalIdPrefix {settings.name})" if written.kind is WriteKind.MICRO_BATCH else ""
    return Committed(f"{shown_id}: {committed(messages, clock)}, committed exactly once{named}")


def abort_exactly_once(
    messages: Sequence[WriterCommitMessage | None], options: SinkOptions, plan: WritePlan | None
) -> LogLine:
    """Aborts the batch, unless it was decided before. ``plan``: of a batch writer. Returns the line for the log."""
    reports = _reports(messages)
    settings = _settings(options, _run(reports) if plan is None else plan.run)
    outcome = abort_batch(settings, reports, plan)
    if outcome.skipped:
        return LogLine(
            f"write given up: {outcome.skipped}. {outcome.aborted} prepared transactions aborted. The next run "
            f"under this name, or `{settings.command('abort')}` or kafka.transaction.timeout.ms aborts others that its "
            "tasks may have left open.",
            logging.WARNING,
        )
    if outcome.decided:
        return LogLine(f"write aborted, but {' and '.join(outcome.decided)}", logging.WARNING)
    if outcome.gone:
        return LogLine(
            f"write aborted; no more of its rows become visible: {outcome.aborted} prepared transactions aborted, "
            f"{outcome.gone} had been ended by a timeout or by another driver",
            logging.WARNING,
        )
    return LogLine(f"write aborted; none of its rows is visible: {outcome.aborted} prepared transactions aborted")


def _micro_batch(context: TaskContext, options: SinkOptions) -> WriteId:
    query, number = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if query is None or number is None:
        raise ExactlyOnceError(f"Spark does not say which micro-batch this is ({QUERY_ID}, {BATCH_ID} are not set)")
    planned = _exactly_once(options).query
    if planned not in (None, query):
        raise ExactlyOnceError(
            f"The checkpoint that the driver finds at checkpointLocation in its own file system is of query {planned}, "
            f"but this is query {query}, whose checkpoint must be elsewhere (spark.hadoop.fs.defaultFS). Write "
            "checkpointLocation with its scheme, such as hdfs://, or set transactionalIdPrefix."
        )
    return WriteId(query, int(number), WriteKind.MICRO_BATCH)


def _settings(options: SinkOptions, run: Run | None = None) -> CommitSettings:
    """``run``: has the name that was planned with. Derived anew it may be another, as the checkpoint may be gone."""
    chosen = _exactly_once(options)
    name = chosen.name if run is None else run.name
    assert name is not None
    return CommitSettings(options.producer, name, chosen.ledger_topic, sanitize(options.query_name or ""))


def _run(reports: Sequence[TaskReport | None]) -> Run | None:
    """The run of the first report that there is."""
    return next((report.run for report in reports if report is not None), None)


def _exactly_once(options: SinkOptions) -> ExactlyOnce:
    assert options.exactly_once is not None
    return options.exactly_once


def _reports(messages: Sequence[WriterCommitMessage | None]) -> list[TaskReport | None]:
    return [message.report if isinstance(message, KafkaCommitMessage) else None for message in messages]
