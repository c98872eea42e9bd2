"""Columns into the accumulator, on the caller's thread: check, partition, reserve, claim, encode, publish."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.accumulator.buffer_pool import Reservation, SharedBuffer
from spark_kafka_sink.accumulator.claim import Claim, RowSizes, Run
from spark_kafka_sink.accumulator.producer_batch import RecordRange
from spark_kafka_sink.append.grouping import group_by_partition, order_by_partition, runs_as_given
from spark_kafka_sink.append.publish import AppendParts, BatchListeners, RowsToPublish, publish, undo
from spark_kafka_sink.append.receipt import SendReceipt
from spark_kafka_sink.append.row_sizes import RowTimes, row_sizes, size_bounds
from spark_kafka_sink.errors import InvalidRecordError, RecordTooLargeError
from spark_kafka_sink.model import ClusterSnapshot
from spark_kafka_sink.partitioning.custom import CustomPartitioner
from spark_kafka_sink.partitioning.partitioner import NOT_GIVEN
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.encode import EncodedRecords, encode_records
from spark_kafka_sink.records.sizes import FieldLengths, cumulated, java_size_estimate

Int64Array = npt.NDArray[np.int64]
Partitions = npt.NDArray[np.int32]

_LARGEST_SLICE = 4 << 20


@dataclass(frozen=True, slots=True)
class AppendConfig:
    """In bytes and ms: max.request.size, buffer.memory, max.block.ms, linger.ms."""

    max_request_size: int
    buffer_memory: int
    max_block_ms: float
    linger_ms: float


@dataclass(frozen=True, slots=True)
class StagedColumns:
    """Rows of one topic that were checked when they were sent.

    ``created`` is when the first of them was sent (monotonic ms): their batches linger from then on. ``timestamp``: the
    same in epoch ms, for rows without timestamps.
    """

    topic: str
    columns: RecordColumns
    explicit: Partitions | None
    snapshot: ClusterSnapshot
    created: float
    timestamp: int


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one topic and what is known of each: the bytes it may take (``sizes``), the partition it names."""

    columns: RecordColumns
    lengths: FieldLengths
    sizes: Int64Array
    explicit: Partitions | None
    times: RowTimes

    def slice(self, start: int, end: int) -> _Rows:
        if end - start == len(self.sizes):
            return self
        return _Rows(
            self.columns.slice(start, end - start),
            self.lengths.slice(start, end),
            self.sizes[start:end],
            None if self.explicit is None else self.explicit[start:end],
            self.times.slice(start, end),
        )

    def take(self, order: npt.NDArray[np.intp]) -> _Rows:
        return _Rows(
            self.columns.take(order),
            self.lengths.take(order),
            self.sizes[order],
            None if self.explicit is None else self.explicit[order],
            self.times.sorted_by(order),
        )


@dataclass(frozen=True, slots=True)
class _GroupedRows:
    """Rows with their partitions: ``sizes`` in the order of partitions, ``columns`` and ``lengths`` as they came."""

    topic: str
    columns: RecordColumns
    lengths: FieldLengths
    order: npt.NDArray[np.intp] | None
    sizes: RowSizes


