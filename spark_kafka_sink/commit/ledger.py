"""Reading the ledger of one name, and writing to it under the driver's fence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from types import ModuleType
from typing import Any, Final
from uuid import UUID

import numpy as np
from kio.schema.errors import ErrorCode

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.commit.cluster import Cluster, CodeAt, Question
from spark_kafka_sink.commit.errors import ExactlyOnceError
from spark_kafka_sink.commit.fault_points import reach
from spark_kafka_sink.commit.format import LedgerRecord, barrier_record
from spark_kafka_sink.commit.ledger_view import LedgerView
from spark_kafka_sink.commit.values import DRIVER_TIMEOUT_MS, DriverIdentity, LedgerPlace
from spark_kafka_sink.errors import KafkaError, ProducerFencedError
from spark_kafka_sink.model import TopicPartition
from spark_kafka_sink.producer.committer import Committer, EndVerdict
from spark_kafka_sink.records.arrow import bytes_column
from spark_kafka_sink.records.batch import TRANSACTIONAL, BatchHeader, stamp_header
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.compression import CODEC_IDS, compress
from spark_kafka_sink.records.decode import decode_batches
from spark_kafka_sink.records.encode import encode_records
from spark_kafka_sink.sender.transactions.values import END_TXN_V2, Fence, PreparedTransaction

_EARLIEST: Final = -2
_FETCH_BYTES: Final = 8 << 20
_PRODUCE_V1, _PRODUCE_V2 = (9, 11), (12, 12)
_CODEC: Final = "gzip"
_COMPRESS_FROM: Final = 1024
_ACK_TIME: Final = timedelta(seconds=30)
_SOON_MS: Final = 5.0
_LONGEST_PAUSE_MS: Final = 200.0
_OLDEST_VIEW_MS: Final = 1_800_000
"""Half of the delete.retention.ms that the topic is created with."""


class Ledger:
    """``view`` is what was read so far; the methods that read bring it further and return it.

    ``deadline`` bounds the time without progress: a log that is long is read to its end, however long that takes.
    """

    def __init__(
        self, cluster: Cluster, name: str, place: LedgerPlace, new_view: type[LedgerView] = LedgerView
    ) -> None:
        self.view = new_view(name)
        self.place = place
        self._cluster = cluster
        self._partition = TopicPartition(place.topic, place.partition)
        self._next_offset: int | None = None
        self._topic_id: UUID | None = None
        self._read_at = 0.0

    def read(self, deadline: float) -> LedgerView:
        """Up to the high watermark that the leader tells now. It may lag behind what was acknowledged: a new leader
        learns it from its followers, and a deposed one does not know that it is."""
        self._follow_topic(deadline)
        return self._read_to(None, deadline)

    def read_acknowledged(self, now_ms: int, deadline: float) -> LedgerView:
        """Everything that was acknowledged before the call: up to a barrier record that is appended with acks=all.

        The barrier is in no transaction, so it decides nothing, and a tombstone, so that compaction removes it.
        """
        self._follow_topic(deadline)
        barrier = self._produce(_plain_batch(barrier_record(self.view.name), now_ms), None, deadline)
        return self._read_to(barrier + 1, deadline)

    def await_decided(self, undecided: Callable[[LedgerView], bool], deadline: float) -> LedgerView:
        """Read until the control records of what is ``undecided`` are in the log; a few milliseconds as a rule."""
        while undecided(self.read(deadline)):
            self._cluster.check_time(deadline, f"Transactions in {self._partition} stay undecided")
            self._cluster.pause(_SOON_MS)
        return self.view

    def append(self, driver: DriverIdentity, record: LedgerRecord, now_ms: int, deadline: float) -> None:
        """One record into the driver's open transaction; with protocol v2 this opens it."""
        self._produce(_batch(driver, record, now_ms), driver.fence, deadline)

    def _produce(self, batch: bytes, fence: Fence | None, deadline: float) -> int:
        """With acks=all; gives the batch's offset."""

        def make(module: ModuleType, version: int) -> Any:
            request = module.request
            data = request.PartitionProduceData(index=self._partition.partition, records=batch)
            topic = request.TopicProduceData(name=self._partition.topic, partition_data=(data,))
            transactional_id = None if fence is None else fence.transactional_id
            return module.ProduceRequest(
                transactional_id=transactional_id, acks=-1, timeout=_ACK_TIME, topic_data=(topic,)
            )

        def codes(body: Any) -> list[CodeAt]:
            return [
                CodeAt(f"Produce to {self._partition}", each.error_code, each.error_message)
                for topic in body.responses
                for each in topic.partition_responses
            ]

        versions = _PRODUCE_V2 if fence is not None and fence.end_txn_version >= END_TXN_V2 else _PRODUCE_V1
        body = self._cluster.ask_leader(self._partition, Question("produce", versions, make, codes), deadline)
        return int(body.responses[0].partition_responses[0].base_offset)

    def _follow_topic(self, deadline: float) -> None:
        """A topic that was made anew is read from its start. So is one that was not looked at for long: compaction may
        have removed the control records of what was read as undecided."""
        info = self._cluster.topic(self.place.topic, deadline)
        topic_id = None if info is None else info.topic_id
        old = self._cluster.now() - self._read_at > _OLDEST_VIEW_MS
        if self._next_offset is None or topic_id != self._topic_id or old:
            self._start_anew(deadline)
            self._topic_id = topic_id

    def _read_to(self, end: int | None, deadline: float) -> LedgerView:
        """Up to offset ``end``, None: to the high watermark that the first response tells."""
        patience = deadline - self._cluster.now()
        idle = 0
        while True:
            before = self._next_offset
            answer = self._fetch(deadline)
            if answer.error_code is ErrorCode.offset_out_of_range:
                self._start_anew(deadline)
                continue
            end = answer.high_watermark if end is None else end
            if self._take(answer, end) >= end:
                self._read_at = self._cluster.now()
                return self.view
            if self._next_offset != before:
                idle, deadline = 0, self._cluster.now() + patience
                continue
            left = deadline - self._cluster.now()
            self._cluster.pause(max(0.0, min(_SOON_MS * 2**idle, _LONGEST_PAUSE_MS, left)))
            self._cluster.check_time(deadline, f"{self._partition} could not be read up to offset {end}")
            self._cluster.forget_leader(self._partition)
            idle += 1

    def _start_anew(self, deadline: float) -> None:
        def make(module: ModuleType, version: int) -> Any:
            asked = module.request.ListOffsetsPartition(partition_index=self._partition.partition, timestamp=_EARLIEST)
            topic = module.request.ListOffsetsTopic(name=self._partition.topic, partitions=(asked,))
            return module.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=(topic,))

        def codes(body: Any) -> list[CodeAt]:
            return [CodeAt(f"ListOffsets of {self._partition}", each.error_code) for each in _partitions(body.topics)]

        body = self._cluster.ask_leader(self._partition, Question("list_offsets", (5, 7), make, codes), deadline)
        self._next_offset = int(_partitions(body.topics)[0].offset)
        self.view = type(self.view)(self.view.name)

    def _fetch(self, deadline: float) -> Any:
        """What is there from the next offset on, without waiting for more."""

        def make(module: ModuleType, version: int) -> Any:
            request = module.request
            asked = request.FetchPartition(
                partition=self._partition.partition, fetch_offset=self._next_offset, partition_max_bytes=_FETCH_BYTES
            )
            return module.FetchRequest(
                max_wait=timedelta(0),
                min_bytes=0,
                topics=(request.FetchTopic(topic=self._partition.topic, partitions=(asked,)),),
                forgotten_topics_data=(),
            )

        def codes(body: Any) -> list[CodeAt]:
            codes = [each.error_code for each in _partitions(body.responses)]
            told = [ErrorCode.none if code is ErrorCode.offset_out_of_range else code for code in codes]
            return [CodeAt(f"Fetch of {self._partition}", code) for code in told]

        body = self._cluster.ask_leader(self._partition, Question("fetch", (11, 12), make, codes), deadline)
        return _partitions(body.responses)[0]

    def _take(self, answer: Any, end: int) -> int:
        """The records of an answer into the view; says which offset is the next."""
        offset = self._next_offset
        assert offset is not None
        batches = decode_batches(answer.records or b"", partial_tail=True)
        fresh = [batch for batch in batches if batch.header.last_offset >= offset]
        self.view.apply(fresh)
        if fresh:
            offset = fresh[-1].header.last_offset + 1
        elif answer.high_watermark >= end:
            offset = end  # compaction left nothing of the last offsets
        self._next_offset = offset
        return offset


