"""``SendReceipt``: the outcome of rows appended as columns, with counts and offsets per partition.

``RefusalReceipt`` also keeps records that a broker refuses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import UNKNOWN_OFFSET, TopicPartition
from spark_kafka_sink.common.waiting import Waiters
from spark_kafka_sink.errors import BrokerError, KafkaTimeoutError, own_copy
from spark_kafka_sink.producer.producer_batch import ProducerBatch, RecordRange


@dataclass(frozen=True, slots=True)
class Delivery:
    """Rows in one partition's log: ``count`` of them, ``size`` bytes of records before compression.

    ``first_offset`` and ``last_offset``: their lowest and highest offset (other writers' records may lie between);
    ``UNKNOWN_OFFSET`` with acks=0, and for a duplicate that the broker no longer remembers.
    """

    count: int
    size: int
    first_offset: int
    last_offset: int


_NOTHING = Delivery(0, 0, UNKNOWN_OFFSET, UNKNOWN_OFFSET)


class SendReceipt:
    """Collects the outcomes of all rows that were appended with it. Any thread may read it.

    ``deliveries`` grow as batches complete. A receipt may serve many appends of one thread.

    ``first_row``: the number that errors give the first row of the next append; None if errors name no row.
    """

    codes: Collection[int] = ()
    """The codes of errors with which a broker may refuse a record without failing the receipt."""

    def __init__(self) -> None:
        self.waiters = Waiters()
        self.first_row: int | None = 0
        self._appended = 0  # only its caller changes it
        self._completed = 0  # only the sender thread, except for rows that fail on their caller's thread
        self._deliveries: dict[TopicPartition, Delivery] = {}
        self._failures: list[Exception] = []  # either thread appends; the first counts

    def expect(self, rows: int) -> None:
        """Adds ``rows`` to the rows that the receipt waits for. Called after they are put: an interrupt before the put
        would leave a receipt that waits for ever."""
        self._appended += rows

    def fail(self, error: Exception) -> None:
        self._failures.append(error)
        self.waiters.notify_all()

    def batch_completed(self, batch: ProducerBatch, rows: RecordRange) -> None:
        if batch.error is None:
            before = self._deliveries.get(batch.partition, _NOTHING)
            lowest, highest = before.first_offset, before.last_offset
            if batch.base_offset != UNKNOWN_OFFSET:
                first = batch.base_offset + rows.first
                highest = max(highest, first + rows.rows - 1)
                lowest = first if lowest == UNKNOWN_OFFSET else min(lowest, first)
            count, size = before.count + rows.rows, before.size + rows.size
            self._deliveries[batch.partition] = Delivery(count, size, lowest, highest)
        else:
            self._batch_failed(batch, batch.error)
        self._completed += rows.rows
        if self._is_complete():
            self.waiters.notify_all()

    def _batch_failed(self, batch: ProducerBatch, error: Exception) -> None:
        self._failures.append(error)

    def wait(self, timeout_ms: float | None = None) -> None:
        """Return when every row is in the log; raise the first error as soon as there is one.

        Raises ``KafkaTimeoutError`` after ``timeout_ms``; None leaves the deadline to delivery.timeout.ms. Raises
        ``IllegalStateError`` in a callback, where it would wait for itself.
        """
        complete = self.waiters.wait_for(self._is_complete, timeout_ms)
        if self.error is not None:
            raise own_copy(self.error)
        if not complete:
            outstanding = self._appended - self._completed
            raise KafkaTimeoutError(f"{outstanding} rows were not acknowledged within {timeout_ms:.0f} ms")

    def _is_complete(self) -> bool:
        return self._completed >= self._appended or bool(self._failures)

    @property
    def error(self) -> Exception | None:
        """The first failure."""
        return self._failures[0] if self._failures else None

    @property
    def deliveries(self) -> dict[TopicPartition, Delivery]:
        return self._deliveries.copy()


@dataclass(eq=False, slots=True)
class SliceReceipt:
    """The receipt's part for one slice of an append, which maps each record to its row's number. Implements
    ``BatchListener``.

    ``rows``: the numbers of the slice's rows in the append, in the order of the slice; or the first number, if the
    others follow it. ``order``: record ``i`` of a ``RecordRange`` is row ``order[i]`` of the slice; None: the same one.
    """

    receipt: SendReceipt
    rows: npt.NDArray[np.intp] | int
    first_row: int | None
    order: npt.NDArray[np.intp] | None = None

    def batch_completed(self, batch: ProducerBatch, rows: RecordRange) -> None:
        self.receipt.batch_completed(batch, rows)

    def keeps(self, code: int) -> bool:
        return code in self.receipt.codes

    def row_of(self, position: int) -> int | None:
        if self.first_row is None:
            return None
        if self.order is not None:
            position = int(self.order[position])
        return self.first_row + (self.rows + position if isinstance(self.rows, int) else int(self.rows[position]))


class RefusedRecord(NamedTuple):
    """A record that a broker refused. ``batch``: the bytes of a batch with this record alone, as they were sent."""

    partition: TopicPartition
    batch: bytes
    error: BrokerError


class RefusalReceipt(SendReceipt):
    """Counts a record that a broker refuses alone with one of ``codes`` as complete, and keeps it until it is taken.

    Kept records no longer count in ``buffer.memory``. A caller that takes them after each append holds at most what
    ``buffer.memory`` and this append had.
    """

    def __init__(self, codes: Collection[int]) -> None:
        super().__init__()
        self.codes = codes
        self._refused: deque[RefusedRecord] = deque()

    def take_refused(self) -> RefusedRecord | None:
        """Takes the first record that is left; None if there is none, and for good after ``wait``. Only one thread may
        call it."""
        return self._refused.popleft() if self._refused else None

    def _batch_failed(self, batch: ProducerBatch, error: Exception) -> None:
        """Notes a failed batch, on the sender thread. A batch of several records was split before."""
        if not isinstance(error, BrokerError) or error.code not in self.codes or batch.count > 1 or not batch.payload:
            super()._batch_failed(batch, error)
            return
        assert batch.header is not None
        self._refused.append(RefusedRecord(batch.partition, b"".join((batch.header, *batch.payload)), error))


def is_refusal(error: BaseException | None) -> TypeGuard[BrokerError]:
    """Whether a broker found a record too large for its topic."""
    return isinstance(error, BrokerError) and error.code == ErrorCode.message_too_large
