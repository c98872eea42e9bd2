"""Reads the ledger of one name, and appends to it in the driver's transactions."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.exactly_once.cluster import Cluster
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.ledger_format import LedgerRecord, LedgerWrite, barrier_record, encode_batch
from spark_kafka_sink.exactly_once.ledger_topic import refuse_too_few
from spark_kafka_sink.exactly_once.ledger_view import LedgerView, MarkerOutcomes
from spark_kafka_sink.exactly_once.partition_log import PartitionLog
from spark_kafka_sink.exactly_once.values import DriverIdentity, LedgerPartitions
from spark_kafka_sink.producer.transactions.requests import PreparedTransaction, TransactionalIdentity
from spark_kafka_sink.records.encode import (
    TRANSACTIONAL,
    BatchHeader,
)

_log = logging.getLogger("spark_kafka_sink.exactly_once")

_SOON_MS: Final = 5.0
LAG_MS: Final = 2_000.0
"""A broker may not know a new topic, or that it no longer coordinates a transaction, for this long."""

_MAX_VIEW_AGE_MS: Final = 900_000
"""Half of the delete.retention.ms that the topic is created with."""

_warned_foreign: set[TopicPartition] = set()


def missing_ledger(topic: str) -> ExactlyOnceError:
    """The topic was there when the write was planned."""
    return ExactlyOnceError(
        f"ledgerTopic {topic} does not exist any more. Start the write again: it creates an empty one, which does not "
        "tell what is committed, so the next error (or the warning, of a batch job with txnAppId) says how to go on"
    )


class LedgerPart(NamedTuple):
    """The records of a write for one partition, with their base sequence."""

    log: PartitionLog
    sequence: int
    records: Sequence[LedgerRecord]

    def append(self, identity: TransactionalIdentity, now_ms: int, deadline: float) -> None:
        """Appends to the open transaction. Under transactions v2 the first append opens it."""
        header = BatchHeader(
            attributes=TRANSACTIONAL,
            record_count=len(self.records),
            base_timestamp=now_ms,
            max_timestamp=now_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=self.sequence,
        )
        self.log.append(encode_batch(header, self.records), identity, deadline)


class Ledger:
    """The ledger of one name. ``view`` is what was read so far; the reading methods extend and return it.

    ``deadline`` bounds the time without progress, so that a long log is read to its end.
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
        self._read_at, self._read_at_epoch = 0.0, 0

    @property
    def topic_id(self) -> UUID | None:
        """The id of the topic that was read; None before, and from brokers without topic ids."""
        return self._topic_id

    def read(self, deadline: float) -> LedgerView:
        """Reads up to the leader's high watermark. It may be behind acknowledged records, because a new leader learns
        it from its followers, and a deposed leader does not know that it is deposed.
        """
        self._follow_topic(deadline)
        return self._read_to(None, deadline)

    def read_acknowledged(self, now_ms: int, deadline: float) -> LedgerView:
        """Reads everything acknowledged before the call, up to a barrier record that is appended with acks=all. The
        barrier is in no transaction, so it decides nothing, and compaction removes it.
        """
        self._follow_topic(deadline)
        header = BatchHeader(attributes=0, record_count=1, base_timestamp=now_ms, max_timestamp=now_ms)
        barrier = self._log.append(encode_batch(header, [barrier_record(self.view.name)]), None, deadline)
        return self._read_to(barrier + 1, deadline)

    def await_control_records(self, deadline: float) -> None:
        """Waits for control records, which come a few ms later. Raises ``KafkaTimeoutError`` at the deadline."""
        self._cluster.check_time(deadline, f"Transactions in {self._log.partition} stay undecided")
        self._cluster.pause(_SOON_MS)

    def committed_markers(
        self, partition: int, markers: Mapping[int, tuple[int, PreparedTransaction]], deadline: float
    ) -> set[int]:
        """The tasks whose transaction committed. Reads the log past each marker and its control record. ``markers``
        maps a task to its marker's offset in ``partition`` and its transaction.
        """
        log, outcomes = self._partition_log(partition), MarkerOutcomes(markers)
        patience, end = log.progress_deadline(deadline), None
        while not outcomes.decided:
            what = f"does not say yet what became of the transaction marked at offset {outcomes.next_offset} or behind"
            fetched = log.fetch(outcomes.next_offset, patience.deadline)
            if fetched is None or fetched.next_offset == outcomes.next_offset:
                patience.wait(what)
                continue
            end = fetched.high_watermark if end is None else end
            outcomes.apply(fetched.batches, fetched.next_offset)
            if outcomes.next_offset < end:
                patience.progressed()
            else:
                self._cluster.check_time(patience.deadline, f"{log.partition} {what}")
        info = self._cluster.topic(self.partitions.topic, deadline)
        if info is None or info.topic_id != self._topic_id:
            raise ExactlyOnceError(
                f"ledgerTopic {self.partitions.topic} was deleted and made again while it was read: it cannot say "
                "what was decided"
            )
        return outcomes.committed

    def parts(self, driver: DriverIdentity, write: LedgerWrite) -> list[LedgerPart]:
        """The write's records by partition. The last part has the entries."""
        if not write.markers or write.marker_partition is None:
            return [LedgerPart(self._log, driver.sequence, write.entries)]
        if write.marker_partition == self.partitions.partition:
            return [LedgerPart(self._log, driver.sequence, (*write.entries, *write.markers))]
        markers = LedgerPart(self._partition_log(write.marker_partition), driver.marker_sequence, write.markers)
        return [markers, LedgerPart(self._log, driver.sequence, write.entries)]

    def _partition_log(self, partition: int) -> PartitionLog:
        return PartitionLog(self._cluster, TopicPartition(self.partitions.topic, partition))

    def _follow_topic(self, deadline: float) -> None:
        """Starts anew if the topic was recreated, or if the view is so old that compaction may have removed the control
        records of transactions that it has as undecided."""
        topic, patience = self.partitions.topic, min(deadline, self._cluster.now() + LAG_MS)
        while (info := self._cluster.topic(topic, deadline)) is None:
            if self._cluster.now() >= patience:
                raise missing_ledger(topic)
            self._cluster.pause(_SOON_MS)
        refuse_too_few(topic, info.partition_count)
        topic_id = info.topic_id
        age_ms = max(self._cluster.now() - self._read_at, self._cluster.epoch_ms() - self._read_at_epoch)
        old = age_ms > _MAX_VIEW_AGE_MS
        if self._next_offset is None or topic_id != self._topic_id or old:
            self._start_anew(deadline)
            self._topic_id = topic_id

    def _read_to(self, end: int | None, deadline: float) -> LedgerView:
        """Reads up to offset ``end``, or to the high watermark of the first response."""
        assert self._next_offset is not None
        patience = self._log.progress_deadline(deadline)
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
                self._read_at, self._read_at_epoch = self._cluster.now(), self._cluster.epoch_ms()
                self._warn_of_foreign_records()
                return self.view
            if progress:
                patience.progressed()
            else:
                patience.wait(f"could not be read up to offset {end}")

    def _start_anew(self, deadline: float) -> None:
        self._next_offset = self._log.earliest(deadline)
        self.view = type(self.view)(self.view.name)

    def _warn_of_foreign_records(self) -> None:
        partition = self._log.partition
        if self.view.foreign and partition not in _warned_foreign:
            _warned_foreign.add(partition)
            _log.warning(
                "%d records in %s are not of this sink and are ignored. A principal that may write to the "
                "ledgerTopic may decide what is committed: grant WRITE on it to this sink only.",
                self.view.foreign,
                partition,
            )
