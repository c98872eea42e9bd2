"""Reads the ledger of one name, and appends to it in the driver's transactions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import ModuleType
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.clock import exponential_delay
from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once.committer import Cluster
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.ledger_format import (
    LedgerRecord,
    LedgerWrite,
    RawBatch,
    barrier_record,
    encode_batch,
    raw_batches,
)
from spark_kafka_sink.exactly_once.ledger_topic import refuse_too_few
from spark_kafka_sink.exactly_once.ledger_view import LedgerView, MarkerOutcomes
from spark_kafka_sink.exactly_once.values import DriverIdentity, LedgerPartitions
from spark_kafka_sink.network.api_versions import (
    FETCH_BY_NAME,
    FETCH_FIRST_WITH_TOPIC_IDS,
    VersionRange,
    camel_case,
    every,
    produce_versions,
)
from spark_kafka_sink.network.calls import Call, CodeAt
from spark_kafka_sink.network.messages import MakeEntity
from spark_kafka_sink.producer.produce_api import ProduceEntity
from spark_kafka_sink.producer.transaction_requests import END_TXN_V2, PreparedTransaction, TransactionalIdentity
from spark_kafka_sink.records.batch import TRANSACTIONAL, BatchHeader

_log = logging.getLogger("spark_kafka_sink.exactly_once")

_SOON_MS: Final = 5.0
LAG_MS: Final = 2_000.0
"""How long a broker may not know of a new topic, or that it no longer coordinates a transaction."""

_MAX_VIEW_AGE_MS: Final = 900_000
"""The age at which a view is read anew: half of the delete.retention.ms that the topic is created with."""

_warned_foreign: set[TopicPartition] = set()


def missing_ledger(topic: str) -> ExactlyOnceError:
    """The error for a ledger topic that was there when the write was planned, and is not any longer."""
    return ExactlyOnceError(
        f"ledgerTopic {topic} does not exist any more. Start the write again: it creates an empty one, which does not "
        "show what is committed, so the next error (or the warning, of a batch job with txnAppId) says how to go on"
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
    """The ledger of one name, or with the name "" the ledger of all names in a partition. ``view``: the entries read so
    far, which the reading methods extend and return. ``topic_id``: the id of the topic that was read; None before, and
    from brokers without topic ids.

    ``deadline`` bounds the time without progress, so that a long log is read to its end.
    """

    def __init__(self, cluster: Cluster, name: str, partitions: LedgerPartitions) -> None:
        self.view = LedgerView(name)
        self.partitions = partitions
        self._cluster = cluster
        self._log = self._partition_log(partitions.partition)
        self._next_offset: int | None = None
        self.topic_id: UUID | None = None
        self._read_at, self._read_at_epoch = 0.0, 0

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
        """Waits for the control records of transactions that have ended, which come a few ms later. Raises
        ``KafkaTimeoutError`` at the deadline."""
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
                patience.note_progress()
            else:
                self._cluster.check_time(patience.deadline, f"{log.partition} {what}")
        info = self._cluster.topic(self.partitions.topic, deadline)
        if info is None or info.topic_id != self.topic_id:
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
        """Starts anew if the topic was recreated, or if the view is so old that compaction may have removed control
        records of transactions that the view has as undecided."""
        topic, patience = self.partitions.topic, min(deadline, self._cluster.now() + LAG_MS)
        while (info := self._cluster.topic(topic, deadline)) is None:
            if self._cluster.now() >= patience:
                raise missing_ledger(topic)
            self._cluster.pause(_SOON_MS)
        refuse_too_few(topic, info.partition_count)
        topic_id = info.topic_id
        age_ms = max(self._cluster.now() - self._read_at, self._cluster.epoch_ms() - self._read_at_epoch)
        old = age_ms > _MAX_VIEW_AGE_MS
        if self._next_offset is None or topic_id != self.topic_id or old:
            self._start_anew(deadline)
            self.topic_id = topic_id

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
                patience.note_progress()
            else:
                patience.wait(f"could not be read up to offset {end}")

    def _start_anew(self, deadline: float) -> None:
        self._next_offset = self._log.earliest(deadline)
        self.view = LedgerView(self.view.name)

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


_EARLIEST, _LATEST = -2, -1
_FETCH_BYTES: Final = 8 << 20
_FIRST_WITH_ISOLATION, _FIRST_WITH_TIMEOUT = 2, 10  # of ListOffsets
_FIRST_WITH_SESSIONS: Final = 7  # of Fetch
_ACK_TIME: Final = timedelta(seconds=30)
_LIST_TIME: Final = timedelta(seconds=30)
_MAX_PAUSE_MS: Final = 200.0


class Fetched(NamedTuple):
    """The result of a fetch: ``batches`` from the requested offset on. The next fetch continues at ``next_offset``. A
    fetch reads up to ``end``, the last stable offset with read_committed, else the high watermark.
    """

    batches: list[RawBatch]
    next_offset: int
    high_watermark: int
    end: int


class PartitionLog:
    """One partition, read and appended to on the caller's thread. Its methods raise the same errors as
    ``Cluster``'s."""

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
            batches = _drop_aborted(batches, fetched.aborted_transactions or ())
        return Fetched(batches, next_offset, fetched.high_watermark, end)

    def batches_before(self, end: int, deadline: float) -> Iterator[RawBatch]:
        """The committed batches up to offset ``end``. Waits for offsets that cannot be read yet, as long as there is
        progress.
        """
        patience = self.progress_deadline(deadline)
        offset = self.earliest(deadline)
        while offset < end:
            fetched = self.fetch(offset, patience.deadline, read_committed=True)
            if fetched is None or fetched.next_offset == offset:
                patience.wait(f"cannot be read up to offset {end}")
                continue
            patience.note_progress()
            offset = fetched.next_offset
            yield from fetched.batches

    def append(self, batch: bytes, identity: TransactionalIdentity | None, deadline: float) -> int:
        """Produces a batch with acks=all and returns its offset. ``identity``: the producer of the batch's
        transaction."""
        transactional_id = None if identity is None else identity.transactional_id

        def make(module: ModuleType, version: int) -> Any:
            entity = ProduceEntity(self.partition, self._topic_id, batch, _ACK_TIME, transactional_id)
            return entity(module, version)

        protocol = 0 if identity is None else 2 if identity.end_txn_version >= END_TXN_V2 else 1
        versions = produce_versions(self._topic_id is not None, protocol)
        offset = int(self._call("produce", versions, make, deadline).base_offset)
        if offset < 0:
            raise KafkaError(f"{self.partition} has the records, but its leader does not say at which offset")
        return offset

    @property
    def _topic_id(self) -> UUID | None:
        """The topic's id, once its leader has been found; None before, and if no broker knew one."""
        return self._cluster.topic_id(self.partition.topic)

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


