"""``TopicReceipts``: the receipts in a receiptsTopic, old and new ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once.committer import Cluster
from spark_kafka_sink.exactly_once.ledger import PartitionLog
from spark_kafka_sink.exactly_once.receipts import WriteReceipt

_PARTITIONS_EVERY_MS: Final = 60_000.0


class TopicReceipts:
    """Reads all partitions of a receiptsTopic, read_committed, on one thread. Each request may take max.block.ms.
    ``foreign``: how many records ``WriteReceipt.parse`` has rejected, which are left out.
    """

    def __init__(self, config: ProducerConfig, topic: str, clock: Clock) -> None:
        self.foreign = 0
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
            records = [record for batch in fetched.batches for record in batch.records() if record.offset >= offset]
            self._offsets[number] = fetched.next_offset
            for record in records:
                try:
                    receipt = WriteReceipt.parse((record.value or b"").decode(errors="replace"))
                except ValueError:
                    self.foreign += 1
                else:
                    yield receipt
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
