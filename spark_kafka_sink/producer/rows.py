"""Rows on their way into batches: input columns, upper bounds of sizes, partitions.

``Rows`` are Arrow columns in the caller's order; a ``Slice`` has them in runs by partition. Both may have many topics,
because a partition is a number among the partitions of all topics (``TopicPartitions``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from spark_kafka_sink.common.model import LARGEST_INT32, ClusterSnapshot, TopicPartition
from spark_kafka_sink.errors import InvalidRecordError, RecordTooLargeError, clause
from spark_kafka_sink.producer.partitioner import LEFT_OUT, NO_PARTITION, Partitions
from spark_kafka_sink.records.arrays import (
    Int32Array,
    Int64Array,
    Integers,
    binary_column,
    int64_numbers,
    null_mask,
    one_array,
    stable_order,
    timestamp_column,
)
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from spark_kafka_sink.records.encode import header_column
from spark_kafka_sink.records.from_python import python_column
from spark_kafka_sink.records.sizes import SMALLEST_RECORD, FieldLengths, bytes_of_linger, cumulate, record_size_bounds
from spark_kafka_sink.records.varints import varint_size

Column: TypeAlias = Any
"""An Arrow array, a chunked array, or any argument of ``python_column``; None: not given."""
Mask: TypeAlias = npt.NDArray[np.bool_]
Order: TypeAlias = npt.NDArray[np.intp]

_WIDEST_TIMESTAMP_DELTA = 10

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
    """The column as an Arrow array. Raises ``InvalidRecordError`` that names the column."""
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
        return np.full(len(array), NO_PARTITION, np.int32)
    partitions = int64_numbers(array, "partition")
    missing = null_mask(array)
    partitions[missing] = 0
    refuse_partitions(partitions, partitions < 0)
    if partitions.max(initial=0) > LARGEST_INT32:
        row = int(np.argmax(partitions))
        raise InvalidRecordError(
            f"Invalid partition: {partitions[row]}. Partition number should be at most {LARGEST_INT32}.", row
        )
    partitions[missing] = NO_PARTITION
    return partitions.astype(np.int32)


def left_out_rows(named: Partitions) -> Mask | None:
    """The rows that are ``LEFT_OUT``; None if there are none."""
    if named is None:
        return None
    left_out: Mask = named == LEFT_OUT
    return left_out if left_out.any() else None


def refuse_partitions(partitions: Integers, negative: npt.NDArray[np.bool_]) -> None:
    """Raises ``InvalidRecordError`` for the first row that is ``negative``."""
    if negative.any():
        row = int(np.argmax(negative))
        raise InvalidRecordError(negative_partition(partitions[row]), row)


def negative_partition(number: int | np.integer[Any]) -> str:
    """The text of Java's ``ProducerRecord`` for a negative partition."""
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


