"""Reading the ledger of one name, and writing to it under the driver's fence."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.errors import KafkaError, ProducerFencedError
from spark_kafka_sink.exactly_once import steps
from spark_kafka_sink.exactly_once.cluster import Cluster
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError, NotDecidedError
from spark_kafka_sink.exactly_once.ledger_format import LedgerRecord, LedgerWrite, barrier_record
from spark_kafka_sink.exactly_once.ledger_view import LedgerView, MarkerOutcomes
from spark_kafka_sink.exactly_once.partition_log import PartitionLog
from spark_kafka_sink.exactly_once.values import DRIVER_TIMEOUT_MS, DriverIdentity, LedgerPartitions
from spark_kafka_sink.model import TopicPartition
from spark_kafka_sink.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    stamp_header,
)
from spark_kafka_sink.records.compression import CODEC_IDS, compress
from spark_kafka_sink.records.sizes import encode_varint
from spark_kafka_sink.transactions.committer import Committer, EndVerdict
from spark_kafka_sink.transactions.values import END_TXN_V2, PreparedTransaction

_log = logging.getLogger("spark_kafka_sink.exactly_once")

_CODEC: Final = "gzip"
_COMPRESS_FROM: Final = 1024
_SOON_MS: Final = 5.0
_OLDEST_VIEW_MS: Final = 900_000
"""Half of the delete.retention.ms that the topic is created with."""

_told_foreign: set[TopicPartition] = set()


class Ledger:
    """``view`` is what was read so far; the methods that read bring it further and return it.

    ``deadline`` bounds the time without progress: a log that is long is read to its end, however long that takes.
    """

    def __init__(
        self, cluster: Cluster, name: str, partitions: LedgerPartitions, new_view: type[LedgerView] = LedgerView
    ) -> None:
        self.view = new_view(name)
        self.partitions = partitions
        self._cluster = cluster
        self._log = self._partition_log(partitions.partition)
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
        header = BatchHeader(0, 1, now_ms, now_ms, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
        barrier = self._log.append(_batch(header, [barrier_record(self.view.name)]), None, deadline)
        return self._read_to(barrier + 1, deadline)

    def await_decided(self, undecided: Callable[[LedgerView], bool], deadline: float) -> LedgerView:
        """Read until the control records of what is ``undecided`` are in the log; a few milliseconds as a rule."""
        while undecided(self.read(deadline)):
            self._cluster.check_time(deadline, f"Transactions in {self._log.partition} stay undecided")
            self._cluster.pause(_SOON_MS)
        return self.view

    def committed_markers(
        self, partition: int, markers: Mapping[int, tuple[int, PreparedTransaction]], deadline: float
    ) -> set[int]:
        """``markers``: task → its marker's offset and its transaction, all in this partition. Which of them committed,
        told when the log is read past each offset and its control record."""
        log, fates = self._partition_log(partition), MarkerOutcomes(markers)
        patience, end = log.patience(deadline), None
        while not fates.decided:
            what = f"does not say yet what became of the transaction marked at offset {fates.next_offset} or behind"
            fetched = log.fetch(fates.next_offset, patience.deadline)
            if fetched is None or fetched.next_offset == fates.next_offset:
                patience.wait(what)
                continue
            end = fetched.high_watermark if end is None else end
            fates.apply(fetched.batches, fetched.next_offset)
            if fates.next_offset < end:
                patience.progressed()
            else:
                self._cluster.check_time(patience.deadline, f"{log.partition} {what}")
        info = self._cluster.topic(self.partitions.topic, deadline)
        if info is None or info.topic_id != self._topic_id:
            raise ExactlyOnceError(
                f"commitLogTopic {self.partitions.topic} was deleted and made again while it was read: what was "
                "decided cannot be told from it"
            )
        return fates.committed

    def append(self, driver: DriverIdentity, write: LedgerWrite, now_ms: int, deadline: float) -> None:
        """Into the driver's open transaction; with protocol v2 this opens it."""
        fence = driver.identity
        for log, sequence, records in self._parts(driver, write):
            attributes, count = TRANSACTIONAL, len(records)
            header = BatchHeader(attributes, count, now_ms, now_ms, fence.producer_id, fence.epoch, sequence)
            log.append(_batch(header, records), fence, deadline)

    def behind(self, driver: DriverIdentity, write: LedgerWrite) -> DriverIdentity:
        """The sequence numbers after a write, where the epoch stays (transactions v1)."""
        parts = {log.partition.partition: len(records) for log, _, records in self._parts(driver, write)}
        entries = parts.pop(self.partitions.partition)
        return DriverIdentity(driver.identity, driver.sequence + entries, driver.marker_sequence + sum(parts.values()))

    def partitions_of(self, driver: DriverIdentity, write: LedgerWrite) -> list[TopicPartition]:
        return [log.partition for log, _, _ in self._parts(driver, write)]

    def _parts(
        self, driver: DriverIdentity, write: LedgerWrite
    ) -> list[tuple[PartitionLog, int, Sequence[LedgerRecord]]]:
        """What goes to which partition, and with which sequence number."""
        if not write.markers or write.marker_partition is None:
            return [(self._log, driver.sequence, write.entries)]
        if write.marker_partition == self.partitions.partition:
            return [(self._log, driver.sequence, (*write.entries, *write.markers))]
        markers = self._partition_log(write.marker_partition)
        return [(markers, driver.marker_sequence, write.markers), (self._log, driver.sequence, write.entries)]

    def _partition_log(self, partition: int) -> PartitionLog:
        return PartitionLog(self._cluster, TopicPartition(self.partitions.topic, partition))

    def _follow_topic(self, deadline: float) -> None:
        """A topic that was made anew is read from its start. So is one that was not looked at for long: compaction may
        have removed the control records of what was read as undecided."""
        info = self._cluster.topic(self.partitions.topic, deadline)
        topic_id = None if info is None else info.topic_id
        old = self._cluster.now() - self._read_at > _OLDEST_VIEW_MS
        if self._next_offset is None or topic_id != self._topic_id or old:
            self._start_anew(deadline)
            self._topic_id = topic_id

    def _read_to(self, end: int | None, deadline: float) -> LedgerView:
        """Up to offset ``end``, None: to the high watermark that the first response tells."""
        assert self._next_offset is not None
        patience = self._log.patience(deadline)
        while True:
            fetched = self._log.fetch(self._next_offset, patience.deadline)
            if fetched is None:
                self._start_anew(patience.deadline)
                patience.wait(f"could not be read up to offset {end}")
                continue
            end = fetched.high_watermark if end is None else end
            progress = fetched.next_offset > self._next_offset
            self.view.apply(fetched.batches)
            self._next_offset = fetched.next_offset
            if self._next_offset >= end:
                self._read_at = self._cluster.now()
                self._tell_foreign()
                return self.view
            if progress:
                patience.progressed()
            else:
                patience.wait(f"could not be read up to offset {end}")

    def _start_anew(self, deadline: float) -> None:
        self._next_offset = self._log.earliest(deadline)
        self.view = type(self.view)(self.view.name)

    def _tell_foreign(self) -> None:
        partition = self._log.partition
        if self.view.foreign and partition not in _told_foreign:
            _told_foreign.add(partition)
            _log.warning(
                "%d records in %s are not of this sink and are ignored. Who may write to the commitLogTopic may decide "
                "what is committed: give WRITE on it to nobody else.",
                self.view.foreign,
                partition,
            )


