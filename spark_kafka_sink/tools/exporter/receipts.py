"""``TopicReceipts``: the receipts of a receiptsTopic, and those that come later."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once.cluster import Cluster
from spark_kafka_sink.exactly_once.partition_log import PartitionLog
from spark_kafka_sink.exactly_once.receipts import WriteReceipt

_PARTITIONS_EVERY_MS: Final = 60_000.0


@dataclass(slots=True)
class Foreign:
    """How many records are not receipts, and what is wrong with the first."""

    count: int = 0
    first: str = ""

    def add(self, where: str, error: ValueError) -> None:
        self.count += 1
        self.first = self.first or f"{where}: {error}"


class TopicReceipts:
    """Reads all partitions of a receiptsTopic, read_committed, on one thread. Each request may take max.block.ms. What
    ``WriteReceipt.parse`` rejects is counted in ``foreign`` and left out.
    """

    def __init__(self, config: ProducerConfig, topic: str, clock: Clock) -> None:
        self.foreign = Foreign()
        self._topic = topic
        self._wait_ms = config.max_block_ms
        self._cluster = Cluster(config, clock)
        self._logs: dict[int, PartitionLog] = {}
        self._offsets: dict[int, int] = {}
        self._look_up_at = -math.inf

    def read(self) -> Iterator[WriteReceipt]:
        """The receipts since the last call, up to the end. Raises ``KafkaError``; the next call continues there."""
        self._look_up_partitions()
        for number, log in self._logs.items():
            if number not in self._offsets:
                self._offsets[number] = log.earliest(self._deadline())
            yield from self._read(number, log)

    def close(self) -> None:
        self._cluster.close()

    def _read(self, number: int, log: PartitionLog) -> Iterator[WriteReceipt]:
        while True:
            offset = self._offsets[number]
            fetched = log.fetch(offset, self._deadline(), read_committed=True)
            if fetched is None:  # retention has removed the records, or the topic was made again
                self._offsets[number] = log.earliest(self._deadline())
                continue
            receipts = [
                receipt
                for batch in fetched.batches
                for record in batch.records()
                if record.offset >= offset
                for receipt in parsed(record.value or b"", f"{log.partition} offset {record.offset}", self.foreign)
            ]
            self._offsets[number] = fetched.next_offset
            yield from receipts
            if fetched.next_offset >= fetched.end:
                break

    def _look_up_partitions(self) -> None:
        now = self._cluster.now()
        if now < self._look_up_at:
            return
        info = self._cluster.topic(self._topic, self._deadline())
        if info is None:
            raise KafkaError(f"receiptsTopic {self._topic}: there is no such topic")
        for number in range(info.partition_count):
            if number not in self._logs:
                self._logs[number] = PartitionLog(self._cluster, TopicPartition(self._topic, number))
        self._look_up_at = now + _PARTITIONS_EVERY_MS

    def _deadline(self) -> float:
        return self._cluster.now() + self._wait_ms


def parsed(value: bytes, where: str, foreign: Foreign) -> Iterable[WriteReceipt]:
    """The receipt in a record; none if it is foreign, which is counted."""
    try:
        return (WriteReceipt.parse(value.decode(errors="replace").rstrip("\n")),)
    except ValueError as error:
        foreign.add(where, error)
        return ()
