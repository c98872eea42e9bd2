"""A task's pipeline: read → encode → pace → validate → append. ``Pipeline`` builds it from the options and runs it.

Here are also the stages of every task: ``read`` makes ``TaskRows`` of Spark's Arrow batches, gathered to the size of an
append, and ``encode`` makes bytes of these. ``encode_formats.py`` encodes ``keyFormat`` and ``valueFormat`` before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_kafka_sink.common.clock import NEVER, Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import NO_TIMESTAMP, TOPIC_RULE, is_topic_name
from spark_kafka_sink.common.waiting import sleep
from spark_kafka_sink.errors import IllegalStateError, InvalidRecordError, sanitize
from spark_kafka_sink.exactly_once.receipts import TaskName
from spark_kafka_sink.producer.partitioner import NOT_GIVEN
from spark_kafka_sink.producer.rows import negative_partition
from spark_kafka_sink.producer.task_output import TaskMeter, TaskOutput
from spark_kafka_sink.records.columns import (
    FieldLengths,
    Int32Array,
    Int64Array,
    RecordColumns,
    TopicColumn,
    binary_column,
    cumulate,
    int32_array,
    negative_timestamp,
    null_mask,
    raw_numbers,
    record_size_bounds,
    slot_lengths,
    timestamp_column,
)
from spark_kafka_sink.records.encode import NULL_HEADER, header_column, header_entries
from spark_kafka_sink.spark.options import Reason, SinkOptions, letter_option
from spark_kafka_sink.spark.rows import (
    ILLEGAL_ARGUMENT,
    BoolArray,
    FaultKind,
    RejectedRows,
    TaskRows,
    Stage,
    number_errors,
    reject,
    run_stages,
)
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.topic_creation import RequireTopics

if TYPE_CHECKING:
    from spark_kafka_sink.schemas.formats.plan import EarlierSchemas, FormatPlan
    from spark_kafka_sink.schemas.formats.task_formats import TaskFormats

UNNAMED: Final = TaskName("", 0, 0)
"""A task outside Spark."""


class Pipeline:
    """The stages between Spark's batches and ``output``. A stage that no option asks for is not there.

    ``name``: of the task, for its dead letters. ``formats``: None if key and value are raw. Rows are paced before they
    are validated, because a slow task may take many minutes for one batch, and topics may change meanwhile.
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
            stages.append(Pace(options.bytes_per_s, options.rows_per_s, clock, output.meter))
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
        read = ReadRows(layout, self._options.topic, self._rejects)
        output, size, first_row = self._output, AppendSize(self._options.producer), 0
        for batch in gather(batches, size):
            with output.meter.appending():
                self._write_batch(read(batch, first_row), size)
            if not self._is_raw:
                size.end_batch(batch)
            first_row += batch.num_rows
            del batch  # its rows are encoded: free before the next one is read
        if self._letters is not None:
            self._letters.finish()

    def _write_batch(self, batch: Iterator[TaskRows], size: AppendSize) -> None:
        """A call of its own, because its variables would hold the rows while the next batch is read."""
        for given in batch:
            for rows in run_stages(self._stages, given):
                self._append(rows, size)

    def _append(self, rows: TaskRows, size: AppendSize) -> None:
        if rows.rejected:
            raise IllegalStateError(f"No stage has taken the rows rejected for {rows.rejected[0].kind.reason.value}")
        topics = rows.kept_topics
        self._output.receipt.first_row = rows.first_row
        with number_errors(rows.first_row):
            self._output.append(topics, rows.columns, rows.kept_partitions)
        size.add(topics.names, self._output)
        if not self._is_raw:
            size.appended(rows)


def required_topics(options: SinkOptions, output: TaskOutput) -> RequireTopics | None:
    """None where a missing topic is not an error, because rows are not written or become dead letters."""
    dead = options.dead_letters
    judged = dead is not None and Reason.UNKNOWN_TOPIC in dead.reasons
    return RequireTopics(options, output) if output.writes and not judged else None


