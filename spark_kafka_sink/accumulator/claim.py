"""Claim → encode → publish: rows enter batches while no thread holds a lock for the encoding (ADR 1).

Under the accumulator's lock a claim cuts rows into batches and marks these as claimed. No other thread changes or
drains them until the claim is published or undone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spark_kafka_sink.accumulator.buffer_pool import Reservation
from spark_kafka_sink.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.model import TopicPartition


class Run(NamedTuple):
    """Neighbouring rows ``start .. end - 1`` of one partition."""

    partition: TopicPartition
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RowSizes:
    """The sizes and timestamps of rows that are not encoded yet.

    ``cumulative[i]``: upper bound in bytes of rows ``0 .. i - 1`` (n + 1 entries); valid for batches of at most
    ``limit`` bytes, whatever their topic. ``timestamps``: epoch ms per row, or one for all. A batch accepts rows within
    ``max_timestamp_delta`` ms of its first one. ``largest``: upper bound in bytes of each row.
    """

    runs: Sequence[Run]
    cumulative: Sequence[int]
    largest: int
    limit: int
    timestamps: Sequence[int] | int
    earliest: int
    latest: int
    max_timestamp_delta: int

    def timestamp(self, row: int) -> int:
        return self.timestamps if isinstance(self.timestamps, int) else self.timestamps[row]


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

    __slots__ = ("_open", "before", "filled", "memory", "opened", "published", "ranges", "rows_added", "undone")

    def __init__(self, memory: Reservation) -> None:
        self.memory = memory
        self.ranges: list[ClaimedRange] = []
        self.filled: list[ProducerBatch] = []
        self.opened: list[ProducerBatch] = []
        self.before: list[tuple[ProducerBatch, int, int]] = []
        self.rows_added = self.published = self.undone = False
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
                batch = ProducerBatch(partition, now, limit, rows.timestamp(row))
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
        return [batch for batch, _, _ in self.before] + self.opened

    def _claim_last(self, queue: deque[ProducerBatch], rows: RowSizes) -> ProducerBatch | None:
        """The last batch if it is open, unclaimed and accepts the timestamps of ``rows``."""
        batch = queue[-1] if queue else None
        if batch is None or batch.payload is not None or batch.claimed or batch.filled:
            return None
        self.before.append((batch, batch.count, batch.size))
        batch.claimed = True
        base = batch.base_timestamp
        if max(abs(rows.latest - base), abs(rows.earliest - base)) <= rows.max_timestamp_delta:
            return batch
        batch.filled = True
        self.filled.append(batch)
        return None