def record_decision(
    ledger: Ledger, committer: Committer, driver: DriverIdentity, write: LedgerWrite, clock: Clock, deadline: float
) -> DriverIdentity:
    """A transaction of its own under the driver's fence, whose EndTxn is the proof that the fence still stands. Gives
    the identity of the next. Raises ``ExactlyOnceError`` when another driver has taken over; after any other error the
    records may stand or not, and only a reader under a newer fence can tell.
    """
    fence = driver.identity
    try:
        if fence.end_txn_version < END_TXN_V2:
            committer.add_partitions(fence, ledger.partitions_of(driver, write), deadline - clock.now())
        ledger.append(driver, write, clock.epoch_ms(), deadline)
        steps.reach("intent in the log")
        prepared = PreparedTransaction(fence.transactional_id, *fence.identity, fence.end_txn_version)
        if clock.now() >= deadline:
            raise NotDecidedError(f"the time was up before EndTxn of {fence.transactional_id} was sent")
        (outcome,) = committer.end([(prepared, True)], deadline - clock.now())
    except ProducerFencedError as error:
        raise _taken_over(fence.transactional_id, error) from error
    if outcome.verdict is EndVerdict.GONE:
        raise _taken_over(fence.transactional_id, outcome.error) from outcome.error
    if outcome.fence is None:
        raise outcome.error or KafkaError(f"{outcome.verdict.value}: {prepared}")
    after = replace(fence, producer_id=outcome.fence.producer_id, epoch=outcome.fence.epoch)
    if after != fence:
        return DriverIdentity(after)
    return ledger.behind(driver, write)


def _taken_over(transactional_id: str, error: KafkaError | None) -> ExactlyOnceError:
    return ExactlyOnceError(
        f"Another driver has fenced {transactional_id}: a restarted run of this query, or a second query "
        f"under the same transactionalIdPrefix; or its transaction outlived {DRIVER_TIMEOUT_MS} ms. This run commits "
        f"nothing more. Give each query a prefix of its own; end the run that is not wanted. ({error})"
    )


def _batch(header: BatchHeader, records: Sequence[LedgerRecord]) -> bytes:
    payload = b"".join(_encoded(index, record) for index, record in enumerate(records))
    if len(payload) >= _COMPRESS_FROM:
        payload = compress(_CODEC, None, [payload])
        header = header._replace(attributes=header.attributes | CODEC_IDS[_CODEC])
    return stamp_header(header, [payload]) + payload


def _encoded(index: int, record: LedgerRecord) -> bytes:
    """One by one, as a driver has few: the encoder of columns costs a process that only plans half a second of CPU, in
    which Arrow imports pandas."""
    attributes, timestamp_delta, no_headers = b"\0", encode_varint(0), encode_varint(0)
    fields = (attributes, timestamp_delta, encode_varint(index), _sized(record.key), _sized(record.value), no_headers)
    return _sized(b"".join(fields))


def _sized(data: bytes | None) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data