def _drop_aborted(batches: list[RawBatch], aborted: Iterable[Any]) -> list[RawBatch]:
    """The batches without control batches and without batches of ``aborted`` transactions. An aborted transaction
    extends from its first offset to its control batch (Java: ``CompletedFetch.containsAbortMarker``,
    ``consumeAbortedTransactionsUpTo``). For example, producer 7 has an aborted transaction from offset 3, and its
    batches are at 1, 3 and 8, its abort marker at 6: the batches at 1 and 8 are kept.
    """
    first_offsets = sorted((transaction.first_offset, transaction.producer_id) for transaction in aborted)
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

    def note_progress(self) -> None:
        self._attempts = 0
        self.deadline = max(self.deadline, self._cluster.now() + self._allowed_ms)

    def wait(self, what: str) -> None:
        """Pauses, and forgets the leader, because a deposed one still responds. Raises ``KafkaTimeoutError`` at the
        deadline.
        """
        left = self.deadline - self._cluster.now()
        self._cluster.pause(max(0.0, min(exponential_delay(_SOON_MS, _MAX_PAUSE_MS, self._attempts), left)))
        self._cluster.check_time(self.deadline, f"{self._partition} {what}")
        self._cluster.forget(self._partition)
        self._attempts += 1


def _first(entity: Any, *names: str) -> Any:
    """The first of these fields that the API version has."""
    return next((getattr(entity, name) for name in names if hasattr(entity, name)), None)
