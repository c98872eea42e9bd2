"""A task's pipeline: read → encode → pace → validate → append. ``Pipeline`` builds it from the options and runs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.errors import IllegalStateError
from spark_kafka_sink.exactly_once.receipts import TaskName
from spark_kafka_sink.producer.task_output import TaskOutput
from spark_kafka_sink.spark.append_target import AppendTarget, gather
from spark_kafka_sink.spark.encode_raw import RawEncoder
from spark_kafka_sink.spark.options import Reason, SinkOptions
from spark_kafka_sink.spark.rate_limiter import RateLimiter
from spark_kafka_sink.spark.row_reader import RowReader
from spark_kafka_sink.spark.rows import Stage, TaskRows, number_errors, run_stages
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.topic_creation import TopicCheck

if TYPE_CHECKING:
    from spark_kafka_sink.schemas.formats.plan import EarlierSchemas, FormatPlan
    from spark_kafka_sink.schemas.formats.task_formats import TaskFormats

UNNAMED: Final = TaskName("", 0, 0)
"""A task outside Spark."""


class Pipeline:
    """The stages between Spark's batches and ``output``. A stage that no option asks for is not there.

    ``name``: the task's name, for its dead letters. ``formats``: None if key and value are raw. Rows are paced before
    they are validated, because a slow task may take many minutes for one batch, and topics may change meanwhile.
    """

    def __init__(
        self,
        options: SinkOptions,
        output: TaskOutput,
        clock: Clock,
        name: TaskName = UNNAMED,
        formats: TaskFormats | None = None,
    ) -> None:
        self._options = options
        self._output = output
        dead = options.dead_letters
        self._rejects = frozenset[Reason]() if dead is None else dead.reasons
        self._is_raw = formats is None
        stages: list[Stage] = []
        if formats is not None:
            from spark_kafka_sink.spark.encode_formats import FormatEncoder

            stages.append(FormatEncoder(formats, self._rejects))
        stages.append(RawEncoder(self._rejects))
        if output.writes and (options.bytes_per_s or options.rows_per_s):
            stages.append(RateLimiter(options.bytes_per_s, options.rows_per_s, clock, output.meter))
        topics = required_topics(options, output)
        if topics is not None and topics.looks_up:
            stages.append(topics)
        self._letters = None
        if dead is not None:
            from spark_kafka_sink.spark.dead_letters import DeadLetterWriter
            from spark_kafka_sink.spark.validate import RowValidator

            if output.writes:
                stages.append(RowValidator(dead.reasons, output, clock))
            self._letters = DeadLetterWriter(output, options, clock, name)
            stages.append(self._letters)
        self._stages = stages

    def write(self, batches: Iterator[pa.RecordBatch], layout: RowLayout) -> None:
        """Appends the rows of all batches. An error about a row names the row's number in the task."""
        read = RowReader(layout, self._options.topic, self._rejects)
        output, size, first_row = self._output, AppendTarget(self._options.producer), 0
        for batch in gather(batches, size):
            with output.meter.appending():
                self._write_batch(read(batch, first_row), size)
            if not self._is_raw:
                size.end_batch(batch)
            first_row += batch.num_rows
            del batch  # its rows are encoded: free before the next one is read
        if self._letters is not None:
            self._letters.finish()

    def _write_batch(self, batch: Iterator[TaskRows], size: AppendTarget) -> None:
        """Runs the stages on a batch. This is a call of its own, because its variables would otherwise hold the rows
        while the next batch is read."""
        for given in batch:
            for rows in run_stages(self._stages, given):
                self._append(rows, size)

    def _append(self, rows: TaskRows, size: AppendTarget) -> None:
        if rows.rejected:
            raise IllegalStateError(f"No stage has taken the rows rejected for {rows.rejected[0].kind.reason.value}")
        topics = rows.kept_topics
        self._output.receipt.first_row = rows.first_row
        with number_errors(rows.first_row):
            self._output.append(topics, rows.columns, rows.kept_partitions)
        size.add(topics.names, self._output)
        if not self._is_raw:
            size.appended(rows)


def required_topics(options: SinkOptions, output: TaskOutput) -> TopicCheck | None:
    """The stage that looks topics up. None if a missing topic is not an error, because rows are not written or become
    dead letters."""
    dead = options.dead_letters
    judged = dead is not None and Reason.UNKNOWN_TOPIC in dead.reasons
    return TopicCheck(options, output) if output.writes and not judged else None


def task_formats(
    plan: FormatPlan | None, options: SinkOptions, output: TaskOutput, earlier: EarlierSchemas | None = None
) -> TaskFormats | None:
    """The formats of a task; None for raw keys and values. ``earlier``: the schemas of a replay's first run."""
    if plan is None:
        return None
    from spark_kafka_sink.schemas.formats.task_formats import TaskFormats

    return TaskFormats(plan, earlier, required_topics(options, output))
