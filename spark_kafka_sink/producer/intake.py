"""``Intake``: the sender thread's side of the inbox. It takes records and orders in turn and queues their batches.

Records of ``send`` are *kept* per topic until they are encoded together: at the end of linger.ms, when they would fill
a batch, when a caller waits for memory, or before any order that they must precede.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress, groupby
from operator import itemgetter
from typing import Any, Final

from spark_kafka_sink.common.clock import NEVER, Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import NO_TIMESTAMP, UNKNOWN_OFFSET, ClusterSnapshot, TopicPartition
from spark_kafka_sink.errors import InvalidRecordError, KafkaError
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.producer.accumulator import Flush, RecordAccumulator
from spark_kafka_sink.producer.append import append
from spark_kafka_sink.producer.few_records import FEW, FewRecords
from spark_kafka_sink.producer.future_record_metadata import ProduceRequestResult
from spark_kafka_sink.producer.inbox import (
    ENTRY,
    FullRecords,
    Inbox,
    Room,
    SealedBatches,
    SmallCall,
    TopicRecords,
    count_records,
)
from spark_kafka_sink.producer.kafka_partitioners import BuiltInPartitioner
from spark_kafka_sink.producer.kept_records import KeptRecords
from spark_kafka_sink.producer.partition_rows import RowPartitioning
from spark_kafka_sink.producer.partitioner import BatchRooms, CustomPartitioner, Partitioner, RecordFields
from spark_kafka_sink.producer.producer_batch import BatchListener, ProducerBatch
from spark_kafka_sink.producer.receipt import SliceReceipt
from spark_kafka_sink.producer.rows import Rows, RowTimes, Slice, TopicPartitions
from spark_kafka_sink.producer.transaction_manager import Step, TransactionalCall, TransactionManager, is_refused
from spark_kafka_sink.records.batch import NO_HEADERS
from spark_kafka_sink.records.columns import TopicColumn
from spark_kafka_sink.records.sizes import SMALLEST_RECORD, FieldLengths, bytes_of_linger, one_record_size_bound

_value, _other = itemgetter(0), itemgetter(1)

_MOST_RECORDS: Final = 16_000
"""The most records taken at once."""

_CALL_BYTES: Final = 16 << 10
"""The bytes that a small columns call counts as at least, because of the time it takes."""

_MOST_BYTES: Final = 4 << 20
"""The most bytes taken in one round, after which the network is served."""


@dataclass(eq=False)
class Intake:
    """Takes the inbox's entries. Owned by the sender thread."""

    config: ProducerConfig
    inbox: Inbox
    accumulator: RecordAccumulator
    metadata: Metadata
    partitioner: Partitioner
    transactions: TransactionManager | None
    clock: Clock

    def __post_init__(self) -> None:
        self._kept: dict[str, KeptRecords] = {}
        self._known_at = 0  # the generation of metadata that last lost topics
        self._full: list[KeptRecords] = []
        """The kept records that fill a batch, found in this round."""
        self._taking: tuple[list[Any], int] = [], 0
        """The entries that were taken last, and the position of the order that is being taken."""
        self._taken = 0
        self._sent_ms = 0
        self._pool = self.accumulator.pool
        self._partitioning = RowPartitioning(self.partitioner, self.accumulator, joins=True)
        custom = self.partitioner if isinstance(self.partitioner, CustomPartitioner) else None
        self._asked = custom if custom is not None and custom.asks_again else None

    @property
    def has_work(self) -> bool:
        return bool(self.inbox.entries or self._kept)

    @property
    def wakes_on_records(self) -> bool:
        """Whether the next record must wake the sender thread, because no kept records will wake it at the end of their
        linger.ms."""
        return not self._kept

    @property
    def undelivered(self) -> int:
        """The number of records that are in no batch. Any thread may read it."""
        taken, start = self._taking
        in_inbox = count_records(self.inbox.entries.copy()) + count_records(taken[start:])
        return in_inbox + sum(len(kept.numbers) for kept in [*self._kept.values()])

    def take(self, now: float) -> float:
        """Takes what is in the inbox, up to ``_MOST_BYTES``, and encodes what is due. Returns when more is due."""
        inbox, self._taken = self.inbox, 0
        inbox.next_ms_at = 0.0  # the next record puts a mark, even if the clock was set back
        inbox.end_rooms()
        while inbox.urgent:
            self._take_call(inbox.urgent.popleft())
        snapshot = self.metadata.snapshot
        if snapshot.changed > self._known_at:
            self._known_at = snapshot.generation
            for name in [name for name in inbox.names.copy() if name not in snapshot.topics]:
                inbox.names.pop(name, None)
        entries = inbox.entries
        while entries and self._taken < _MOST_BYTES:
            taken = entries[: ENTRY * _MOST_RECORDS]  # callers only extend, so the `del` finds the same entries
            del entries[: len(taken)]
            self._take(taken, now)
        for kept in self._full:
            if self._kept.get(kept.records.name) is kept:
                self._encode(kept)
        self._full.clear()
        due = self._encode_due(now)
        if not self._pool.serve():
            self.accumulator.stop_sharing(now)
        return now if entries else due

    def abort(self, error: KafkaError) -> None:
        """Fails what is kept and what is in the inbox, because the sender thread ends."""
        inbox = self.inbox
        inbox.names.clear()
        inbox.ended_by = inbox.ended_by or error
        inbox.alert = True
        inbox.close_rooms()
        for kept in [*self._kept.values()]:  # in the order of their sends
            self._drop(kept, error)
        while inbox.entries:
            taken = inbox.entries[:]
            del inbox.entries[: len(taken)]
            for topic, first in zip(taken[::ENTRY], taken[1::ENTRY], strict=True):
                if topic is not None:
                    _fail(_records(topic), [first], error)
                else:
                    self._fail_order(first, error)

    # Entries

    def _take(self, taken: list[Any], now: float) -> None:
        topics = taken[::ENTRY]
        start = 0
        while start < len(topics):
            if self._taken >= _MOST_BYTES:
                self.inbox.entries[:0] = taken[ENTRY * start :]  # atomic, as a caller's extend
                break
            position = _next_order(topics, start)
            if position > start:
                columns = [taken[ENTRY * start + at : ENTRY * position : ENTRY] for at in range(1, ENTRY)]
                try:
                    self._take_records(topics[start:position], columns, now)
                except BaseException as error:  # such as MemoryError
                    self._fail_taken(topics[start:position], columns[0], as_exception(error))
            if position < len(topics):
                self._taking = taken, ENTRY * position
                self._take_order(taken[ENTRY * position + 1], now)
            start = position + 1
        self._taking = [], 0

    def _fail_taken(self, topics: list[TopicRecords | FullRecords], numbers: list[int], error: Exception) -> None:
        """Fails the taken records, and the kept records of their topics, which may include some of them."""
        self._lost(error)
        for kind, number in zip(topics, numbers, strict=True):
            records = _records(kind)
            if (kept := self._kept.get(records.name)) is not None:
                self._drop(kept, error)
            if records.find(number) is None:
                _fail(records, [number], error)

    def _take_records(self, topics: list[TopicRecords | FullRecords], columns: Sequence[list[Any]], now: float) -> None:
        """Takes the records between two orders, of one topic or several."""
        if topics.count(topics[0]) == len(topics):
            self._keep(topics[0], columns, now)
            return
        rows_of: dict[str, list[int]] = {}
        for row, topic in enumerate(topics):
            rows_of.setdefault(_records(topic).name, []).append(row)
        for rows in rows_of.values():
            for kind, chosen in groupby(rows, key=topics.__getitem__):  # plain and full entries in their order
                picked = [*chosen]
                self._keep(kind, [[column[row] for row in picked] for column in columns], now)

    def _keep(self, kind: TopicRecords | FullRecords, fields: Sequence[list[Any]], now: float) -> None:
        records, others = _records(kind), None
        if kind is not records:
            fields, others = [*fields[:2], [*map(_value, fields[2])]], [*map(_other, fields[2])]
        topic = records.topic
        if (refusal := self._refusal(topic.transaction)) is not None:
            _fail(records, fields[0], refusal)
            return
        self.metadata.note_use(topic.name, now)
        kept = self._kept.get(topic.name)
        if kept is not None and kept.records is not records:  # put by a thread that had read `open` before an encoding
            self._encode(kept)
            kept = None
        if kept is None:
            # While records of another topic are kept, a put wakes nobody, so linger.ms may have begun some time ago.
            waited_ms = min(max(0, self.clock.epoch_ms() - self._sent_ms), self.config.linger_ms)
            kept = self._kept[topic.name] = KeptRecords(records, now - waited_ms)
        size = kept.add(fields, others, self._sent_ms)
        self._pool.hold(size)
        self._taken += size
        if kept.size >= self.config.batch_size > kept.size - size:  # full since this call, so it is listed once
            self._full.append(kept)

    def _take_order(self, order: object, now: float) -> None:
        """Takes one order. An exception fails only this order, even a partitioner's ``SystemExit``."""
        try:
            match order:
                case int():
                    self._sent_ms = order
                case Room():
                    order.close()
                case SealedBatches():
                    self._queue(order, now)
                case SmallCall():
                    self._append_small(order, now)
                case Flush():
                    self._encode_all()
                    self.accumulator.begin_flush(order)
                case TransactionalCall():
                    self._take_call(order)
        except BaseException as error:
            if isinstance(order, SealedBatches | SmallCall):
                self._lost(as_exception(error))
            self._fail_order(order, as_exception(error))

    def _fail_order(self, order: object, error: Exception) -> None:
        match order:
            case SealedBatches():
                for batch in order.batches:
                    batch.own_bytes, batch.shared_buffer = 0, None  # its memory was never charged
                    batch.complete(UNKNOWN_OFFSET, NO_TIMESTAMP, error)
                for grant in order.grants:
                    grant.give_back()
            case SmallCall():
                order.receipt.fail(error)
            case Room():
                order.close()
            case TransactionalCall():
                order.complete(None, error)
            case Flush():
                self.accumulator.begin_flush(order)  # so that it ends: nothing is left to wait for

    def _take_call(self, call: TransactionalCall) -> None:
        assert self.transactions is not None
        if call.step in (Step.PREPARE, Step.COMMIT):
            self._encode_all()
        self.transactions.take(call)
        if self._kept and not self.transactions.may_send:
            for kept in [*self._kept.values()]:
                self._drop(kept, self.transactions.rejection())

    def _queue(self, order: SealedBatches, now: float) -> None:
        if (refusal := self._refusal(order.transaction)) is not None:
            self._fail_order(order, refusal)
            return
        for topic in order.topics:
            self._encode_before(topic, now)
        for grant in order.grants:
            grant.give_back()
        for batch in order.batches:  # charged for its exact size: the grants were for the most that it could be
            self._pool.hold(batch.own_bytes)
            if batch.shared_buffer is not None and not batch.shared_buffer.is_charged:
                batch.shared_buffer.is_charged = True
                self._pool.hold(batch.shared_buffer.size)
            self.accumulator.add(batch)

    def _append_small(self, call: SmallCall, now: float) -> None:
        rows = call.rows
        if (refusal := self._refusal(call.transaction)) is not None:
            call.receipt.fail(refusal)
            return
        for topic in rows.topics.names:
            self._encode_before(topic, now)
        try:
            slice_ = self._slice(rows, call.snapshot)
        except InvalidRecordError as error:
            if error.row is not None and call.first_row is not None:
                error.row = call.first_row + int(call.numbers[error.row])
            raise
        self._taken += max(slice_.size, _CALL_BYTES)
        listener = SliceReceipt(call.receipt, call.numbers, call.first_row, slice_.order)
        self._append(slice_, listener, call.created)

    def _encode_before(self, topic: str, now: float) -> None:
        """Encodes the topic's kept records, which were sent before the rows that follow."""
        self.metadata.note_use(topic, now)
        if (kept := self._kept.get(topic)) is not None:
            self._encode(kept)

    def _refusal(self, transaction: int) -> KafkaError | None:
        """The error of rows that may no longer be sent."""
        if self.inbox.ended_by is not None:
            return self.inbox.ended_by
        if self.transactions is None or self.transactions.takes(transaction):
            return None
        return self.transactions.rejection()

    # Kept records

    def _encode_due(self, now: float) -> float:
        """Encodes the kept records whose linger.ms is over; they are in the order in which it ends."""
        while self._kept:
            kept = next(iter(self._kept.values()))
            due = kept.created + self.config.linger_ms
            if now < due and not (self._pool.waiting or self.accumulator.closing):
                return due
            self._encode(kept)
        return NEVER

    def _encode_all(self) -> None:
        for kept in [*self._kept.values()]:
            self._encode(kept)

    def _encode(self, kept: KeptRecords) -> None:
        """Encodes the records into batches. An error fails all of them. They stay kept until they are in batches, so
        that ``undelivered`` counts them."""
        records, topic, encoded = kept.records, kept.records.topic, None
        if topic.open is records:
            topic.open = TopicRecords(topic)  # for the next records, which are encoded later
        try:
            if self._asked is not None:
                self._ask(self._asked, kept)
                if not kept.numbers:
                    return
            result = ProduceRequestResult(records, kept.numbers)
            result.timestamps = kept.timestamps()
            few = len(kept.numbers) <= FEW and isinstance(self.partitioner, BuiltInPartitioner)
            rows = self._few_records(kept, result) if few else self._slice_of_records(kept, result)
            result.order = rows.order
            records.encoded(result)  # before its batches exist, which set its outcome
            encoded = result
            self._append(rows, result, kept.created)
        except BaseException as error:
            self._lost(as_exception(error))
            _fail(records, kept.numbers, as_exception(error), encoded)
        finally:
            del self._kept[topic.name]
            self._pool.hold(-kept.size)

    def _slice_of_records(self, kept: KeptRecords, result: ProduceRequestResult) -> Slice:
        """The records as columns by partition. Sets the sizes of the result."""
        topic, columns = kept.records.topic, kept.columns(result.timestamps)
        lengths = FieldLengths.of(columns)
        result.key_sizes, result.value_sizes = lengths.key, lengths.value
        times, limit = RowTimes.of(result.timestamps, self.config.linger_ms), self.accumulator.batch_limit(topic.name)
        rows = Rows.of(TopicColumn((topic.name,)), columns, kept.named(), lengths, times, limit)
        return self._slice(rows, topic.within(self.metadata.snapshot))

    def _few_records(self, kept: KeptRecords, result: ProduceRequestResult) -> FewRecords:
        """The records by partition. Sets the sizes of the result."""
        topic, fields = kept.records.topic, kept.fields()
        result.key_sizes = [-1 if key is None else len(key) for key in kept.keys]
        result.value_sizes = [-1 if value is None else len(value) for value in kept.values]
        times, limit = RowTimes.of(result.timestamps, self.config.linger_ms), self.accumulator.batch_limit(topic.name)
        bound = limit // SMALLEST_RECORD
        sizes = [
            one_record_size_bound(len(headers), (key, value), bound, times.delta_bytes)
            for key, value, headers in fields
        ]
        snapshot = topic.within(self.metadata.snapshot)
        partitions = self._partitioning.of_records(snapshot, topic.name, kept.keys, kept.named(), sizes)
        return FewRecords.group(topic.name, fields, partitions, sizes, limit, times)

    def _drop(self, kept: KeptRecords, error: Exception) -> None:
        del self._kept[kept.records.name]
        self._pool.hold(-kept.size)
        _fail(kept.records, kept.numbers, error)

    def _lost(self, error: Exception) -> None:
        """Notes that records of the open transaction are not sent. A record that is refused as invalid was never part
        of it."""
        if self.transactions is not None and not is_refused(error):
            self.transactions.batch_failed(error)

    def _ask(self, partitioner: CustomPartitioner, kept: KeptRecords) -> None:
        """Gives each record without a partition the partition that the user's partitioner chooses, or fails it with the
        partitioner's error. The partitioner is asked again when the record needs a new batch, which only the sender
        thread knows.
        """
        topic = kept.records.topic
        snapshot = topic.within(self.metadata.snapshot)
        limit = self.accumulator.batch_limit(topic.name)
        rooms = BatchRooms(topic.name, limit, self.accumulator.open_room)
        bounds = limit // SMALLEST_RECORD, bytes_of_linger(self.config.linger_ms)
        chosen: list[bool] = []
        kept.others += [None] * (len(kept.numbers) - len(kept.others))
        for row, (key, value, other) in enumerate(zip(kept.keys, kept.values, kept.others, strict=True)):
            headers = b"" if other is None else other.headers or b""
            size = one_record_size_bound(len(headers or NO_HEADERS), (key, value), *bounds)
            chosen.append(True)
            if other is None or other.given is None:
                if other is not None and other.partition is not None:
                    rooms.take(other.partition, size)
                continue
            fields = RecordFields(topic.name, other.given[0], key, other.given[1], value)
            try:
                kept.others[row] = other._replace(partition=partitioner.place(fields, size, snapshot, rooms))
            except BaseException as error:
                self._lost(as_exception(error))
                _fail(kept.records, kept.numbers[row : row + 1], as_exception(error))
                chosen[row] = False
        if not all(chosen):
            for name in ("numbers", "keys", "values", "key_lengths", "value_lengths", "others"):
                setattr(kept, name, [*compress(getattr(kept, name), chosen)])
            kept.sent = [(sum(chosen[:first]), ms) for first, ms in kept.sent]

    # Batches

    def _slice(self, rows: Rows, snapshot: ClusterSnapshot) -> Slice:
        known = TopicPartitions.of(rows.topics.names, snapshot)
        return rows.group(known, self._partitioning.choose(snapshot, known, rows))

    def _append(self, rows: Slice | FewRecords, listener: BatchListener, created: float) -> None:
        accumulator = self.accumulator
        open_batches = {
            partition: batch
            for partition in {run.partition for run in rows.runs}
            if (batch := accumulator.open_batch(partition)) is not None and rows.times.fit(batch.base_timestamp)
        }
        appended = append(rows, listener, self._new_batch(created), open_batches)
        self._pool.hold(appended.size)
        for batch in appended.opened:
            accumulator.add(batch)
        for batch in appended.filled:
            accumulator.filled(batch)

    def _new_batch(self, created: float) -> Callable[[TopicPartition, int], ProducerBatch]:
        linger_ms, limit = self.config.linger_ms, self.accumulator.batch_limit

        def new_batch(partition: TopicPartition, base_timestamp: int) -> ProducerBatch:
            return ProducerBatch(partition, created, limit(partition.topic), base_timestamp, linger_ms)

        return new_batch


def _next_order(topics: list[Any], start: int) -> int:
    """Where the next order is among the topics of entries; their number if there is none. Counting the same object
    takes a tenth of the time of comparing objects with None.
    """
    while topics[start] is not None and topics[start : start + 128].count(topics[start]) == 128:
        start += 128
        if start == len(topics):
            return start
    try:
        return topics.index(None, start)
    except ValueError:
        return len(topics)


def _records(kind: TopicRecords | FullRecords) -> TopicRecords:
    return kind.records if isinstance(kind, FullRecords) else kind


def _fail(
    records: TopicRecords, numbers: list[int], error: Exception, encoded: ProduceRequestResult | None = None
) -> None:
    """Fails records. ``encoded``: their result, if they have one."""
    result = encoded
    if result is None:
        result = ProduceRequestResult(records, numbers)
        records.encoded(result)
    result.fail(error)


def as_exception(error: BaseException) -> Exception:
    """The error of rows that were not sent because of ``error``, which may be ``SystemExit`` or an exception of a
    signal handler."""
    return error if isinstance(error, Exception) else KafkaError(f"Not sent, because send was interrupted: {error!r}")
