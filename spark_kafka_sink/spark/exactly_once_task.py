"""A task's write of an exactly-once batch, and the batch's number, which Spark passes to tasks only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark import TaskContext

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.errors import KafkaError, RecordTooLargeError, clause
from spark_kafka_sink.exactly_once.decisions import check_ledger_of_foreach_batch, replayed_schemas
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.receipts import TaskName, receipt_columns
from spark_kafka_sink.exactly_once.task import TaskTransaction
from spark_kafka_sink.exactly_once.values import SchemaId, Target, TaskAttempt, WriteId, WriteKind, WritePlan
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage
from spark_kafka_sink.spark.options import Reason, SinkOptions
from spark_kafka_sink.spark.pipeline import Pipeline, task_formats
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.write import BATCH_ID, PRODUCERS, QUERY_ID, partition_writes, with_query_name

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_sink.schemas.formats.plan import EarlierSchemas, FormatPlan

_SPECULATION = "spark.speculation"


def write_exactly_once(
    batches: Iterator[pa.RecordBatch],
    layout: RowLayout,
    options: SinkOptions,
    plan: WritePlan,
    format_plan: FormatPlan | None,
) -> KafkaCommitMessage:
    """Writes the rows of a task. They are in Kafka when this returns, not yet visible to read_committed readers."""
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
    """A block whose error for a record that a broker found too large explains why the task did not find it before. (The
    broker's refusal fails the transaction.)"""
    try:
        yield
    except KafkaError as error:
        where, dead = end.refused_at, options.dead_letters
        if where is None or dead is None or Reason.RECORD_TOO_LARGE not in dead.reasons:
            raise
        from spark_kafka_sink.spark.validate import why_refused

        reason = why_refused(end, where.topic)
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


def _micro_batch(context: TaskContext, options: SinkOptions) -> WriteId:
    query, number = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if query is None or number is None:
        raise ExactlyOnceError(f"Spark does not tell this task its micro-batch ({QUERY_ID} and {BATCH_ID} are not set)")
    assert options.exactly_once is not None
    planned = options.exactly_once.query
    if options.exactly_once.is_named_by_query and planned != query:
        raise ExactlyOnceError(
            "The checkpoint that the driver finds at checkpointLocation in its own file system belongs to query "
            f"{planned}, but this is query {query}, whose checkpoint must be in another file system "
            "(spark.hadoop.fs.defaultFS). Write checkpointLocation with its scheme, such as hdfs://, or set "
            "transactionalIdPrefix."
        )
    return WriteId(query, int(number), WriteKind.MICRO_BATCH, Target(options.topic))
