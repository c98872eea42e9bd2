"""Rows whose memory is reserved, from claim to publication: the road that all of them take into the accumulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.accumulator.accumulator import RecordAccumulator
from spark_kafka_sink.accumulator.claim import Claim, RowSizes
from spark_kafka_sink.accumulator.producer_batch import NO_TIMESTAMP, UNKNOWN_OFFSET, BatchListener
from spark_kafka_sink.clock import Clock
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.model import ClusterSnapshot
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.partitioning.partitioner import Partitioner, PartitionLoad

Encoded = TypeVar("Encoded")


@dataclass(frozen=True, slots=True)
class AppendParts:
    """``wake_sender``: there is something to send. ``call_sender``: and the caller is about to wait for it.

    ``lost`` is the transactions' ``records_lost``, None without transactions.
    """

    accumulator: RecordAccumulator
    metadata: Metadata
    partitioner: Partitioner
    clock: Clock
    wake_sender: Callable[[], None]
    call_sender: Callable[[], None]
    lost: Callable[[Exception], None] | None = None

    def rows_lost(self, error: Exception) -> None:
        """Rows that were sent, or were to be, are not going to be in the log: no transaction may be without them."""
        if self.lost is not None:
            self.lost(error)

    def load(self, snapshot: ClusterSnapshot, topic: str) -> PartitionLoad:
        """The partitions whose leaders take what waits for them, and how much waits in each."""
        unavailable = self.accumulator.nodes.unavailable
        leaders = snapshot.topics[topic].leaders
        available = tuple(p for p, leader in enumerate(leaders) if leader not in unavailable)
        return PartitionLoad(available, tuple(self.accumulator.queue_lengths(topic, available)))


class BatchListeners(Protocol):
    """Whoever wants to know what becomes of rows that are being appended."""

    def listeners(
        self, order: npt.NDArray[np.intp] | None, starts: Sequence[int], rows: int
    ) -> Sequence[BatchListener]:
        """One listener per segment; segment ``i`` holds rows ``order[starts[i]]`` to ``order[starts[i + 1] - 1]``.

        ``order`` None: the ``rows`` rows as they were given. Called once per slice, before its batches can complete.
        """

    def fail(self, error: Exception) -> None:
        """Rows that ``listeners`` was called for will not be sent, and no batch may tell of them."""


@dataclass(frozen=True, slots=True)
class RowsToPublish:
    """Rows of one topic in the order of their partitions. ``created``: their batches linger from then on (monotonic
    ms).
    """

    topic: str
    sizes: RowSizes
    created: float
    listeners: BatchListeners


def publish(
    parts: AppendParts,
    claim: Claim,
    rows: RowsToPublish,
    encode: Callable[[Claim], Encoded],
    lay_in: Callable[[Claim, Encoded], None],
) -> None:
    """Claim batches, ``encode`` the rows for them, ``lay_in`` what came of it, and let the sender see them.

    ``lay_in`` takes what the batches keep from the claim's memory. No lock is held in either. Whoever made the claim
    must ``undo`` it when this fails.
    """
    accumulator = parts.accumulator
    try:
        accumulator.claim(claim, rows.topic, rows.sizes, rows.created)
        encoded = encode(claim)
        claim.rows_added = True
        lay_in(claim, encoded)
        accumulator.pool.cancel(claim.memory)
        for batch in claim.filled:
            accumulator.seal(batch)
        if accumulator.publish(claim):
            parts.wake_sender()
    except BaseException as error:
        undo(parts, claim, rows.listeners, error)
        raise


def undo(parts: AppendParts, claim: Claim, listeners: BatchListeners, error: BaseException) -> None:
    """An append has failed, or was interrupted at any line: unless its rows are the sender's already, its memory is
    free afterwards, its batches are as they were or complete, and whoever waits for them knows.

    Done by ``publish`` and again by whoever made the claim: an interrupt may strike in here too.
    """
    accumulator = parts.accumulator
    if claim.published:
        parts.wake_sender()
        return
    accumulator.pool.cancel(claim.memory)
    if claim.undone:
        return
    cause = as_exception(error)
    parts.rows_lost(cause)
    if not claim.rows_added and accumulator.give_back(claim):
        return
    batches = claim.batches()
    accumulator.retract(claim)
    accumulator.pool.release(batches)
    for batch in batches:
        batch.complete(UNKNOWN_OFFSET, NO_TIMESTAMP, cause)
    if claim.rows_added:
        listeners.fail(cause)
    accumulator.finish(batches)
    claim.undone = True


def as_exception(error: BaseException) -> Exception:
    """What is told of rows that an interrupt kept from being sent."""
    return error if isinstance(error, Exception) else KafkaError(f"Not sent, because send was interrupted: {error!r}")