def record_decision(
    ledger: Ledger, committer: Committer, driver: DriverIdentity, record: LedgerRecord, clock: Clock, deadline: float
) -> DriverIdentity:
    """One record in a transaction of its own under the driver's fence, whose EndTxn is the proof that the fence still
    stands. Gives the identity of the next. Raises ``ExactlyOnceError`` when another driver has taken over; after any
    other error the record may stand or not, and only a reader under a newer fence can tell.
    """
    fence = driver.fence
    partition = TopicPartition(ledger.place.topic, ledger.place.partition)
    try:
        if fence.end_txn_version < END_TXN_V2:
            committer.add_partitions(fence, [partition], deadline - clock.now())
        ledger.append(driver, record, clock.epoch_ms(), deadline)
        reach("intent in the log")
        prepared = PreparedTransaction(fence.transactional_id, *fence.identity, fence.end_txn_version)
        (outcome,) = committer.end([(prepared, True)], deadline - clock.now())
    except ProducerFencedError as error:
        raise _taken_over(fence.transactional_id, error) from error
    if outcome.verdict is EndVerdict.GONE:
        raise _taken_over(fence.transactional_id, outcome.error) from outcome.error
    if outcome.fence is None:
        raise outcome.error or KafkaError(f"{outcome.verdict.value}: {prepared}")
    return next_identity(driver, replace(fence, producer_id=outcome.fence.producer_id, epoch=outcome.fence.epoch))


