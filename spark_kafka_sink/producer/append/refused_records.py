"""``RefusalReceipt``: a receipt that keeps the records that only a broker finds too large."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, TypeGuard

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.errors import BrokerError
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.append.receipt import SendReceipt


class RefusedRecord(NamedTuple):
    """``batch``: the bytes of a batch with this record alone, as they were sent."""

    partition: TopicPartition
    batch: bytes
    error: BrokerError


class RefusalReceipt(SendReceipt):
    """Counts a record that a broker refuses alone (MESSAGE_TOO_LARGE) as complete, and keeps it until it is taken.

    Kept records no longer count in ``buffer.memory``. A caller that takes them after each append holds at most what
    ``buffer.memory`` and this append had.
    """

    def __init__(self) -> None:
        super().__init__()
        self._refused: deque[RefusedRecord] = deque()

    def take_refused(self) -> RefusedRecord | None:
        """The first one that is left; one thread may call it. Empty for good after ``wait``."""
        return self._refused.popleft() if self._refused else None

    def _batch_failed(self, batch: ProducerBatch, error: Exception) -> None:
        """Runs on the sender thread. A batch of several records was split before."""
        if not is_refusal(error) or batch.count > 1 or not batch.payload:
            super()._batch_failed(batch, error)
            return
        assert batch.header is not None
        self._refused.append(RefusedRecord(batch.partition, b"".join((batch.header, *batch.payload)), error))


def is_refusal(error: Exception | None) -> TypeGuard[BrokerError]:
    """Whether a broker found a record too large for its topic."""
    return isinstance(error, BrokerError) and error.code == ErrorCode.message_too_large
