"""Rows whose memory is reserved, from claim to publication: the road that all of them take into the accumulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from spark_kafka_sink.accumulator.accumulator import RecordAccumulator
from spark_kafka_sink.accumulator.batch import NO_TIMESTAMP, UNKNOWN_OFFSET
from spark_kafka_sink.accumulator.claim import Claim, RowSizes
from spark_kafka_sink.accumulator.seal import Sealer
from spark_kafka_sink.clock import Clock
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.model import ClusterSnapshot
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.partitioning.partitioner import Partitioner, PartitionLoad

Encoded = TypeVar("Encoded")


@dataclass(frozen=True, slots=True)
class AppendParts:
    """``wake_sender``: there is something to send. ``call_sender``: and the caller is about to wait for it."""

    accumulator: RecordAccumulator
    sealer: Sealer
    metadata: Metadata
    partitioner: Partitioner
    clock: Clock
    wake_sender: Callable[[], None]
    call_sender: Callable[[], None]

    def load(self, snapshot: ClusterSnapshot, topic: str) -> PartitionLoad:
        """The partitions whose leaders take what waits for them, and how much waits in each."""
        unavailable = self.accumulator.nodes.unavailable
        leaders = snapshot.topics[topic].leaders
        available = tuple(p for p, leader in enumerate(leaders) if leader not in unavailable)
        return PartitionLoad(available, tuple(self.accumulator.queue_lengths(topic, available)))


@dataclass(frozen=True, slots=True)
class ReservedRows:
    """Rows of one topic in the order of their partitions; ``reserved`` bytes of memory are theirs.

    ``created``: their batches linger from then on (monotonic ms).
    """

    topic: str
    sizes: RowSizes
    created: float
    reserved: int


def publish(
    parts: AppendParts,
    rows: ReservedRows,
    encode: Callable[[Claim], Encoded],
    lay_in: Callable[[Claim, Encoded], int],
) -> None:
    """Claim batches, ``encode`` the rows for them, ``lay_in`` what came of it, and let the sender see them.

    ``lay_in`` says how many bytes of memory are kept for that. No lock is held in either. Whatever fails, the memory is
    free again; once rows lie in batches, those who wait for them hear of it.
    """
    accumulator = parts.accumulator
    pool = accumulator.pool
    try:
        claim = accumulator.claim(rows.topic, rows.sizes, rows.created)
    except BaseException:
        pool.adjust(rows.reserved, 0)
        raise
    try:
        encoded = encode(claim)
    except BaseException as error:
        pool.adjust(rows.reserved, 0)
        _give_back(accumulator, claim, error)
        raise
    try:
        pool.adjust(rows.reserved, lay_in(claim, encoded))
        for batch in claim.filled:
            parts.sealer.seal(batch)
        wake = accumulator.publish(claim)
    except BaseException as error:
        _retract(accumulator, claim, error)
        raise
    if wake:
        parts.wake_sender()


def _give_back(accumulator: RecordAccumulator, claim: Claim, error: BaseException) -> None:
    try:
        accumulator.give_back(claim)
    except KafkaError:
        _retract(accumulator, claim, error)


def _retract(accumulator: RecordAccumulator, claim: Claim, error: BaseException) -> None:
    """The rows cannot go on: whoever waits for anything in these batches must hear of it."""
    cause = error if isinstance(error, Exception) else KafkaError(f"interrupted by {error!r}")
    accumulator.retract(claim)
    accumulator.pool.release(claim.batches())
    for batch in claim.batches():
        batch.complete(UNKNOWN_OFFSET, NO_TIMESTAMP, cause)
    accumulator.finish(claim.batches())
