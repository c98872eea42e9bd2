"""``append``: a function that puts a slice of rows into batches. It changes nothing that other threads see until it has
encoded all rows.

For a call of columns every batch is new, so it runs on the caller's thread. For ``send`` and small calls, rows join the
open batches of their partitions, so it runs on the sender thread, which owns these batches (Java:
``RecordAccumulator.append`` and ``ProducerBatch.tryAppend``).

Example: 10 rows of 100 bytes for one partition, with batches of at most 400 bytes. Filled to the limit, the batches
would have 4, 4 and 2 rows; evenly filled, they have 4, 3 and 3. If the partition has an open batch of 250 bytes, the
first row joins it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.producer.few_records import FewRecords
from spark_kafka_sink.producer.producer_batch import BatchListener, ProducerBatch, RecordRange, SharedBuffer
from spark_kafka_sink.producer.rows import RowsByPartition, Slice
from spark_kafka_sink.records.arrays import Int64Array
from spark_kafka_sink.records.batch import HEADER_SIZE, encode_record
from spark_kafka_sink.records.encode import encode_records

NewBatch: TypeAlias = Callable[[TopicPartition, int], ProducerBatch]
"""Makes an empty batch of a partition with this base timestamp (epoch ms), with its ``limit``."""

_NO_BATCHES: Mapping[TopicPartition, ProducerBatch] = {}


class _Piece(NamedTuple):
    """Rows ``start .. end - 1`` become records ``first ..`` of ``batch``, up to ``size`` bytes."""

    batch: ProducerBatch
    start: int
    end: int
    first: int
    size: int


class Appended(NamedTuple):
    """The batches of an append. ``opened``: the new batches, in order. ``filled``: the full batches, new or not.
    ``size``: bytes of the appended records."""

    opened: Sequence[ProducerBatch]
    filled: Sequence[ProducerBatch]
    size: int


def append(
    rows: Slice | FewRecords,
    listener: BatchListener,
    new_batch: NewBatch,
    open_batches: Mapping[TopicPartition, ProducerBatch] = _NO_BATCHES,
    *,
    evenly: bool = False,
) -> Appended:
    """Puts all rows into batches, in order. A batch that can take no further row is ``filled``.

    ``open_batches``: the last batch of a partition, where it may take rows of these times. ``evenly``: the batches of a
    partition get about the same bytes, instead of a small rest in the last batch, and share one buffer. A record larger
    than a batch's limit gets a batch of its own.
    """
    cutter = _Cutter(rows, new_batch, open_batches, evenly)
    for partition, start, end in rows.runs:
        cutter.cut(partition, start, end)
    pieces = cutter.pieces
    data: memoryview
    ends: Sequence[int]
    if isinstance(rows, Slice):
        data, ends = encode_records(rows.columns, *_deltas(rows, pieces), rows.order, rows.lengths)
    else:
        data, ends = _encode_each(rows, pieces)
    shared = SharedBuffer(len(data)) if evenly else None
    each_piece = zip(pieces, _latest(rows, pieces), _maxima(rows.sizes, pieces), strict=True)
    for (batch, start, end, first, size), latest, largest in each_piece:
        records = data[ends[start] : ends[end]]
        batch.add(
            records if shared is not None else bytes(records),  # a slice would keep the buffer of all rows
            RecordRange(listener, first, end - start, len(records), start),
            latest,
            largest,
        )
        batch.count += end - start
        batch.size += size
        if shared is None:
            batch.own_bytes += len(records)
        elif batch.shared_buffer is None:
            batch.shared_buffer = shared
            shared.users += 1
    for batch in cutter.filled:
        batch.filled = True
    return Appended(cutter.opened, cutter.filled, len(data))


class _Cutter:
    """Cuts runs into pieces, each for one batch. Only new batches change."""

    def __init__(
        self,
        rows: RowsByPartition,
        new_batch: NewBatch,
        open_batches: Mapping[TopicPartition, ProducerBatch],
        evenly: bool,
    ) -> None:
        self._rows = rows
        self._new_batch = new_batch
        self._current = {partition: (batch, batch.count, batch.size) for partition, batch in open_batches.items()}
        """The open batch of each partition, with its records and bytes after the pieces so far."""
        self._targets: dict[TopicPartition, int] = {}
        self._left: dict[TopicPartition, int] = {}
        """The bytes of each partition that are not cut yet."""
        self.pieces: list[_Piece] = []
        self.opened: list[ProducerBatch] = []
        self.filled: list[ProducerBatch] = []
        if evenly:
            cumulative = rows.cumulative
            for partition, start, end in rows.runs:
                self._left[partition] = self._left.get(partition, 0) + cumulative[end] - cumulative[start]

    def cut(self, partition: TopicPartition, row: int, end: int) -> None:
        cumulative = self._rows.cumulative
        while row < end:
            current = self._current.pop(partition, None)
            if current is None:
                batch = self._open(partition, row)
                count, size = 0, batch.size
            else:
                batch, count, size = current
            target = self._targets.get(partition, batch.limit)
            taken = cumulative[row]
            cut = bisect_left(cumulative, taken + target - size, row + 1, end)  # with the row that reaches the target
            # The row that reaches the target may be beyond the limit. The bounds hold up to the rows' own limit only.
            if cumulative[cut] - taken > min(batch.limit, self._rows.limit) - size:
                cut -= 1
            if cut == row and not count:
                cut += 1  # a record larger than the limit
            if cut > row:
                added = cumulative[cut] - taken
                self.pieces.append(_Piece(batch, row, cut, count, added))
                count, size, row = count + cut - row, size + added, cut
                if self._left:
                    self._left[partition] -= added
            if row < end or size >= target:
                self.filled.append(batch)
            else:
                self._current[partition] = batch, count, size

    def _open(self, partition: TopicPartition, row: int) -> ProducerBatch:
        batch = self._new_batch(partition, self._rows.times.at(row))
        self.opened.append(batch)
        if self._left:
            # The rest in as few batches as the limit allows, evenly: ceil(left / ceil(left / room)) bytes in each.
            left, room = self._left[partition], max(1, batch.limit - HEADER_SIZE)
            self._targets[partition] = min(batch.limit, HEADER_SIZE + -(-left // -(-left // room)))
        return batch


def _encode_each(rows: FewRecords, pieces: Sequence[_Piece]) -> tuple[memoryview, Sequence[int]]:
    data, ends, times = bytearray(), [0], rows.times
    for batch, start, end, first, _size in pieces:
        for row in range(start, end):
            key, value, headers = rows.fields[row]
            data += encode_record(first + row - start, key, value, times.at(row) - batch.base_timestamp, headers)
            ends.append(len(data))
    return memoryview(data), ends


def _deltas(rows: Slice, pieces: Sequence[_Piece]) -> tuple[npt.NDArray[np.integer], Int64Array | int]:
    """The offset deltas and the timestamp deltas of all rows."""
    timestamps = rows.times.values
    starts = np.array([piece.start for piece in pieces])
    lengths = np.diff(starts, append=rows.count)
    firsts = np.array([piece.first for piece in pieces])
    bases = np.array([piece.batch.base_timestamp for piece in pieces])
    offset_deltas = np.arange(rows.count) - np.repeat(starts - firsts, lengths)
    if not isinstance(timestamps, int):
        timestamp_deltas: Int64Array | int = timestamps - np.repeat(bases, lengths)
    elif (bases == timestamps).all():
        timestamp_deltas = 0
    else:
        timestamp_deltas = np.repeat(timestamps - bases, lengths)
    return offset_deltas, timestamp_deltas


def _latest(rows: RowsByPartition, pieces: Sequence[_Piece]) -> Sequence[int]:
    """The latest timestamp of each piece."""
    times = rows.times.values
    return [times] * len(pieces) if isinstance(times, int) else _maxima(times, pieces)


def _maxima(numbers: Int64Array, pieces: Sequence[_Piece]) -> list[int]:
    maxima: list[int] = np.maximum.reduceat(numbers, [piece.start for piece in pieces]).tolist()
    return maxima
