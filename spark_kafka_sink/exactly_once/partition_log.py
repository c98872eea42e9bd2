"""One partition of the ledger's topic: its batches from an offset on, and appending to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from types import ModuleType
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.clock import exponential_delay
from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once.cluster import Cluster
from spark_kafka_sink.exactly_once.ledger_format import RawBatch, raw_batches
from spark_kafka_sink.network.api_versions import (
    FETCH_BY_NAME,
    FETCH_FIRST_WITH_TOPIC_IDS,
    PRODUCE_FIRST_WITH_TOPIC_IDS,
    VersionRange,
    camel_case,
    every,
    produce_versions,
)
from spark_kafka_sink.network.calls import Call, CodeAt
from spark_kafka_sink.network.messages import MakeEntity
from spark_kafka_sink.producer.transactions.values import END_TXN_V2, TransactionalIdentity

_EARLIEST, _LATEST = -2, -1
_FETCH_BYTES: Final = 8 << 20
_FIRST_WITH_ISOLATION, _FIRST_WITH_TIMEOUT = 2, 10  # of ListOffsets
_FIRST_WITH_SESSIONS: Final = 7  # of Fetch
_ACK_TIME: Final = timedelta(seconds=30)
_LIST_TIME: Final = timedelta(seconds=30)
_SOON_MS: Final = 5.0
_LONGEST_PAUSE_MS: Final = 200.0


class Fetched(NamedTuple):
    """What a fetch returned: ``batches`` from the requested offset on. The next fetch continues at ``next_offset``. A
    fetch reads up to ``end``, the last stable offset with read_committed, else the high watermark.
    """

    batches: list[RawBatch]
    next_offset: int
    high_watermark: int
    end: int


class PartitionLog:
    """One partition, read and appended to on the caller's thread. Its methods raise what those of ``Cluster`` do."""

    def __init__(self, cluster: Cluster, partition: TopicPartition) -> None:
        self.partition = partition
        self._cluster = cluster

    def earliest(self, deadline: float) -> int:
        """The log start offset."""
        return self._offset(_EARLIEST, deadline)

    def latest(self, deadline: float) -> int:
        """The end of the log, with the records of open transactions."""
        return self._offset(_LATEST, deadline)

    def _offset(self, timestamp: int, deadline: float) -> int:
        def make(module: ModuleType, version: int) -> Any:
            partition = module.request.ListOffsetsPartition(
                partition_index=self.partition.partition, timestamp=timestamp
            )
            topic = module.request.ListOffsetsTopic(name=self.partition.topic, partitions=(partition,))
            fields: dict[str, Any] = {}
            if version >= _FIRST_WITH_ISOLATION:
                fields["isolation_level"] = 0
            if version >= _FIRST_WITH_TIMEOUT:
                fields["timeout"] = _LIST_TIME
            return module.ListOffsetsRequest(replica_id=-1, topics=(topic,), **fields)

        return int(self._call("list_offsets", every("list_offsets"), make, deadline).offset)

    def fetch(self, offset: int, deadline: float, *, read_committed: bool = False) -> Fetched | None:
        """Reads from ``offset``, without waiting for new records. None if the offset is out of range.

        With ``read_committed`` it reads up to the last stable offset, and leaves out control batches and aborted
        transactions.
        """

        def make(module: ModuleType, version: int) -> Any:
            partition = module.request.FetchPartition(
                partition=self.partition.partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
            )
            by_id = version >= FETCH_FIRST_WITH_TOPIC_IDS
            name = {"topic_id": self._topic_id} if by_id else {"topic": self.partition.topic}
            topic = module.request.FetchTopic(partitions=(partition,), **name)
            session = {"forgotten_topics_data": ()} if version >= _FIRST_WITH_SESSIONS else {}
            return module.FetchRequest(
                max_wait=timedelta(0), min_bytes=0, isolation_level=int(read_committed), topics=(topic,), **session
            )

        versions = FETCH_BY_NAME if self._topic_id is None else every("fetch")
        fetched = self._call("fetch", versions, make, deadline)
        if fetched.error_code is ErrorCode.offset_out_of_range:
            return None
        batches = [batch for batch in raw_batches(fetched.records or b"") if batch.header.last_offset >= offset]
        end = fetched.last_stable_offset if read_committed else fetched.high_watermark
        # Compaction may have removed everything between the offset and the end.
        next_offset = batches[-1].header.last_offset + 1 if batches else max(offset, end)
        if read_committed:
            batches = _committed(batches, fetched.aborted_transactions or ())
        return Fetched(batches, next_offset, fetched.high_watermark, end)

    def batches_before(self, end: int, deadline: float, *, read_committed: bool) -> Iterator[RawBatch]:
        """The batches up to offset ``end``, as ``fetch`` returns them. Waits for offsets that cannot be read yet, as
        long as there is progress.
        """
        patience = self.progress_deadline(deadline)
        offset = self.earliest(deadline)
        while offset < end:
            fetched = self.fetch(offset, patience.deadline, read_committed=read_committed)
            if fetched is None or fetched.next_offset == offset:
                patience.wait(f"cannot be read up to offset {end}")
                continue
            patience.progressed()
            offset = fetched.next_offset
            yield from fetched.batches

    def append(self, batch: bytes, identity: TransactionalIdentity | None, deadline: float) -> int:
        """Produces a batch with acks=all and returns its offset. ``identity`` is that of the batch's transaction."""

        def make(module: ModuleType, version: int) -> Any:
            data = module.request.PartitionProduceData(index=self.partition.partition, records=batch)
            by_id = version >= PRODUCE_FIRST_WITH_TOPIC_IDS
            name = {"topic_id": self._topic_id} if by_id else {"name": self.partition.topic}
            topic = module.request.TopicProduceData(partition_data=(data,), **name)
            transactional_id = None if identity is None else identity.transactional_id
            return module.ProduceRequest(
                transactional_id=transactional_id, acks=-1, timeout=_ACK_TIME, topic_data=(topic,)
            )

        protocol = 0 if identity is None else 2 if identity.end_txn_version >= END_TXN_V2 else 1
        versions = produce_versions(self._topic_id is not None, protocol)
        offset = int(self._call("produce", versions, make, deadline).base_offset)
        if offset < 0:
            raise KafkaError(f"{self.partition} has the records, but its leader does not say at which offset")
        return offset

    @property
    def _topic_id(self) -> UUID | None:
        """The topic's id, once its leader has been found; None before, and if no broker knew one."""
        return self._cluster.calls.topic_id(self.partition.topic)

    def progress_deadline(self, deadline: float) -> ProgressDeadline:
        return ProgressDeadline(self._cluster, self.partition, deadline)

    def _call(self, api: str, versions: VersionRange, make: MakeEntity, deadline: float) -> Any:
        """The leader's response for this partition."""

        def codes(body: Any) -> list[CodeAt]:
            where = f"{camel_case(api)} of {self.partition}"
            return [CodeAt(where, each.error_code, getattr(each, "error_message", None)) for each in self._own(body)]

        return self._own(self._cluster.call(Call(api, versions, self.partition, make, codes), deadline))[0]

    def _own(self, body: Any) -> list[Any]:
        """The part of a ListOffsets, Fetch or Produce response about this partition. A throttled Fetch has none."""
        names = (self.partition.topic, self._topic_id)
        return [
            each
            for topic in (body.topics if hasattr(body, "topics") else body.responses)
            for each in (topic.partitions if hasattr(topic, "partitions") else topic.partition_responses)
            if _first(topic, "name", "topic", "topic_id") in names
            and _first(each, "partition_index", "index") == self.partition.partition
        ]


