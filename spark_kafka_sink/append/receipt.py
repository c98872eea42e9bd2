"""What became of rows that were appended: per partition, how many and at which offsets."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.accumulator.producer_batch import UNKNOWN_OFFSET, BatchListener, ProducerBatch, RecordRange
from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.model import TopicPartition
from spark_kafka_sink.waiting import Waiters


@dataclass(frozen=True, slots=True)
class Delivery:
    """Rows that are in one partition's log: ``count`` of them, ``size`` bytes of records before compression.

    ``first_offset`` and ``last_offset`` are the lowest and highest of their offsets (other writers' records may lie
    between), ``UNKNOWN_OFFSET`` with acks=0 and for a duplicate that the broker no longer remembers.
    """

    count: int
    size: int
    first_offset: int
    last_offset: int


class _Sum:
    """A delivery in the making: one partition's batches, added up as they complete."""

    __slots__ = ("count", "first", "last", "size")

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self.first = UNKNOWN_OFFSET
        self.last = UNKNOWN_OFFSET


class SendReceipt:
    """Collects the outcomes of everything that was appended with it. May be read from any thread.

    ``deliveries`` grow as batches complete; ``error`` is the first failure. A receipt may serve many appends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = Waiters()
        # The appending threads' number, guarded by the lock, and the sender thread's, which it alone changes: but for
        # rows that fail on their caller's thread, and then the error ends every wait.
        self._appended = 0
        self._completed = 0
        self._sums: defaultdict[TopicPartition, _Sum] = defaultdict(_Sum)
        self.error: Exception | None = None

    def listeners(
        self, order: npt.NDArray[np.intp] | None, starts: Sequence[int], rows: int
    ) -> Sequence[BatchListener]:
        """So many rows are on their way, told by the appending thread before they can complete."""
        with self._lock:
            self._appended += rows
        return [self] * len(starts)

    def fail(self, error: Exception) -> None:
        """Rows that are counted as on their way are not: their batches may never tell."""
        with self._lock:
            self.error = self.error or error
            self._changed.notify_all()

    def batch_completed(self, batch: ProducerBatch, share: RecordRange) -> None:
        if batch.error is None:
            delivered = self._sums[batch.partition]
            delivered.count += share.rows
            delivered.size += share.size
            if batch.base_offset != UNKNOWN_OFFSET:
                first = batch.base_offset + share.first
                last = first + share.rows - 1
                if last > delivered.last:
                    delivered.last = last
                if first < delivered.first or delivered.first == UNKNOWN_OFFSET:
                    delivered.first = first
        elif self.error is None:
            self.error = batch.error
        self._completed += share.rows
        # Rows are counted before they can complete: whoever waits for the last of them looks again under the lock.
        if self._completed >= self._appended or self.error is not None:
            with self._lock:
                self._changed.notify_all()

    def wait(self, timeout_ms: float) -> None:
        """Return when every row is in the log; raise the first error as soon as there is one.

        Raises ``KafkaTimeoutError`` after ``timeout_ms``; ``float("inf")`` leaves the deadline to delivery.timeout.ms.
        """
        delivered = self._changed.wait_for(self._lock, self._is_settled, timeout_ms)
        if self.error is not None:
            raise self.error
        if not delivered:
            outstanding = self._appended - self._completed
            raise KafkaTimeoutError(f"{outstanding} rows are not delivered after {timeout_ms:.0f} ms")

    def _is_settled(self) -> bool:
        return self._completed >= self._appended or self.error is not None

    @property
    def deliveries(self) -> dict[TopicPartition, Delivery]:
        return {p: Delivery(s.count, s.size, s.first, s.last) for p, s in tuple(self._sums.items())}
