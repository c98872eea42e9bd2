"""Records without keys into the accumulator: what ``send`` mostly gets, from Python bytes and without Arrow.

The same road as ``columnar_append``: partition, claim, encode, publish; here every batch is encoded by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from spark_kafka_sink.accumulator.claim import Claim, RowSizes, Run
from spark_kafka_sink.accumulator.producer_batch import RecordRange
from spark_kafka_sink.append.publish import AppendParts, BatchListeners, RowsToPublish, publish
from spark_kafka_sink.append.row_sizes import RowTimes, row_sizes, size_bounds
from spark_kafka_sink.model import ClusterSnapshot
from spark_kafka_sink.partitioning.default import BuiltInPartitioner
from spark_kafka_sink.records.columns import Int64Array
from spark_kafka_sink.records.encode_values import encode_values
from spark_kafka_sink.records.sizes import FieldLengths, cumulated


@dataclass(frozen=True, slots=True)
class StagedValues:
    """Values of one topic that were checked when they were sent.

    ``created`` is when the first of them was sent (monotonic ms), ``timestamp`` the same in epoch ms.
    """

    topic: str
    values: Sequence[bytes]
    lengths: Sequence[int]
    snapshot: ClusterSnapshot
    created: float
    timestamp: int


class ValueAppender:
    """Safe to call from several threads; each call holds no lock while it encodes."""

    def __init__(self, parts: AppendParts, linger_ms: float) -> None:
        self._parts = parts
        self._linger_ms = linger_ms

    @property
    def applicable(self) -> bool:
        """Only Kafka's own partitioner is known to need nothing of a record without a key."""
        return isinstance(self._parts.partitioner, BuiltInPartitioner)

    def append(self, staged: StagedValues, claim: Claim, listeners: BatchListeners) -> None:
        """Never waits: the sender may call it. The claim is the caller's to undo."""
        publish(
            self._parts,
            claim,
            RowsToPublish(staged.topic, self._row_sizes(staged), staged.created, listeners),
            lambda claim: _encode(staged, claim),
            lambda claim, encoded: _lay_in(claim, staged, encoded, listeners),
        )

    def _row_sizes(self, staged: StagedValues) -> RowSizes:
        parts, topic, lengths = self._parts, staged.topic, staged.lengths
        limit = parts.accumulator.batch_limit(topic)
        times = RowTimes.one_for_all(staged.timestamp, self._linger_ms)
        rows = len(lengths)
        if lengths.count(lengths[0]) == rows:
            size = _size_bound(lengths[0], times.bound_bytes, limit)
            cumulative: Sequence[int] = range(0, (rows + 1) * size, size)
        else:
            cumulative = cumulated(_size_bounds(lengths, times.bound_bytes, limit))
        partitioner = parts.partitioner
        assert isinstance(partitioner, BuiltInPartitioner)
        count = len(staged.snapshot.topics[topic].leaders)
        runs = partitioner.runs(topic, cumulative, count, parts.load(staged.snapshot, topic))
        return row_sizes([Run(*run) for run in runs], cumulative, limit, times)


def _size_bounds(lengths: Sequence[int], timestamp_bytes: int, limit: int) -> Int64Array:
    return size_bounds(FieldLengths.of_values(np.array(lengths, np.int32)), timestamp_bytes, limit)


@lru_cache(maxsize=256)
def _size_bound(length: int, timestamp_bytes: int, limit: int) -> int:
    """Of one value; values of one length are the rule, and numpy takes longer for one than Python for all else."""
    return int(_size_bounds((length,), timestamp_bytes, limit)[0])


def _encode(staged: StagedValues, claim: Claim) -> list[bytes]:
    values, lengths, timestamp = staged.values, staged.lengths, staged.timestamp
    return [
        encode_values(values[start:end], lengths[start:end], first, timestamp - batch.base_timestamp)
        for batch, start, end, first in claim.ranges
    ]


def _lay_in(claim: Claim, staged: StagedValues, encoded: Sequence[bytes], listeners: BatchListeners) -> None:
    """Give each batch its bytes, and the memory that these keep."""
    told = listeners.listeners(None, [each.start for each in claim.ranges], len(staged.values))
    for (batch, start, end, first), records, listener in zip(claim.ranges, encoded, told, strict=True):
        record_range = RecordRange(listener, first, end - start, len(records))
        batch.add(records, record_range, staged.timestamp, claim.memory)