def task_formats(
    plan: FormatPlan | None, options: SinkOptions, output: TaskOutput, earlier: EarlierSchemas | None = None
) -> TaskFormats | None:
    """None for raw keys and values. ``earlier``: the schemas of a replay's first run."""
    if plan is None:
        return None
    from spark_kafka_sink.schemas.formats.task_formats import TaskFormats

    return TaskFormats(plan, earlier, required_topics(options, output))


# Larger batches are split: from here on, columns of bytes have int32 offsets, and a row may grow when it is encoded.
_MAX_SLICE_BYTES = 256 << 20

_BYTES_PER_TOPIC = 256 << 10
_LEAST_BYTES = 2 << 20
_LARGE_ROW = 16 << 10
"""Size in bytes. Collecting batches of larger rows costs more than appending them."""

_NULL_TOPIC_TEXT: Final = (
    "The Kafka message data sent to the producer contains a null topic. "
    "Use the `topic` option for setting a default topic."
)
_NULL_TOPIC_ADVICE: Final = (
    " But that option sends all rows to one topic. `where topic is null` finds the rows without one: give them one, or "
    "{}, so that they become dead letters."
)
_INVALID_NAME: Final = f"Invalid topic: '{{}}'. A name is {TOPIC_RULE}."
_NULL_TOPIC: Final = FaultKind(Reason.NULL_TOPIC, ILLEGAL_ARGUMENT)
_INVALID_TOPIC: Final = FaultKind(Reason.INVALID_TOPIC, "org.apache.kafka.common.errors.InvalidTopicException")
_INVALID_PARTITION: Final = FaultKind(Reason.INVALID_PARTITION, ILLEGAL_ARGUMENT)
_INVALID_TIMESTAMP: Final = FaultKind(Reason.INVALID_TIMESTAMP, ILLEGAL_ARGUMENT)


class AppendSize:
    """Target size of an append, ``bytes``: a batch per partition of the task's topics, at least 256 KiB per topic and
    2 MiB in all.

    Spark passes 10,000 rows at a time, 10 per partition of a topic with 1,000: each partition's batch, its request and
    the broker's work would be paid by 10 rows. The append itself takes 0.4 ms, however few its rows are. At most half
    of ``buffer.memory``.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self.bytes = 0
        self._full = 0
        self._growth = 1.0
        self._appended = 0
        self._batch_size = config.batch_size
        self._most = config.buffer_memory // 2
        self._topics: set[str] = set()

    def add(self, topics: Collection[str], output: TaskOutput) -> None:
        """Counts the topics that are new to the task. A replay, which writes nothing, looks up no partitions."""
        for topic in topics:
            if topic not in self._topics:
                self._topics.add(topic)
                partitions = output.core().partition_count(topic) if output.writes else 0
                self._full += max(self._batch_size * partitions, _BYTES_PER_TOPIC)
                self.bytes = min(max(self._full, _LEAST_BYTES), self._most)

    def of(self, batch: pa.RecordBatch) -> float:
        """Bytes of the batch once it is encoded, as far as earlier batches tell."""
        return float(batch.nbytes * self._growth)

    def appended(self, rows: TaskRows) -> None:
        """Encoded rows of the batch."""
        columns = rows.columns
        self._appended += sum(
            column.nbytes for column in (columns.key, columns.value, columns.headers) if column is not None
        )

    def end_batch(self, batch: pa.RecordBatch) -> None:
        """All its rows have been appended. Structs may be much larger than what they are encoded as, or smaller."""
        if self._appended:
            self._growth, self._appended = self._appended / max(1, batch.nbytes), 0


def gather(batches: Iterator[pa.RecordBatch], target: AppendSize) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at least the target size; none is empty. What has been yielded is not held.

    Batches of large rows stay as they are, because to gather them is to copy them.
    """
    held: list[pa.RecordBatch] = []
    size = 0.0
    for batch in batches:
        is_large = batch.nbytes >= _LARGE_ROW * max(1, batch.num_rows)
        if is_large:
            yield from _combine(held)
        held.append(batch)
        size += target.of(batch)
        del batch
        if is_large or size >= target.bytes:
            yield from _combine(held)
            size = 0.0
    yield from _combine(held)


