"""One partition of the ledger's topic: its batches from an offset on, and appending to it."""

from __future__ import annotations

from datetime import timedelta
from types import ModuleType
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once.cluster import Cluster
from spark_kafka_sink.exactly_once.ledger_format import RawBatch, raw_batches
from spark_kafka_sink.model import TopicPartition
from spark_kafka_sink.network.calls import Call, CodeAt
from spark_kafka_sink.transactions.values import END_TXN_V2, TransactionalIdentity

_EARLIEST: Final = -2
_FETCH_BYTES: Final = 8 << 20
_PRODUCE_V1, _PRODUCE_V2 = (9, 11), (12, 12)
_ACK_TIME: Final = timedelta(seconds=30)
_SOON_MS: Final = 5.0
_LONGEST_PAUSE_MS: Final = 200.0


class Fetched(NamedTuple):
    """``batches`` from the requested offset on; ``next_offset``: where the next fetch continues."""

    batches: list[RawBatch]
    next_offset: int
    high_watermark: int


class PartitionLog:
    """Methods raise as those of ``Cluster``."""

    def __init__(self, cluster: Cluster, partition: TopicPartition) -> None:
        self.partition = partition
        self._cluster = cluster

    def earliest(self, deadline: float) -> int:
        """The log start offset."""

        def make(module: ModuleType, version: int) -> Any:
            asked = module.request.ListOffsetsPartition(partition_index=self.partition.partition, timestamp=_EARLIEST)
            topic = module.request.ListOffsetsTopic(name=self.partition.topic, partitions=(asked,))
            return module.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=(topic,))

        def codes(body: Any) -> list[CodeAt]:
            return [CodeAt(f"ListOffsets of {self.partition}", each.error_code) for each in _partitions(body.topics)]

        body = self._cluster.call(Call("list_offsets", (5, 7), self.partition, make, codes), deadline)
        return int(_partitions(body.topics)[0].offset)

    def fetch(self, offset: int, deadline: float) -> Fetched | None:
        """Without waiting for new records. None: offset out of range."""

        def make(module: ModuleType, version: int) -> Any:
            request = module.request
            asked = request.FetchPartition(
                partition=self.partition.partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
            )
            return module.FetchRequest(
                max_wait=timedelta(0),
                min_bytes=0,
                topics=(request.FetchTopic(topic=self.partition.topic, partitions=(asked,)),),
                forgotten_topics_data=(),
            )

        def codes(body: Any) -> list[CodeAt]:
            return [CodeAt(f"Fetch of {self.partition}", each.error_code) for each in _partitions(body.responses)]

        body = self._cluster.call(Call("fetch", (11, 12), self.partition, make, codes), deadline)
        fetched = _partitions(body.responses)[0]
        if fetched.error_code is ErrorCode.offset_out_of_range:
            return None
        batches = [batch for batch in raw_batches(fetched.records or b"") if batch.header.last_offset >= offset]
        # Compaction may have removed everything between the offset and the high watermark.
        next_offset = batches[-1].header.last_offset + 1 if batches else max(offset, fetched.high_watermark)
        return Fetched(batches, next_offset, fetched.high_watermark)

    def append(self, batch: bytes, identity: TransactionalIdentity | None, deadline: float) -> int:
        """Produce with acks=all. ``identity``: of the batch's transaction. Returns the batch's offset."""

        def make(module: ModuleType, version: int) -> Any:
            request = module.request
            data = request.PartitionProduceData(index=self.partition.partition, records=batch)
            topic = request.TopicProduceData(name=self.partition.topic, partition_data=(data,))
            transactional_id = None if identity is None else identity.transactional_id
            return module.ProduceRequest(
                transactional_id=transactional_id, acks=-1, timeout=_ACK_TIME, topic_data=(topic,)
            )

        def responses(body: Any) -> list[Any]:
            return [each for topic in body.responses for each in topic.partition_responses]

        def codes(body: Any) -> list[CodeAt]:
            return [
                CodeAt(f"Produce to {self.partition}", each.error_code, each.error_message) for each in responses(body)
            ]

        versions = _PRODUCE_V2 if identity is not None and identity.end_txn_version >= END_TXN_V2 else _PRODUCE_V1
        body = self._cluster.call(Call("produce", versions, self.partition, make, codes), deadline)
        offset = int(responses(body)[0].base_offset)
        if offset < 0:
            raise KafkaError(f"{self.partition} has the records, but its leader does not say at which offset")
        return offset

    def progress_deadline(self, deadline: float) -> ProgressDeadline:
        return ProgressDeadline(self._cluster, self.partition, deadline)


class ProgressDeadline:
    """Bounds the time without progress while a log is read; a long log may take longer."""

    def __init__(self, cluster: Cluster, partition: TopicPartition, deadline: float) -> None:
        self.deadline = deadline
        self._cluster = cluster
        self._partition = partition
        self._allowed_ms = deadline - cluster.now()
        self._attempts = 0

    def progressed(self) -> None:
        self._attempts = 0
        self.deadline = max(self.deadline, self._cluster.now() + self._allowed_ms)

    def wait(self, what: str) -> None:
        """Pauses and forgets the leader: a deposed one still responds. Raises ``KafkaTimeoutError`` at the deadline."""
        left = self.deadline - self._cluster.now()
        self._cluster.pause(max(0.0, min(_SOON_MS * 2**self._attempts, _LONGEST_PAUSE_MS, left)))
        self._cluster.check_time(self.deadline, f"{self._partition} {what}")
        self._cluster.calls.forget(self._partition)
        self._attempts = min(self._attempts + 1, 10)


def _partitions(topics: Any) -> list[Any]:
    return [each for topic in topics for each in topic.partitions]
