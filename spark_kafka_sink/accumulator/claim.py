"""Claim → encode → publish: how rows enter batches without a lock being held while they are encoded.

Under the lock a claim cuts rows into batches and marks those as claimed; nothing else may touch them until it is
published or undone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spark_kafka_sink.accumulator.buffer_pool import Reservation
from spark_kafka_sink.accumulator.partition_queue import PartitionQueue
from spark_kafka_sink.accumulator.producer_batch import ProducerBatch


class Run(NamedTuple):
    """Neighbouring rows ``start .. end - 1`` of one partition."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RowSizes:
    """What a claim must know of rows that are not encoded yet.

    ``cumulative[i]`` is the upper bound in bytes of rows ``0 .. i - 1`` (n + 1 entries); ``limit`` the bytes a batch
    may have for these bounds to be true. ``timestamps`` are epoch ms per row, or one for all; a batch takes rows only
    while they lie within ``max_timestamp_delta`` ms of its first one.
    """

    runs: Sequence[Run]
    cumulative: Sequence[int]
    limit: int
    timestamps: Sequence[int] | int
    earliest: int
    latest: int
    max_timestamp_delta: int

    def timestamp(self, row: int) -> int:
        return self.timestamps if isinstance(self.timestamps, int) else self.timestamps[row]

    def fits_times_of(self, batch: ProducerBatch) -> bool:
        base = batch.base_timestamp
        return max(abs(self.latest - base), abs(self.earliest - base)) <= self.max_timestamp_delta


class ClaimedRange(NamedTuple):
    """Rows ``start .. end - 1`` become records ``first ..`` of ``batch``."""

    batch: ProducerBatch
    start: int
    end: int
    first: int


class Claim:
    """The memory and batches that one append owns. Unless it is published it must be undone, at whatever line an
    interrupt (Ctrl-C) strikes; so each change is noted before it is made.

    ``ranges`` in row order. ``filled``: batches that accept no further row. ``opened``: new batches. ``before``: count
    and size of batches that were open already, to restore. ``rows_added``: batches may hold rows of the append.
    ``published``: the sender may see everything. ``undone``: nothing is left.
    """

    __slots__ = ("_tails", "before", "filled", "memory", "opened", "published", "ranges", "rows_added", "undone")

    def __init__(self, memory: Reservation) -> None:
        self.memory = memory
        self.ranges: list[ClaimedRange] = []
        self.filled: list[ProducerBatch] = []
        self.opened: list[ProducerBatch] = []
        self.before: list[tuple[ProducerBatch, int, int]] = []
        self.rows_added = self.published = self.undone = False
        self._tails: dict[int, ProducerBatch] = {}

    def take(self, queue: PartitionQueue, run: Run, rows: RowSizes, now: float) -> None:
        """Cut one run into the queue's open batch and as many new ones as it needs. Under the accumulator's lock."""
        partition, row, end = run
        batch = self._tails.pop(partition, None) or self._claim_tail(queue, rows)
        cumulative = rows.cumulative
        while row < end:
            if batch is None:
                batch = self._open(queue, rows, row, now)
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
            if row < end:
                batch.filled = True
                self.filled.append(batch)
                batch = None
        if batch is not None:
            self._tails[partition] = batch

    def batches(self) -> list[ProducerBatch]:
        """Every batch in this caller's hands, each once."""
        return [batch for batch, _, _ in self.before] + self.opened

    def _open(self, queue: PartitionQueue, rows: RowSizes, row: int, now: float) -> ProducerBatch:
        batch = ProducerBatch(queue.partition, now, rows.limit, rows.timestamp(row))
        batch.claimed = True
        self.opened.append(batch)
        queue.batches.append(batch)
        return batch

    def _claim_tail(self, queue: PartitionQueue, rows: RowSizes) -> ProducerBatch | None:
        batch = queue.open_tail()
        if batch is None:
            return None
        self.before.append((batch, batch.count, batch.size))
        batch.claimed = True
        if rows.fits_times_of(batch):
            return batch
        batch.filled = True
        self.filled.append(batch)
        return None
