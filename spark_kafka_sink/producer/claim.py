"""Claim → encode → publish: rows enter batches while no thread holds a lock for the encoding (ADR 1).

Under the accumulator's lock a claim cuts rows into batches and marks these as claimed. No other thread changes or
drains them until the claim is published or given back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.producer.buffer_pool import Reservation, SharedBuffer
from spark_kafka_sink.producer.producer_batch import Buffer, ProducerBatch, RecordRange
from spark_kafka_sink.records.columns import Int64Array, bytes_of_linger, varint_size

Order: TypeAlias = npt.NDArray[np.intp]

_WIDEST_TIMESTAMP_DELTA = 10


class Run(NamedTuple):
    """Neighbouring rows ``start .. end - 1`` of one partition."""

    partition: TopicPartition
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RowTimes:
    """Record timestamps (epoch ms): one per row, or one for all.

    ``earliest`` and ``latest`` may be those of more rows. ``delta_bytes``: the most bytes of a timestamp delta. A batch
    accepts rows within ``max_delta`` ms of its first one.
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
            # The rows may join a batch of earlier ones, as rows of one time may.
            width = max(width, min(varint_size(2 * (latest - earliest)), _WIDEST_TIMESTAMP_DELTA))
        # the largest delta whose zigzag varint takes so many bytes
        return cls(timestamps, earliest, latest, width, (1 << (7 * width - 1)) - 1)

    def of_rows(self, rows: slice | Order | None) -> RowTimes:
        return self if isinstance(self.values, int) or rows is None else replace(self, values=self.values[rows])

    def at(self, row: int) -> int:
        return self.values if isinstance(self.values, int) else int(self.values[row])


@dataclass(frozen=True, slots=True)
class RowSizes:
    """The sizes and times of rows that are not encoded yet, in one order.

    ``cumulative[i]``: upper bound in bytes of rows ``0 .. i - 1`` (n + 1 entries); valid for batches of at most
    ``limit`` bytes, whatever their topic.
    """

    runs: Sequence[Run]
    cumulative: Sequence[int]
    limit: int
    times: RowTimes


class ClaimedRange(NamedTuple):
    """Rows ``start .. end - 1`` become records ``first ..`` of ``batch``."""

    batch: ProducerBatch
    start: int
    end: int
    first: int


class EncodedRange(NamedTuple):
    """The encoded ``rows`` that ``batch`` gets. ``shared_buffer``: what ``records`` are a slice of, unless they are the
    batch's own. ``largest_record``: an upper bound in bytes of each of the rows.
    """

    batch: ProducerBatch
    records: Buffer
    rows: RecordRange
    max_timestamp: int
    shared_buffer: SharedBuffer | None
    largest_record: int


class CompressedBatch(NamedTuple):
    """The final ``records`` of a filled batch; ``plain_size``: their bytes before compression."""

    batch: ProducerBatch
    codec: int
    records: bytes
    plain_size: int


class OpenBatch(NamedTuple):
    """A batch that was open before the claim, and what it had then."""

    batch: ProducerBatch
    rows: int
    size: int


class Claim:
    """The memory and batches that one append owns. Unless it is published it must be given back, also after an
    exception that strikes at any line; so each change is noted before it is made.

    The batches get their rows when the claim is published: until then it costs nothing to give it back, and rows that
    earlier appends have put into the same batches are not touched.

    ``ranges`` in row order. ``filled``: batches that accept no further row. ``opened``: new batches. ``before``:
    batches that were open already. ``encoded``: the rows, and ``compressed`` the filled batches if there is a codec.
    ``expected``: the callbacks count on the rows. ``publishing``: it is too late to give it back. ``published``: the
    sender may see everything.
    """

    __slots__ = (
        "_open", "before", "compressed", "encoded", "expected", "filled", "memory", "opened", "published",
        "publishing", "ranges",
    )  # fmt: skip

    def __init__(self, memory: Reservation) -> None:
        self.memory = memory
        self.ranges: list[ClaimedRange] = []
        self.filled: list[ProducerBatch] = []
        self.opened: list[ProducerBatch] = []
        self.before: list[OpenBatch] = []
        self.encoded: list[EncodedRange] = []
        self.compressed: list[CompressedBatch] = []
        self.expected = self.publishing = self.published = False
        self._open: dict[TopicPartition, ProducerBatch] = {}

    def take(self, queue: deque[ProducerBatch], run: Run, rows: RowSizes, limit: int, now: float) -> None:
        """Cut one run into the open batch of ``queue`` and new ones of at most ``limit`` bytes behind it. Under the
        accumulator's lock.
        """
        partition, row, end = run
        batch = self._open.pop(partition, None) or self._claim_last(queue, rows)
        cumulative = rows.cumulative
        while row < end:
            if batch is None:
                batch = ProducerBatch(partition, now, limit, rows.times.at(row))
                batch.claimed = True
                self.opened.append(batch)
                queue.append(batch)
            taken = cumulative[row]
            room = min(batch.limit, rows.limit) - batch.size
            cut = bisect_right(cumulative, taken + room, row + 1, end + 1) - 1
            if cut == row and not batch.count:
                cut += 1  # a record larger than batch.size gets a batch of its own
            if cut > row:
                self.ranges.append(ClaimedRange(batch, row, cut, batch.count))
                batch.count += cut - row
                batch.size += cumulative[cut] - taken
                row = cut
            if row < end or batch.size >= batch.limit:
                batch.filled = True
                self.filled.append(batch)
                batch = None
        if batch is not None:
            self._open[partition] = batch

    def batches(self) -> list[ProducerBatch]:
        """Every claimed batch, once."""
        return [batch.batch for batch in self.before] + self.opened

    def add_rows(self) -> None:
        """Give the batches their rows and the memory that these keep, and seal the filled ones. Under the accumulator's
        lock.
        """
        memory = self.memory
        for batch, records, rows, max_timestamp, shared_buffer, largest in self.encoded:
            if largest > batch.largest_record:
                batch.largest_record = largest
            batch.add(records, rows, max_timestamp, memory, shared_buffer)
        for batch, codec, compressed, plain_size in self.compressed:
            size = len(compressed)
            memory.size += batch.own_bytes - size
            batch.own_bytes, batch.buffers = size, []
            batch.seal(codec, [compressed], plain_size)
        if not self.compressed:
            for batch in self.filled:
                if batch.payload is None:
                    batch.seal(0, batch.buffers, sum(map(len, batch.buffers)))

    def _claim_last(self, queue: deque[ProducerBatch], rows: RowSizes) -> ProducerBatch | None:
        """The last batch if it is open, unclaimed and accepts the timestamps of ``rows``."""
        batch = queue[-1] if queue else None
        if batch is None or batch.payload is not None or batch.claimed or batch.filled:
            return None
        self.before.append(OpenBatch(batch, batch.count, batch.size))
        batch.claimed = True
        times, base = rows.times, batch.base_timestamp
        if max(abs(times.latest - base), abs(times.earliest - base)) <= times.max_delta:
            return batch
        batch.filled = True
        self.filled.append(batch)
        return None
