"""A task's pipeline: read → encode → pace → validate → append. This page builds it from the options and runs it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from spark_kafka_sink.common.clock import NEVER, Clock
from spark_kafka_sink.common.waiting import sleep
from spark_kafka_sink.errors import IllegalStateError
from spark_kafka_sink.producer.task_meter import TaskMeter
from spark_kafka_sink.records.columns import FieldLengths, cumulated, record_size_bounds
from spark_kafka_sink.spark.dead_letter_options import Reason
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.read import AppendSize, RawEncoder, ReadRows, gathered
from spark_kafka_sink.spark.rows import End, Rows, Stage, rows_numbered, through
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.topic_creation import RequireTopics

if TYPE_CHECKING:
    from spark_kafka_sink.schemas.formats.plan import EarlierSchemas, FormatPlan
    from spark_kafka_sink.schemas.formats.task_formats import TaskFormats
    from spark_kafka_sink.spark.dead_letters import DeadLetterWriter


class Pipeline:
    """The stages between Spark's batches and ``end``. A stage that no option asks for is not there.

    ``letters``: takes the rows that stages and brokers reject; None: such a row fails the task. ``formats``: None if
    key and value are raw. Rows are paced before they are validated, because a slow task may take many minutes for one
    batch, and topics may change meanwhile.
    """

    def __init__(
        self,
        options: SinkOptions,
        end: End,
        clock: Clock,
        letters: DeadLetterWriter | None = None,
        formats: TaskFormats | None = None,
    ) -> None:
        self._options = options
        self._end = end
        self._letters = letters
        self._rejects = frozenset[Reason]() if letters is None else letters.reasons
        encode: Stage = RawEncoder(self._rejects)
        if formats is not None:
            from spark_kafka_sink.spark.encode_formats import FormatEncoder

            encode = FormatEncoder(formats, self._rejects)
        stages = [encode]
        if end.writes and (options.bytes_per_s or options.rows_per_s):
            stages.append(Pace(options.bytes_per_s, options.rows_per_s, clock, end.meter))
        if letters is not None:
            stages.append(letters.take_refused)
        topics = required_topics(options, end)
        if topics is not None and options.topic_creation is not None:
            stages.append(topics)
        if letters is not None:
            if end.writes:
                from spark_kafka_sink.spark.validate import RowValidator

                stages.append(RowValidator(letters.reasons, end, clock))
            stages.append(letters)
        self._is_raw = formats is None
        self._stages: Sequence[Stage] = stages

    def write(self, batches: Iterator[pa.RecordBatch], layout: RowLayout) -> None:
        """Appends the rows of all batches. An error about a row names the row's number in the task."""
        read = ReadRows(layout, self._options.topic, self._rejects)
        end, size, first_row = self._end, AppendSize(self._options.producer), 0
        for batch in gathered(batches, size):
            with end.meter.appending():
                self._write_batch(read(batch, first_row), size)
            if not self._is_raw:
                size.end_batch(batch)
            first_row += batch.num_rows
            del batch  # its rows are encoded: free before the next one is read
        if self._letters is not None:
            self._letters.finish()

    def _write_batch(self, batch: Iterator[Rows], size: AppendSize) -> None:
        for given in batch:
            for rows in through(self._stages, given):
                self._append(rows, size)

    def _append(self, rows: Rows, size: AppendSize) -> None:
        if rows.rejected:
            raise IllegalStateError(f"No stage has taken the rows rejected for {rows.rejected[0].kind.reason.value}")
        topics = rows.kept_topics
        with rows_numbered(rows.first_row):
            self._end.append(topics, rows.columns, rows.kept_partitions)
        size.add(topics.names, self._end)
        if not self._is_raw:
            size.appended(rows)


def required_topics(options: SinkOptions, end: End) -> RequireTopics | None:
    """None where a missing topic is not an error, because rows are not written or become dead letters."""
    dead = options.dead_letters
    return RequireTopics(options, end) if end.writes and not (dead is not None and dead.judges_topics) else None


def task_formats(
    plan: FormatPlan | None, options: SinkOptions, end: End, earlier: EarlierSchemas | None = None
) -> TaskFormats | None:
    """None for raw keys and values. ``earlier``: the schemas of a replay's first run."""
    if plan is None:
        return None
    from spark_kafka_sink.schemas.formats.task_formats import TaskFormats

    return TaskFormats(plan, earlier, required_topics(options, end))


_OFFSET_DELTAS: Final = 64
"""Their varints take two bytes, as most of a batch do."""

PART_MS: Final = 100.0
"""A task appends this time's worth at once; at least one row."""

CATCH_UP_MS: Final = 500.0
"""A task that was late, as its rows or memory came late, makes up for this much."""


class Pace:
    """A stage that keeps one task to its rate, None for no limit. It yields the rows in parts, each when it is due.

    It waits before an append, so that no row waits in a batch.
    """

    def __init__(self, bytes_per_s: int | None, rows_per_s: int | None, clock: Clock, meter: TaskMeter) -> None:
        self._bytes_per_ms = NEVER if bytes_per_s is None else bytes_per_s / 1000
        self._rows_per_ms = NEVER if rows_per_s is None else rows_per_s / 1000
        self._clock = clock
        self._meter = meter
        self._next_at = clock.now()

    def __call__(self, rows: Rows) -> Iterator[Rows]:
        before = cumulated(record_size_bounds(FieldLengths.of(rows.columns), _OFFSET_DELTAS, 1))
        start, total = 0, len(rows)
        while start < total:
            end = bisect_right(before, before[start] + PART_MS * self._bytes_per_ms) - 1
            end = max(start + 1, int(min(end, start + PART_MS * self._rows_per_ms)))
            self._wait()
            yield rows[start:end]
            size = before[end] - before[start]
            self._next_at += max(size / self._bytes_per_ms, (end - start) / self._rows_per_ms)
            start = end

    def _wait(self) -> None:
        """Waits until the next part is due."""
        began = self._clock.now()
        self._next_at = max(self._next_at, began - CATCH_UP_MS)
        while (left := self._next_at - self._clock.now()) > 0:
            sleep(left)
        self._meter.paused(self._clock.now() - began)
