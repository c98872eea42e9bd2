"""Rows on their way into batches: input columns, upper bounds of sizes, partitions, encoded records.

``ColumnRows`` are Arrow columns in the caller's order, ``GroupedRows`` the same with their partitions: of one topic or
of many, as a partition is a number among those of all topics (``TopicPartitions``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from spark_kafka_sink.common.model import LARGEST_INT32, ClusterSnapshot, TopicPartition
from spark_kafka_sink.errors import InvalidRecordError, RecordTooLargeError, clause
from spark_kafka_sink.producer.claim import ClaimedRange, Order, RowSizes, RowTimes, Run
from spark_kafka_sink.producer.partitioner import LEFT_OUT, NOT_GIVEN, Explicit
from spark_kafka_sink.producer.producer_batch import Buffer, ProducerBatch
from spark_kafka_sink.records.columns import (
    SMALLEST_RECORD,
    FieldLengths,
    Int32Array,
    Int64Array,
    Integers,
    RecordColumns,
    TopicColumn,
    binary_column,
    cumulate,
    int64_numbers,
    null_mask,
    one_array,
    record_size_bounds,
    stable_order,
    timestamp_column,
)
from spark_kafka_sink.records.encode import encode_records, header_column
from spark_kafka_sink.records.encode_values import encode_values
from spark_kafka_sink.records.from_python import python_column

Column: TypeAlias = Any
"""An Arrow array, a chunked array, or what ``python_column`` takes; None: not given."""
Mask: TypeAlias = npt.NDArray[np.bool_]

_FEW_ROWS_PER_RUN = 32


def record_columns(given: Mapping[str, Column], now_ms: int) -> tuple[RecordColumns | None, Int32Array | None]:
    """The columns for the encoder (None without rows) and the partitions (None when not given).

    ``given``: the columns key, value, headers, timestamp and partition, None when not given.
    Raises ``InvalidRecordError`` for columns of unequal length, of a type that cannot be sent, or above 2 GiB.
    """
    try:
        return _record_columns(given, now_ms)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError) as error:
        raise InvalidRecordError(
            f"The columns cannot be sent in one call: {clause(error)}. A column may have at most 2 GiB of data; call "
            "send_columns for fewer rows."
        ) from error


def _record_columns(given: Mapping[str, Column], now_ms: int) -> tuple[RecordColumns | None, Int32Array | None]:
    arrays = {name: arrow_column(column, name) for name, column in given.items() if column is not None}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidRecordError(f"The columns must be of one length, not {lengths}.")
    if not any(lengths.values()):
        return None, None
    partitions = _partitions(arrays.pop("partition")) if "partition" in arrays else None
    if not arrays:
        raise InvalidRecordError("Give at least one of key, value, headers and timestamp.")
    columns = RecordColumns(
        key=_bytes(arrays, "key"),
        value=_bytes(arrays, "value"),
        headers=header_column(arrays["headers"]) if "headers" in arrays else None,
        timestamps=timestamp_column(arrays["timestamp"], now_ms) if "timestamp" in arrays else None,
    )
    return columns, partitions


def arrow_column(column: Column, name: str) -> pa.Array:
    """Raises ``InvalidRecordError`` that names the column."""
    return one_array(column if isinstance(column, pa.Array | pa.ChunkedArray) else python_column(column, name), name)


def _bytes(arrays: Mapping[str, pa.Array], name: str) -> pa.BinaryArray | None:
    try:
        return binary_column(arrays[name]) if name in arrays else None
    except InvalidRecordError as error:
        raise InvalidRecordError(f"{name}: {error}") from error


def _partitions(array: pa.Array) -> Int32Array:
    if not (pt.is_integer(array.type) or pt.is_null(array.type)):
        raise InvalidRecordError(f"partition must be a column of int, not {array.type}.")
    if pt.is_null(array.type):
        return np.full(len(array), NOT_GIVEN, np.int32)
    partitions = int64_numbers(array, "partition")
    missing = null_mask(array)
    partitions[missing] = 0
    refuse_partitions(partitions, partitions < 0)
    if partitions.max(initial=0) > LARGEST_INT32:
        row = int(np.argmax(partitions))
        raise InvalidRecordError(
            f"Invalid partition: {partitions[row]}. Partition number should be at most {LARGEST_INT32}.", row
        )
    partitions[missing] = NOT_GIVEN
    return partitions.astype(np.int32)


def left_out_rows(explicit: Explicit) -> Mask | None:
    """None if there is no such row."""
    if explicit is None:
        return None
    left_out: Mask = explicit == LEFT_OUT
    return left_out if left_out.any() else None


def refuse_partitions(partitions: Integers, negative: npt.NDArray[np.bool_]) -> None:
    """Raises ``InvalidRecordError`` for the first row that is ``negative``."""
    if negative.any():
        row = int(np.argmax(negative))
        raise InvalidRecordError(negative_partition(partitions[row]), row)


def negative_partition(number: int | np.integer[Any]) -> str:
    """Java's text (``ProducerRecord``)."""
    return f"Invalid partition: {number}. Partition number should always be non-negative or null."