def _combine(held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Empties ``held`` into one batch; several if a column of strings or binary exceeds 2 GiB, the limit of an Arrow
    array.
    """
    if len(held) > 1:
        held[:] = pa.Table.from_batches(held).combine_chunks().to_batches()
    held[:] = [batch for batch in reversed(held) if batch.num_rows]
    while held:
        yield held.pop()


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Arrow batches as ``TaskRows``. ``topic``: of all rows; None: they have a column. ``rejects``: the reasons for which a
    row is rejected; for others it fails the task, with Spark's text and the row's number.
    """

    layout: RowLayout
    topic: str | None
    rejects: Collection[Reason] = frozenset()

    def __call__(self, batch: pa.RecordBatch, first_row: int) -> Iterator[TaskRows]:
        """One part unless the batch is very large. ``first_row``: number of its first row in the task."""
        if batch.nbytes > _MAX_SLICE_BYTES and batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from self(batch.slice(0, half), first_row)
            yield from self(batch.slice(half), first_row + half)
            return
        layout = self.layout
        found: list[RejectedRows] = []
        with number_errors(first_row):
            topics = self._topics(batch, found)
            partitions = self._partitions(batch, found)
            columns = RecordColumns(
                key=None if layout.key is None else batch.column(layout.key),
                value=batch.column(layout.value),
                headers=None if layout.headers is None else batch.column(layout.headers),
                timestamps=self._timestamps(batch, found),
            )
        rows = TaskRows(first_row, topics, columns, partitions)
        for rejected in found:
            rows = rows.rejecting(rejected)
        yield rows

    def _topics(self, batch: pa.RecordBatch, found: list[RejectedRows]) -> TopicColumn:
        if self.topic is not None:
            return TopicColumn((self.topic,))
        assert self.layout.topic is not None
        column = batch.column(self.layout.topic)
        missing = null_mask(column)
        topics = topic_column(column, missing if column.null_count else None)
        advice = _NULL_TOPIC_ADVICE.format(letter_option(self.rejects, Reason.NULL_TOPIC))
        texts = [_NULL_TOPIC_TEXT] * column.null_count
        found.append(reject(self.rejects, _NULL_TOPIC, np.flatnonzero(missing), texts, advice))
        valid = np.array([is_topic_name(name) for name in topics.names])
        if not valid.all():
            codes = np.zeros(len(column), np.int32) if topics.codes is None else topics.codes
            bad = ~valid[codes] & ~missing
            messages = [_INVALID_NAME.format(sanitize(topics.names[code], 249)) for code in codes[bad].tolist()]
            found.append(reject(self.rejects, _INVALID_TOPIC, np.flatnonzero(bad), messages))
            kept = ~(bad | missing)
            topics = topics.naming(kept) if kept.any() else TopicColumn(("",))
        return topics

    def _partitions(self, batch: pa.RecordBatch, found: list[RejectedRows]) -> Int32Array | None:
        if self.layout.partition is None:
            return None
        column = batch.column(self.layout.partition)
        if column.null_count == len(column):
            return None
        numbers: Int32Array = raw_numbers(column, np.int32)
        nulls = null_mask(column)
        numbers[nulls] = 0
        if numbers.min() < 0:
            bad = np.flatnonzero(numbers < 0)
            messages = list(map(negative_partition, numbers[bad].tolist()))
            found.append(reject(self.rejects, _INVALID_PARTITION, bad, messages))
        numbers[nulls] = NOT_GIVEN
        return numbers

    def _timestamps(self, batch: pa.RecordBatch, found: list[RejectedRows]) -> Int64Array | None:
        """``NO_TIMESTAMP`` is for null, for a record that was read without a timestamp, and for rejected rows."""
        if self.layout.timestamp is None:
            return None
        times = timestamp_column(batch.column(self.layout.timestamp), NO_TIMESTAMP, takes_negative=True)
        if times.min(initial=0) < NO_TIMESTAMP:
            bad = np.flatnonzero(times < NO_TIMESTAMP)
            messages = list(map(negative_timestamp, times[bad].tolist()))
            found.append(reject(self.rejects, _INVALID_TIMESTAMP, bad, messages))
            times[bad] = NO_TIMESTAMP
        return times


def topic_column(column: pa.Array, missing: npt.NDArray[np.bool_] | None = None) -> TopicColumn:
    """The topics of a column. ``missing``: rows without one; they get any other row's, or "" if no row has one."""
    only = _only_topic(column)
    if only is not None:
        return TopicColumn((only,))
    encoded = pc.dictionary_encode(column)
    names = [_text(name) for name in binary_column(encoded.dictionary).to_pylist()] or [""]
    if len(names) == 1:
        return TopicColumn(names)
    codes = raw_numbers(encoded.indices, np.int32)
    if missing is not None:
        codes[missing] = 0
    return TopicColumn(names, codes)


def _only_topic(column: pa.Array) -> str | None:
    """The topic of all rows that have one, found in a tenth of the time that a dictionary takes; None: look for it."""
    if not pt.is_string(column.type):
        return None
    lengths = slot_lengths(column)
    size = int(lengths.max(initial=0))
    if size <= 0 or np.count_nonzero(lengths == size) != len(column) - column.null_count:
        return None
    _, offsets, data = column.buffers()
    first, end = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset)[[0, -1]].tolist()
    names = np.frombuffer(data, np.uint8, end - first, first)
    # bytes under null would shift the names
    if len(names) != size * (len(column) - column.null_count) or (names[size:] != names[:-size]).any():
        return None
    return _text(names[:size].tobytes())


