"""Records without keys into the accumulator: what ``send`` mostly gets, from Python bytes and without Arrow.

The same road as ``columnar_append``: partition, claim, encode, publish; here every batch is encoded by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spark_kafka_sink.accumulator.batch import Share
from spark_kafka_sink.accumulator.claim import Claim, RowSizes
from spark_kafka_sink.model import ClusterSnapshot
from spark_kafka_sink.partitioning.default import BuiltInPartitioner
from spark_kafka_sink.partitioning.partitioner import Int32Array, Int64Array, PartitionLoad
from spark_kafka_sink.producer.columnar_append import BatchListeners
from spark_kafka_sink.producer.grouping import runs_as_given
from spark_kafka_sink.producer.publish import AppendParts, ReservedRows, publish
from spark_kafka_sink.records.encode_values import encode_values
from spark_kafka_sink.records.sizes import field_sizes
from spark_kafka_sink.records.varints import varint_size, varint_sizes

_SMALLEST_RECORD = 7
_ATTRIBUTES_NULL_KEY_NO_HEADERS = 3


@dataclass(frozen=True, slots=True)
class StagedValues:
    """Values of one topic that were checked when they were sent; ``reserved`` bytes of memory are theirs.

    ``created`` is when the first of them was sent (monotonic ms), ``timestamp`` the same in epoch ms.
    """

    topic: str
    values: Sequence[bytes]
    lengths: Sequence[int]
    snapshot: ClusterSnapshot
    created: float
    timestamp: int
    reserved: int


class ValueAppender:
    """Safe to call from several threads; each call holds no lock while it encodes."""

    def __init__(self, parts: AppendParts, linger_ms: float) -> None:
        self._parts = parts
        # Twice the linger: what a batch waits for is rarely more, and every byte of the bound is lost to batches.
        self._timestamp_bound_bytes = varint_size(int(2 * linger_ms) + 50)

    @property
    def applicable(self) -> bool:
        """Only Kafka's own partitioner is known to need nothing of a record without a key."""
        return isinstance(self._parts.partitioner, BuiltInPartitioner)

    def append(self, staged: StagedValues, listeners: BatchListeners) -> None:
        """Never waits: the sender may call it."""
        try:
            sizes = self._row_sizes(staged)
        except BaseException:
            self._parts.accumulator.pool.adjust(staged.reserved, 0)
            raise
        publish(
            self._parts,
            ReservedRows(staged.topic, sizes, staged.created, staged.reserved),
            lambda claim: _encode(staged, claim),
            lambda claim, encoded: _lay_in(claim, staged, encoded, listeners),
        )

    def _row_sizes(self, staged: StagedValues) -> RowSizes:
        limit = self._parts.accumulator.batch_limit(staged.topic)
        lengths = np.array(staged.lengths, np.int64)
        known = _ATTRIBUTES_NULL_KEY_NO_HEADERS + self._timestamp_bound_bytes + varint_size(limit // _SMALLEST_RECORD)
        bodies = field_sizes(lengths) + known
        sizes = bodies + varint_sizes(bodies)
        cumulative = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=cumulative[1:])
        return RowSizes(
            runs=runs_as_given(self._partitions(staged, sizes)),
            cumulative=cumulative.data,
            limit=limit,
            timestamps=staged.timestamp,
            earliest=staged.timestamp,
            latest=staged.timestamp,
            max_timestamp_delta=(1 << (7 * self._timestamp_bound_bytes - 1)) - 1,
        )

    def _partitions(self, staged: StagedValues, sizes: Int64Array) -> Int32Array:
        accumulator, partitioner = self._parts.accumulator, self._parts.partitioner
        assert isinstance(partitioner, BuiltInPartitioner)
        leaders = staged.snapshot.topics[staged.topic].leaders
        unavailable = accumulator.nodes.unavailable
        available = tuple(p for p, leader in enumerate(leaders) if leader not in unavailable)
        load = PartitionLoad(available, tuple(accumulator.queue_lengths(staged.topic, available)))
        return partitioner.assign(staged.topic, sizes, len(leaders), load)


def _encode(staged: StagedValues, claim: Claim) -> list[bytes]:
    values, lengths, timestamp = staged.values, staged.lengths, staged.timestamp
    return [
        encode_values(values[start:end], lengths[start:end], first, timestamp - batch.base_timestamp)
        for batch, start, end, first in claim.segments
    ]


def _lay_in(claim: Claim, staged: StagedValues, encoded: Sequence[bytes], listeners: BatchListeners) -> int:
    """Give each batch its bytes; says how many that are."""
    told = listeners.listeners(None, [segment.start for segment in claim.segments], len(staged.values))
    kept = 0
    for (batch, start, end, first), records, listener in zip(claim.segments, encoded, told, strict=True):
        size = len(records)
        kept += size
        batch.segments.append(records)
        batch.own += size
        if staged.timestamp > batch.max_timestamp:
            batch.max_timestamp = staged.timestamp
        batch.shares.append(Share(listener, first, end - start, size))
    return kept