def check_sizes(estimates: Int64Array, limits: Mapping[str, int]) -> None:
    """Raises ``RecordTooLargeError``, with the first row over the limit. ``limits``: option → bytes."""
    largest = int(estimates.max())
    for option, limit in limits.items():
        if largest > limit:
            row = int(np.argmax(estimates > limit))
            raise RecordTooLargeError(
                f"The message is {estimates[row]} bytes when serialized which is larger than {limit}, which is the "
                f"value of the {option} configuration.",
                row=row,
            )


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """The partitions of several topics in one row of numbers: those of topic ``i`` begin at ``firsts[i]``.

    So one sort groups rows by topic and partition. Of one topic, the numbers are its partitions.
    """

    names: Sequence[str]
    counts: Int32Array
    firsts: Int32Array

    @classmethod
    def of(cls, names: Sequence[str], snapshot: ClusterSnapshot) -> TopicPartitions:
        counts = np.array([len(snapshot.topics[name].leaders) for name in names], np.int32)
        return cls(names, counts, np.cumsum(counts, dtype=np.int32) - counts)

    def __len__(self) -> int:
        return int(self.firsts[-1] + self.counts[-1])

    def runs(self, numbers: Int32Array, bounds: Sequence[int]) -> list[Run]:
        """Runs of the rows between ``bounds``, each of the partition with its number."""
        topics = np.searchsorted(self.firsts, numbers, side="right") - 1
        partitions = numbers - self.firsts[topics]
        each = zip(topics.tolist(), partitions.tolist(), bounds, bounds[1:], strict=False)
        return [Run(TopicPartition(self.names[topic], partition), start, end) for topic, partition, start, end in each]