class ColumnarAppender:
    """Safe to call from several threads; each call holds no lock while it encodes."""

    def __init__(self, config: AppendConfig, parts: AppendParts) -> None:
        self._config = config
        self._parts = parts
        self._slice_limit = max(1, min(_LARGEST_SLICE, config.buffer_memory // 4))

    @property
    def slice_limit(self) -> int:
        """The most bytes that are encoded at once, unless one record is larger."""
        return self._slice_limit

    def append(self, topic: str, columns: RecordColumns, explicit: Partitions | None, receipt: SendReceipt) -> None:
        """Rows of one topic; blocks for metadata and memory, together up to max.block.ms.

        Each time that memory was waited for and granted, max.block.ms begins anew: one call may have many times the
        rows that buffer.memory holds.
        ``explicit`` are partition numbers, ``NOT_GIVEN`` where the partitioner chooses. What was appended before an
        error stays appended: ``receipt`` knows.
        """
        if not len(columns):
            return
        lengths = FieldLengths.of(columns)
        self._check_sizes(lengths)
        clock, max_block = self._parts.clock, self._config.max_block_ms
        began = clock.now()
        snapshot = self._await_topic(topic, explicit)
        remaining = max(0.0, max_block - (clock.now() - began))
        limit = self._parts.accumulator.batch_limit(topic)
        rows = self._rows(columns, lengths, explicit, limit, self._parts.clock.epoch_ms())
        thin = self._slices_are_thin(rows.sizes, len(snapshot.topics[topic].leaders) * limit)
        for grouped in (self._by_partition if thin else self._as_they_come)(snapshot, topic, rows, limit):
            if receipt.error is not None:
                raise receipt.error
            if self._append(grouped, receipt, remaining):
                remaining = max_block

    def _as_they_come(self, snapshot: ClusterSnapshot, topic: str, rows: _Rows, limit: int) -> Iterator[_GroupedRows]:
        # A partitioner that may refuse a row sees all of them first: until then nothing is appended.
        checked = isinstance(self._parts.partitioner, CustomPartitioner)
        partitions = self._partitions(snapshot, topic, rows) if checked else None
        for start, end in _slices(rows.sizes, self._slice_limit):
            part = rows.slice(start, end)
            chosen = self._partitions(snapshot, topic, part) if partitions is None else partitions[start:end]
            yield _grouped(topic, part, *group_by_partition(chosen), limit)

    def _by_partition(self, snapshot: ClusterSnapshot, topic: str, rows: _Rows, limit: int) -> Iterator[_GroupedRows]:
        partitions = self._partitions(snapshot, topic, rows)
        order = order_by_partition(partitions)
        rows, partitions = rows.take(order), partitions[order]
        for start, end in _slices(rows.sizes, self._slice_limit):
            yield _grouped(topic, rows.slice(start, end), runs_as_given(partitions[start:end]), None, limit)

    def _slices_are_thin(self, sizes: Int64Array, full: int) -> bool:
        """Whether slices by partition, instead of as the rows come, make larger batches.

        ``full`` bytes are a batch for each partition: less than that in a slice is spread over all of them.
        """
        return self._slice_limit < full and self._slice_limit < int(sizes.sum())

    def append_staged(self, stage: StagedColumns, claim: Claim, listeners: BatchListeners) -> None:
        """Rows that were checked, and their memory reserved, one by one. Never waits: the sender may call it.

        The claim is the caller's to undo.
        """
        limit = self._parts.accumulator.batch_limit(stage.topic)
        rows = self._rows(stage.columns, FieldLengths.of(stage.columns), stage.explicit, limit, stage.timestamp)
        partitions = self._partitions(stage.snapshot, stage.topic, rows)
        grouped = _grouped(stage.topic, rows, *group_by_partition(partitions), limit)
        lagging = self._parts.accumulator.lagging(stage.topic, grouped.sizes.runs, stage.created)
        self._publish(claim, grouped, listeners, stage.created, lagging)

    def _append(self, rows: _GroupedRows, receipt: SendReceipt, max_wait_ms: float) -> bool:
        """One slice; whether it had to wait for memory."""
        claim = Claim(Reservation())
        try:
            now = self._parts.clock.now()
            lagging = self._parts.accumulator.lagging(rows.topic, rows.sizes.runs, now)
            size = self._memory_for(rows.sizes, lagging)
            waited = self._parts.accumulator.pool.reserve(claim.memory, size, max_wait_ms, self._parts.call_sender)
            self._publish(claim, rows, receipt, self._parts.clock.now(), lagging)
            return waited
        except BaseException as error:
            undo(self._parts, claim, receipt, error)
            raise

    def _publish(
        self, claim: Claim, rows: _GroupedRows, listeners: BatchListeners, created: float, lagging: frozenset[int]
    ) -> None:
        publish(
            self._parts,
            claim,
            RowsToPublish(rows.topic, rows.sizes, created, listeners),
            lambda claim: _encode(rows, claim),
            lambda claim, encoded: _lay_in(claim, encoded, rows, listeners, lagging),
        )

    def _memory_for(self, sizes: RowSizes, lagging: frozenset[int]) -> int:
        """Bytes for the encoded rows and for copies of those that will wait."""
        encoded = sizes.cumulative[-1]
        return max(encoded, min(encoded + _bound_of_copies(sizes, lagging), self._parts.accumulator.pool.total))

    def _check_sizes(self, lengths: FieldLengths) -> None:
        estimates = java_size_estimate(lengths)
        largest = int(estimates.argmax())
        size = int(estimates[largest])
        for option, limit in (
            ("max.request.size", self._config.max_request_size),
            ("buffer.memory", self._config.buffer_memory),
        ):
            if size > limit:
                raise RecordTooLargeError(
                    f"The message is {size} bytes when serialized which is larger than {limit}, which is the value of "
                    f"the {option} configuration.",
                    row=int(np.argmax(estimates > limit)),
                )

    def _await_topic(self, topic: str, explicit: Partitions | None) -> ClusterSnapshot:
        highest = None
        if explicit is not None:
            if int(explicit.min()) < NOT_GIVEN:
                row = int(np.argmax(explicit < NOT_GIVEN))
                raise InvalidRecordError(
                    f"Invalid partition: {explicit[row]}. Partition number should always be non-negative or null.", row
                )
            highest = int(explicit.max())
        partition = None if highest is None or highest == NOT_GIVEN else highest
        parts = self._parts
        return parts.metadata.wait_for_topic(
            topic, partition, self._config.max_block_ms, parts.clock, parts.call_sender
        )

    def _rows(
        self, columns: RecordColumns, lengths: FieldLengths, explicit: Partitions | None, limit: int, timestamp: int
    ) -> _Rows:
        if columns.timestamps is None:
            times = RowTimes.one_for_all(timestamp, self._config.linger_ms)
        else:
            times = RowTimes.one_each(columns.timestamps)
        return _Rows(columns, lengths, size_bounds(lengths, times.bound_bytes, limit), explicit, times)

    def _partitions(self, snapshot: ClusterSnapshot, topic: str, rows: _Rows) -> Partitions:
        count, load = len(snapshot.topics[topic].leaders), self._parts.load(snapshot, topic)
        return self._parts.partitioner.partition(topic, rows.columns, rows.explicit, rows.sizes, count, load)


def _slices(sizes: Int64Array, limit: int) -> Iterator[tuple[int, int]]:
    """Cuts rows into slices of at most ``limit`` bytes, or one row."""
    cumulative = np.cumsum(sizes)
    start, before = 0, 0
    while start < len(sizes):
        end = max(int(np.searchsorted(cumulative, before + limit, side="right")), start + 1)
        yield start, end
        start, before = end, int(cumulative[end - 1])


def _grouped(
    topic: str, rows: _Rows, runs: Sequence[Run], order: npt.NDArray[np.intp] | None, limit: int
) -> _GroupedRows:
    sizes = rows.sizes if order is None else rows.sizes[order]
    in_order = row_sizes(runs, cumulated(sizes), limit, rows.times.sorted_by(order))
    return _GroupedRows(topic, rows.columns, rows.lengths, order, in_order)


def _encode(rows: _GroupedRows, claim: Claim) -> EncodedRecords:
    """All rows of a claim at once: each record's deltas are against the batch the claim has put it in."""
    timestamps = rows.sizes.timestamps
    starts = np.array([each.start for each in claim.ranges])
    lengths = np.diff(starts, append=len(rows.columns))
    firsts = np.array([each.first for each in claim.ranges])
    bases = np.array([each.batch.base_timestamp for each in claim.ranges])
    offset_deltas = np.arange(len(rows.columns)) - np.repeat(starts - firsts, lengths)
    if not isinstance(timestamps, int):
        timestamp_deltas: Int64Array | int = np.asarray(timestamps) - np.repeat(bases, lengths)
    elif (bases == timestamps).all():
        timestamp_deltas = 0
    else:
        timestamp_deltas = np.repeat(timestamps - bases, lengths)
    return encode_records(rows.columns, offset_deltas, timestamp_deltas, rows.order, rows.lengths)


def _bound_of_copies(sizes: RowSizes, lagging: frozenset[int]) -> int:
    """Bytes of the rows that ``_lay_in`` may copy: a lagging partition's, and of any other those of its open batch,
    which holds ``limit`` bytes or one larger row.
    """
    copies = 0
    cumulative = sizes.cumulative
    for partition, start, end in sizes.runs:
        size = cumulative[end] - cumulative[start]
        if partition not in lagging:
            size = min(size, max(sizes.limit, cumulative[end] - cumulative[end - 1]))
        copies += size
    return copies


def _lay_in(
    claim: Claim, encoded: EncodedRecords, rows: _GroupedRows, listeners: BatchListeners, lagging: frozenset[int]
) -> None:
    """Give each batch its bytes, and the memory that these keep.

    A filled batch keeps a slice of the encoded rows. A slice pins all of them while it waits, so what is not about to
    be sent is copied: open batches, and those of a partition that lags.
    """
    data, starts = encoded
    shared_buffer = SharedBuffer(len(data))
    told = listeners.listeners(rows.order, [each.start for each in claim.ranges], len(rows.columns))
    latest = _latest_timestamps(claim, rows.sizes)
    for (batch, start, end, first), timestamp, listener in zip(claim.ranges, latest, told, strict=True):
        records = data[starts[start] : starts[end]]
        record_range = RecordRange(listener, first, end - start, len(records))
        if not batch.filled or batch.partition.partition in lagging:
            batch.add(bytes(records), record_range, timestamp, claim.memory)
        else:
            batch.add(records, record_range, timestamp, claim.memory, shared_buffer)


def _latest_timestamps(claim: Claim, rows: RowSizes) -> list[int]:
    if isinstance(rows.timestamps, int):
        return [rows.timestamps] * len(claim.ranges)
    starts = [each.start for each in claim.ranges]
    latest: list[int] = np.maximum.reduceat(np.asarray(rows.timestamps), starts).tolist()
    return latest
