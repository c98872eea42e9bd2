"""Which partitions are in the open transaction, where the producer must say so itself (transaction protocol v1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spark_kafka_sink.accumulator.accumulator import DrainMode, RecordAccumulator
from spark_kafka_sink.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.model import TopicPartition


class TransactionPartitions:
    """A partition's first batch waits, its queue muted, until AddPartitionsToTxn has been answered for it.

    Owned by the sender thread.
    """

    def __init__(self, accumulator: RecordAccumulator) -> None:
        self._accumulator = accumulator
        self._added: set[TopicPartition] = set()
        self._waiting: dict[TopicPartition, None] = {}
        self._asking = False

    def sendable(self, batches: Sequence[ProducerBatch]) -> list[ProducerBatch]:
        """Those of the drained batches whose partitions are in the transaction; the others go back to their queues."""
        admitted = []
        for batch in batches:
            if batch.header is None and batch.partition not in self._added:
                self._waiting[batch.partition] = None
                self._accumulator.undrain(batch)
            else:
                admitted.append(batch)
        return admitted

    def ask(self) -> list[TopicPartition]:
        """What to add now, one request at a time; ``added`` or ``stop`` must follow."""
        if self._asking or not self._waiting:
            return []
        self._asking = True
        return [*self._waiting]

    def added(self, partitions: Iterable[TopicPartition]) -> None:
        self._asking = False
        for partition in partitions:
            del self._waiting[partition]
            self._added.add(partition)
            self._accumulator.set_drain_mode(partition, DrainMode.OPEN)

    def stop(self) -> None:
        """The request that is under way is nobody's any more."""
        self._asking = False

    def clear(self) -> None:
        """The transaction has ended: nothing waits for it."""
        for partition in self._waiting:
            self._accumulator.set_drain_mode(partition, DrainMode.OPEN)
        self._waiting.clear()
        self._added.clear()