class Run(NamedTuple):
    """Neighbouring rows ``start .. end - 1`` of one partition."""

    partition: TopicPartition
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RowTimes:
    """Record timestamps (epoch ms): one per row, or one for all.

    ``earliest`` and ``latest`` may be of more rows than these. ``delta_bytes``: the most bytes of a timestamp delta. A
    batch accepts rows within ``max_delta`` ms of its first row.
    """

    values: Int64Array | int
    earliest: int
    latest: int
    delta_bytes: int
    max_delta: int

    @classmethod
    def of(cls, timestamps: Int64Array | int, linger_ms: float) -> RowTimes:
        width = bytes_of_linger(linger_ms)
        if isinstance(timestamps, int):
            earliest = latest = timestamps
        else:
            earliest, latest = int(timestamps.min()), int(timestamps.max())
            # The rows may join a batch of earlier rows, as rows of one time may.
            width = max(width, min(varint_size(2 * (latest - earliest)), _WIDEST_TIMESTAMP_DELTA))
        # the largest delta whose zigzag varint takes so many bytes
        return cls(timestamps, earliest, latest, width, (1 << (7 * width - 1)) - 1)

    def of_rows(self, rows: slice | Order | None) -> RowTimes:
        return self if isinstance(self.values, int) or rows is None else replace(self, values=self.values[rows])

    def fit(self, base: int) -> bool:
        """Whether all rows may be in a batch with this base timestamp."""
        return max(abs(self.latest - base), abs(self.earliest - base)) <= self.max_delta

    def at(self, row: int) -> int:
        return self.values if isinstance(self.values, int) else int(self.values[row])


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """The partitions of several topics, numbered consecutively: the numbers of topic ``i`` begin at ``firsts[i]``. So
    one sort groups rows by topic and partition. With one topic, the numbers are its partitions.
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
        """The runs of rows between ``bounds``, each with the partition of its number."""
        topics = np.searchsorted(self.firsts, numbers, side="right") - 1
        partitions = numbers - self.firsts[topics]
        each = zip(topics.tolist(), partitions.tolist(), bounds, bounds[1:], strict=False)
        return [Run(TopicPartition(self.names[topic], partition), start, end) for topic, partition, start, end in each]


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns in the caller's order. ``sizes``: upper bound in bytes of each record in a batch of ``limit`` bytes.

    ``left_out``: the rows of size 0 that ``group`` drops; None: no row.
    """

    topics: TopicColumn
    columns: RecordColumns
    named: Partitions
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
        named: Partitions,
        lengths: FieldLengths,
        times: RowTimes,
        limit: int,
    ) -> Rows:
        sizes = record_size_bounds(lengths, limit // SMALLEST_RECORD, times.delta_bytes)
        return cls(topics, columns, named, lengths, times, limit, sizes)

    def __getitem__(self, rows: slice) -> Rows:
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

    def take(self, order: Order) -> Rows:
        """Copies the rows into this order, so that they refer to none of the caller's Arrow buffers."""
        return self._of_rows(order, self.columns.take(order))

    def _of_rows(self, rows: slice | Order, columns: RecordColumns) -> Rows:
        return Rows(
            topics=self.topics[rows],
            columns=columns,
            named=None if self.named is None else self.named[rows],
            lengths=self.lengths[rows],
            times=self.times.of_rows(rows),
            limit=self.limit,
            sizes=self.sizes[rows],
            left_out=None if self.left_out is None else self.left_out[rows],
        )

    def group(self, known: TopicPartitions, partitions: Int32Array, *, sorts: bool = True) -> Slice:
        """The rows by partition, with one run for each partition, sorted stably. ``partitions``: their numbers in
        ``known``. Without ``sorts``, and if runs are long (sticky partitioning), rows stay in their order, and a
        partition may have several runs.
        """
        order, sizes = None, self.sizes
        changes = np.count_nonzero(partitions[1:] != partitions[:-1])
        if sorts and changes and (changes + 1) * _FEW_ROWS_PER_RUN > len(partitions):
            order = self.by_partition(partitions, len(known))
        elif self.left_out is not None:
            order = np.flatnonzero(~self.left_out)
        if order is not None:
            partitions, sizes = partitions[order], sizes[order]
        starts = _run_starts(partitions)
        bounds = [*starts.tolist(), len(partitions)]
        runs = known.runs(partitions[starts], bounds)
        times = self.times.of_rows(order)
        return Slice(order, runs, cumulate(sizes), self.limit, times, sizes, self.columns, self.lengths)


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
class RowsByPartition:
    """Rows in runs by partition, ready to be appended.

    Row ``i`` is the caller's row ``order[i]``; None: they are in the caller's order. A row that ``order`` lacks is not
    appended. ``cumulative[i]``: upper bound in bytes of rows ``0 .. i - 1`` (n + 1 entries); valid for batches of at
    most ``limit`` bytes of any topic. ``sizes``: upper bound in bytes of each record.
    """

    order: Order | None
    runs: Sequence[Run]
    cumulative: Sequence[int]
    limit: int
    times: RowTimes
    sizes: Int64Array

    @property
    def count(self) -> int:
        return len(self.cumulative) - 1

    @property
    def size(self) -> int:
        """Upper bound in bytes of all rows."""
        return self.cumulative[-1]


@dataclass(frozen=True, slots=True)
class Slice(RowsByPartition):
    """Columns in the caller's order, in which they are encoded together."""

    columns: RecordColumns
    lengths: FieldLengths