@dataclass(frozen=True, slots=True)
class ColumnRows:
    """Columns in the caller's order. ``sizes``: upper bound in bytes of each record in a batch of ``limit`` bytes.

    ``left_out``: rows of size 0 that ``grouped`` drops; None: no row.
    """

    topics: TopicColumn
    columns: RecordColumns
    explicit: Explicit
    lengths: FieldLengths
    times: RowTimes
    limit: int
    sizes: Int64Array
    left_out: Mask | None = None

    @classmethod
    def of(
        cls,
        topics: TopicColumn,
        columns: RecordColumns,
        explicit: Explicit,
        lengths: FieldLengths,
        times: RowTimes,
        limit: int,
    ) -> ColumnRows:
        sizes = record_size_bounds(lengths, limit // SMALLEST_RECORD, times.delta_bytes)
        return cls(topics, columns, explicit, lengths, times, limit, sizes)

    def without(self, left_out: Mask | None) -> ColumnRows:
        """The same columns, in which these rows are left out."""
        if left_out is None:
            return self
        self.sizes[left_out] = 0
        return replace(self, left_out=left_out)

    def __getitem__(self, rows: slice) -> ColumnRows:
        start, end, _ = rows.indices(len(self.sizes))
        if end - start == len(self.sizes):
            return self
        return self._of_rows(rows, self.columns.slice(start, end - start))

    def by_partition(self, partitions: Int32Array, count: int) -> Order:
        """The rows that are not left out, sorted stably by ``partitions``, which are below ``count``."""
        if self.left_out is None:
            return stable_order(partitions)
        partitions = partitions.copy()
        partitions[self.left_out] = count
        order = stable_order(partitions)
        return order[: len(order) - np.count_nonzero(self.left_out)]

    def take(self, order: Order) -> ColumnRows:
        """Copies the rows into this order, so that they refer to none of the caller's Arrow buffers."""
        return self._of_rows(order, self.columns.take(order))

    def _of_rows(self, rows: slice | Order, columns: RecordColumns) -> ColumnRows:
        return ColumnRows(
            topics=self.topics[rows],
            columns=columns,
            explicit=None if self.explicit is None else self.explicit[rows],
            lengths=self.lengths[rows],
            times=self.times.of_rows(rows),
            limit=self.limit,
            sizes=self.sizes[rows],
            left_out=None if self.left_out is None else self.left_out[rows],
        )

    def group(self, known: TopicPartitions, partitions: Int32Array, *, sorts: bool = True) -> GroupedRows:
        """The rows by partition: one run each, sorted stably. ``partitions``: their numbers in ``known``.

        Not sorted: long runs (sticky partitioning), where a partition may have several, and without ``sorts``.
        """
        order, sizes = None, self.sizes
        starts = _run_starts(partitions)
        few = len(starts) * _FEW_ROWS_PER_RUN <= len(partitions) or len(starts) == 1
        if sorts and not few:
            order = self.by_partition(partitions, len(known))
        elif self.left_out is not None:
            order = np.flatnonzero(~self.left_out)
        if order is not None:
            partitions, sizes = partitions[order], sizes[order]
            starts = _run_starts(partitions)
        bounds = [*starts.tolist(), len(partitions)]
        runs = known.runs(partitions[starts], bounds)
        bounded = RowSizes(runs, cumulate(sizes), self.limit, self.times.of_rows(order))
        largest = int(sizes.max()) if len(known.names) == 1 else sizes
        return GroupedRows(order, bounded, largest, self.columns, self.lengths)


def slices(sizes: Int64Array, limit: int) -> Iterator[slice]:
    """Slices of at most ``limit`` bytes, or of one row, of rows with these sizes."""
    cumulative = np.cumsum(sizes)
    start, before = 0, 0
    while start < len(cumulative):
        end = max(int(np.searchsorted(cumulative, before + limit, side="right")), start + 1)
        yield slice(start, end)
        start, before = end, int(cumulative[end - 1])


def _run_starts(numbers: Integers) -> Order:
    return np.concatenate(([0], np.flatnonzero(numbers[1:] != numbers[:-1]) + 1))


@dataclass(frozen=True, slots=True)
class Rows(ABC):
    """Rows in runs by partition, ready for a claim.

    Row ``i`` of ``sizes`` is the caller's row ``order[i]``; None: ``sizes`` are in the caller's order. A row that
    ``order`` lacks is not encoded. ``largest_record``: upper bound in bytes of all records; of each one if there are
    several topics.
    """

    order: Order | None
    sizes: RowSizes
    largest_record: int | Int64Array

    @abstractmethod
    def encode(self, ranges: Sequence[ClaimedRange]) -> Sequence[Buffer]:
        """The records of each range, with the deltas of its batch."""

    def latest(self, ranges: Sequence[ClaimedRange]) -> Sequence[int]:
        """The latest timestamp of each range."""
        times = self.sizes.times.values
        return [times] * len(ranges) if isinstance(times, int) else _largest(times, ranges)

    def largest(self, ranges: Sequence[ClaimedRange]) -> Sequence[int]:
        """Upper bound in bytes of the records of each range."""
        largest = self.largest_record
        return [largest] * len(ranges) if isinstance(largest, int) else _largest(largest, ranges)


@dataclass(frozen=True, slots=True)
class GroupedRows(Rows):
    """``ColumnRows`` with their partitions. Columns and lengths are in the caller's order."""

    columns: RecordColumns
    lengths: FieldLengths

    def encode(self, ranges: Sequence[ClaimedRange]) -> Sequence[Buffer]:
        """Slices of one buffer with all rows."""
        data, ends = encode_records(self.columns, *self._deltas(ranges), self.order, self.lengths)
        return [data[ends[start] : ends[end]] for _, start, end, _ in ranges]

    def _deltas(self, ranges: Sequence[ClaimedRange]) -> tuple[npt.NDArray[np.integer], Int64Array | int]:
        """The offset deltas and the timestamp deltas of all rows."""
        timestamps = self.sizes.times.values
        count = len(self.sizes.cumulative) - 1
        starts = np.array([range_.start for range_ in ranges])
        lengths = np.diff(starts, append=count)
        firsts = np.array([range_.first for range_ in ranges])
        bases = np.array([range_.batch.base_timestamp for range_ in ranges])
        offset_deltas = np.arange(count) - np.repeat(starts - firsts, lengths)
        if not isinstance(timestamps, int):
            timestamp_deltas: Int64Array | int = timestamps - np.repeat(bases, lengths)
        elif (bases == timestamps).all():
            timestamp_deltas = 0
        else:
            timestamp_deltas = np.repeat(timestamps - bases, lengths)
        return offset_deltas, timestamp_deltas


def _largest(numbers: Int64Array, ranges: Sequence[ClaimedRange]) -> list[int]:
    """The largest number of the rows of each range."""
    largest: list[int] = np.maximum.reduceat(numbers, [range_.start for range_ in ranges]).tolist()
    return largest


@dataclass(frozen=True, slots=True)
class ValueRows(Rows):
    """Rows of one topic with values only, as Python bytes: joining these is faster than making columns first."""

    values: Sequence[bytes]
    lengths: Sequence[int]

    def encode(self, ranges: Sequence[ClaimedRange]) -> Sequence[Buffer]:
        """The records of each range as bytes of its own."""
        times = self.sizes.times.values
        starts = [0] if isinstance(times, int) else _run_starts(times).tolist()
        return [self._encode_range(starts, *range_) for range_ in ranges]

    def _encode_range(self, starts: list[int], batch: ProducerBatch, start: int, end: int, first: int) -> bytes:
        """``starts``: the rows at which another timestamp begins."""
        bounds = [start, *starts[bisect_right(starts, start) : bisect_left(starts, end)], end]
        pieces = [
            encode_values(
                self.values[row:stop],
                self.lengths[row:stop],
                first + row - start,
                self.sizes.times.at(row) - batch.base_timestamp,
            )
            for row, stop in pairwise(bounds)
        ]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def cumulated_value_bounds(lengths: Sequence[int], times: RowTimes, limit: int) -> Sequence[int]:
    """Upper bounds of values of these lengths as records: of the first 0, 1, … n together."""
    rows = len(lengths)
    if lengths.count(lengths[0]) == rows:
        size = _value_bound(lengths[0], limit // SMALLEST_RECORD, times.delta_bytes)
        return range(0, (rows + 1) * size, size)
    of_values = FieldLengths.of_values(np.array(lengths, np.int32))
    return cumulate(record_size_bounds(of_values, limit // SMALLEST_RECORD, times.delta_bytes))


@lru_cache(maxsize=256)
def _value_bound(length: int, delta_bound: int, delta_bytes: int) -> int:
    """Upper bound in bytes of a record with one value.

    Cached, because for one value numpy takes longer than the rest of an append.
    """
    return int(record_size_bounds(FieldLengths.of_values(np.array([length], np.int32)), delta_bound, delta_bytes)[0])