def _text(name: bytes) -> str:
    """Decodes a topic's name. A name that is not UTF-8 becomes one that no broker accepts."""
    return name.decode(errors="replace")


_HEADER: Final = FaultKind(Reason.INVALID_HEADER, ILLEGAL_ARGUMENT, "HEADER_CONVERTER")


class RawEncoder:
    """The stage that makes bytes of keys, values and headers. It rejects, or raises for, a row with a header without a
    key.
    """

    def __init__(self, rejects: Collection[Reason] = frozenset()) -> None:
        self._rejects = rejects

    def __call__(self, rows: TaskRows) -> Iterator[TaskRows]:
        columns = rows.columns
        key = None if columns.key is None else binary_column(columns.key)
        rows = replace(rows, columns=replace(columns, key=key, value=binary_column(columns.value)))
        yield rows if columns.headers is None else self._encode_headers(rows, columns.headers)

    def _encode_headers(self, rows: TaskRows, column: pa.Array) -> TaskRows:
        with number_errors(rows.first_row):
            try:
                sections = header_column(column)
            except InvalidRecordError:
                if not header_entries(column)[1].null_count:
                    raise
                column, bad = _drop_null_keys(column)
                found = np.flatnonzero(bad)
                rows = rows.rejecting(reject(self._rejects, _HEADER, found, [NULL_HEADER] * len(found)))
                sections = header_column(column)
        rejected = tuple(map(_encode_own_headers, rows.rejected))
        return replace(rows, columns=replace(rows.columns, headers=sections), rejected=rejected)


def _encode_own_headers(rejected: RejectedRows) -> RejectedRows:
    """Rows with columns of their own are dead letters already. Headers without a key are left out of them."""
    if (columns := rejected.columns) is None or columns.headers is None:
        return rejected
    return rejected._replace(columns=replace(columns, headers=header_column(_drop_null_keys(columns.headers)[0])))


def _drop_null_keys(array: pa.Array) -> tuple[pa.ListArray, BoolArray]:
    """``array`` without the headers whose key is null, and which rows had one."""
    counts, keys, values = header_entries(array)
    missing = null_mask(keys)
    lost = np.bincount(np.repeat(np.arange(len(counts)), counts)[missing], minlength=len(counts))
    kept = int32_array(np.flatnonzero(~missing).astype(np.int32))
    entries = pa.StructArray.from_arrays([keys.take(kept), values.take(kept)], ["key", "value"])
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts - lost, out=offsets[1:])
    return pa.ListArray.from_arrays(int32_array(offsets), entries), lost > 0


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

    def __call__(self, rows: TaskRows) -> Iterator[TaskRows]:
        before = cumulate(record_size_bounds(FieldLengths.of(rows.columns), _OFFSET_DELTAS, 1))
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
