"""Claim → encode → publish: how rows enter batches without a lock being held while they are encoded.

Under the lock a claim cuts rows into batches and marks those as claimed; nothing else may touch them until it is
published or given back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from spark_kafka_sink.accumulator.batch import OpenBatch
from spark_kafka_sink.accumulator.partition_queue import PartitionQueue


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

    def fits_times_of(self, batch: OpenBatch) -> bool:
        base = batch.base_timestamp
        return max(abs(self.latest - base), abs(self.earliest - base)) <= self.max_timestamp_delta


class Segment(NamedTuple):
    """Rows ``start .. end - 1`` that become records ``first ..`` of ``batch``."""

    batch: OpenBatch
    start: int
    end: int
    first: int


@dataclass(slots=True)
class Claim:
    """The batches in one caller's hands: ``segments`` in row order, ``filled`` the batches that take no further row.

    ``open_batch(queue, timestamp)`` makes a new one; ``before`` is what an already open batch was (count, size),
    ``opened`` which ones are new: what giving back undoes. ``lagging`` partitions will not be sent soon.
    """

    topic: str
    open_batch: Callable[[PartitionQueue, int], OpenBatch]
    lag_since: float
    segments: list[Segment] = field(default_factory=list)
    filled: list[OpenBatch] = field(default_factory=list)
    opened: list[tuple[PartitionQueue, OpenBatch]] = field(default_factory=list)
    before: list[tuple[OpenBatch, int, int]] = field(default_factory=list)
    lagging: set[int] = field(default_factory=set)
    _tails: dict[int, OpenBatch] = field(default_factory=dict)

    def take(self, queue: PartitionQueue, run: Run, rows: RowSizes) -> None:
        """Cut one run into the queue's open batch and as many new ones as it needs. Under the accumulator's lock."""
        partition, row, end = run
        if queue.lags(self.lag_since):
            self.lagging.add(partition)
        batch = self._tails.pop(partition, None) or self._claim_tail(queue, rows)
        cumulative = rows.cumulative
        while row < end:
            if batch is None:
                batch = self.open_batch(queue, rows.timestamp(row))
                batch.claimed = True
                self.opened.append((queue, batch))
            room = min(batch.limit, rows.limit) - batch.size
            cut = bisect_right(cumulative, cumulative[row] + room, row + 1, end + 1) - 1
            if cut == row and not batch.count:
                cut += 1  # a record larger than batch.size gets a batch of its own
            if cut > row:
                self.segments.append(Segment(batch, row, cut, batch.count))
                batch.count += cut - row
                batch.size += cumulative[cut] - cumulative[row]
                row = cut
            if row < end:
                self._fill(batch)
                batch = None
        if batch is not None:
            self._tails[partition] = batch

    def batches(self) -> list[OpenBatch]:
        """Every batch in this caller's hands, each once."""
        return [batch for batch, _, _ in self.before] + [batch for _, batch in self.opened]

    def _claim_tail(self, queue: PartitionQueue, rows: RowSizes) -> OpenBatch | None:
        batch = queue.open_tail()
        if batch is None:
            return None
        batch.claimed = True
        self.before.append((batch, batch.count, batch.size))
        if rows.fits_times_of(batch):
            return batch
        self._fill(batch)
        return None

    def _fill(self, batch: OpenBatch) -> None:
        batch.filled = True
        self.filled.append(batch)