def next_identity(driver: DriverIdentity, fence: Fence) -> DriverIdentity:
    """A new epoch counts from 0; with protocol v1 the epoch stays, and so does the count."""
    if fence == driver.fence:
        return DriverIdentity(fence, driver.sequence + 1)
    return DriverIdentity(fence)


def _taken_over(transactional_id: str, error: KafkaError | None) -> ExactlyOnceError:
    return ExactlyOnceError(
        f"Another driver has taken the fence {transactional_id}: a restarted run of this query, or a second query "
        f"under the same transactionalIdPrefix; or its transaction outlived {DRIVER_TIMEOUT_MS} ms. This run commits "
        f"nothing more. Give each query a prefix of its own; end the run that is not wanted. ({error})"
    )


def _plain_batch(record: LedgerRecord, now_ms: int) -> bytes:
    payload = _payload(record)
    return stamp_header(BatchHeader(0, 1, now_ms, now_ms), [payload]) + payload


def _payload(record: LedgerRecord) -> bytes:
    columns = RecordColumns(bytes_column([record.key]), bytes_column([record.value]))
    return bytes(encode_records(columns, np.zeros(1, np.int64), 0).data)


def _batch(driver: DriverIdentity, record: LedgerRecord, now_ms: int) -> bytes:
    payload = _payload(record)
    attributes = TRANSACTIONAL
    if len(payload) >= _COMPRESS_FROM:
        payload = compress(_CODEC, None, [payload])
        attributes |= CODEC_IDS[_CODEC]
    fence = driver.fence
    header = BatchHeader(attributes, 1, now_ms, now_ms, fence.producer_id, fence.epoch, driver.sequence)
    return stamp_header(header, [payload]) + payload


def _partitions(topics: Any) -> list[Any]:
    return [each for topic in topics for each in topic.partitions]