def _committed(batches: list[RawBatch], aborted: Iterable[Any]) -> list[RawBatch]:
    """The batches without control batches and those of ``aborted`` transactions, each of which goes from its first
    offset to its control batch (Java: ``CompletedFetch.containsAbortMarker``, ``consumeAbortedTransactionsUpTo``).
    """
    first_offsets = sorted((each.first_offset, each.producer_id) for each in aborted)
    aborting: set[int] = set()
    kept = []
    for batch in batches:
        while first_offsets and first_offsets[0][0] <= batch.header.last_offset:
            aborting.add(first_offsets.pop(0)[1])
        if batch.header.is_control:
            aborting.discard(batch.header.producer_id)
        elif not batch.header.is_transactional or batch.header.producer_id not in aborting:
            kept.append(batch)
    return kept


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
        """Pauses, and forgets the leader, because a deposed one still responds. Raises ``KafkaTimeoutError`` at the
        deadline.
        """
        left = self.deadline - self._cluster.now()
        self._cluster.pause(max(0.0, min(exponential_delay(_SOON_MS, _LONGEST_PAUSE_MS, self._attempts), left)))
        self._cluster.check_time(self.deadline, f"{self._partition} {what}")
        self._cluster.calls.forget(self._partition)
        self._attempts += 1


def _first(of: Any, *names: str) -> Any:
    """The first of these fields that the API version has."""
    return next((getattr(of, name) for name in names if hasattr(of, name)), None)
