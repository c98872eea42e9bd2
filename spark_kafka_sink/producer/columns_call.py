"""``ColumnAppender``: the columns calls, on their callers' threads (Java: ``KafkaProducer.doSend``, for many rows at
once).

Slice by slice, a call takes memory, puts the rows into new batches, compresses the batches and puts them into the
inbox. Until then no other thread sees them, so an interrupt leaves only garbage. A call of few rows is put into the
inbox as it is, and the sender thread appends its rows to open batches, because a batch of ten rows would be a request
of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import ClusterSnapshot, TopicPartition
from spark_kafka_sink.common.waiting import SendingThread
from spark_kafka_sink.errors import KafkaTimeoutError, own_copy
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.append import append
from spark_kafka_sink.producer.buffer_pool import BufferPool, Grant
from spark_kafka_sink.producer.inbox import Inbox, SealedBatches, SmallCall
from spark_kafka_sink.producer.partition_rows import RowPartitioning
from spark_kafka_sink.producer.partitioner import NO_PARTITION, CustomPartitioner, Partitioner, Partitions
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.receipt import SendReceipt, SliceReceipt
from spark_kafka_sink.producer.rows import (
    Mask,
    Order,
    Rows,
    RowTimes,
    Slice,
    TopicPartitions,
    check_sizes,
    left_out_rows,
    refuse_partitions,
    slices,
)
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from spark_kafka_sink.records.sizes import FieldLengths, java_size_estimate

_LARGEST_SLICE = 4 << 20


@dataclass(eq=False)
class ColumnAppender:
    """Appends rows in columns. Any thread may call it."""

    config: ProducerConfig
    accumulator: RecordAccumulator
    pool: BufferPool
    metadata: Metadata
    partitioner: Partitioner
    inbox: Inbox
    sender_thread: SendingThread
    clock: Clock

    def __post_init__(self) -> None:
        memory = self.config.buffer_memory
        self.slice_limit = max(1, min(_LARGEST_SLICE, memory // 4))
        """The most bytes encoded at once, unless one record is larger."""
        self.size_limits = {"max.request.size": self.config.max_request_size, "buffer.memory": memory}
        self._partitioning = RowPartitioning(self.partitioner, self.accumulator, joins=False)
        custom = self.partitioner if isinstance(self.partitioner, CustomPartitioner) else None
        self._asks_later = custom is not None and custom.asks_again

    def append(
        self,
        topics: TopicColumn,
        columns: RecordColumns,
        named: Partitions,
        receipt: SendReceipt,
        transaction: int = 0,
    ) -> None:
        """Append rows; waits for metadata and memory, together up to max.block.ms.

        max.block.ms starts again whenever memory is granted, because one call may have many times the rows that
        buffer.memory holds. ``named`` are partition numbers, ``NO_PARTITION`` where the partitioner chooses,
        ``LEFT_OUT`` for a row that is not appended. Rows that were put before an error are sent, and ``receipt``
        reports them.
        """
        left_out = left_out_rows(named)
        if not len(columns) or (left_out is not None and left_out.all()):
            return
        lengths = FieldLengths.of(columns)
        sizes = java_size_estimate(lengths)
        if left_out is not None:
            sizes[left_out] = 0
        check_sizes(sizes, self.size_limits)
        began = self.clock.now()
        snapshot = self._await_topics(topics, named, left_out, receipt.first_row)
        remaining = max(0.0, self.config.max_block_ms - (self.clock.now() - began))
        limit = max(map(self.accumulator.column_batch_limit, topics.names))
        now_ms = self.clock.epoch_ms()
        columns = columns.with_timestamps(now_ms)
        times = RowTimes.of(now_ms if columns.timestamps is None else columns.timestamps, self.config.linger_ms)
        rows = Rows.of(topics, columns, named, lengths, times, limit)
        if left_out is not None:
            rows.sizes[left_out] = 0
            rows = replace(rows, left_out=left_out)
        # Batches of so few rows would each be a request, of which only five are in flight.
        if 2 * int(rows.sizes.sum()) < self.config.batch_size:
            self._put_small(snapshot, rows, receipt, transaction, remaining)
            return
        for numbers, slice_ in self._slices(snapshot, rows):
            if receipt.error is not None:
                raise own_copy(receipt.error)
            grants, waited = self.pool.take(slice_.size, remaining)
            if waited:
                remaining = self.config.max_block_ms
            self._put(slice_, grants, SliceReceipt(receipt, numbers, receipt.first_row, slice_.order), transaction)
            receipt.expect(slice_.count)
            del slice_, grants  # frees its memory before the next slice is copied

    def _put(self, rows: Slice, grants: list[Grant], receipt: SliceReceipt, transaction: int) -> None:
        created, accumulator = self.clock.now(), self.accumulator
        topics = dict.fromkeys(run.partition.topic for run in rows.runs)
        limits = {topic: accumulator.column_batch_limit(topic) for topic in topics}

        def new_batch(partition: TopicPartition, base_timestamp: int) -> ProducerBatch:
            return ProducerBatch(partition, created, limits[partition.topic], base_timestamp)

        batches = append(rows, receipt, new_batch, evenly=True).opened
        for batch in batches:
            accumulator.compress(batch)
            if batch.codec:
                batch.own_bytes, batch.shared_buffer = sum(map(len, batch.payload or ())), None
        self._put_order(SealedBatches(tuple(limits), batches, grants, transaction))

    def _put_small(
        self, snapshot: ClusterSnapshot, rows: Rows, receipt: SendReceipt, transaction: int, max_wait_ms: float
    ) -> None:
        """Puts a call of few rows. Waits only for memory, which the sender thread charges later."""
        if receipt.error is not None:
            raise own_copy(receipt.error)
        if isinstance(self.partitioner, CustomPartitioner) and not self._asks_later:
            known = TopicPartitions.of(rows.topics.names, snapshot)
            chosen = self._partitioning.choose(snapshot, known, rows)
            if rows.topics.codes is not None:
                chosen = chosen - known.firsts[rows.topics.codes]
            rows = replace(rows, named=chosen)
        numbers: Order = np.arange(len(rows.columns)) if rows.left_out is None else np.flatnonzero(~rows.left_out)
        rows = rows.take(numbers)
        self.inbox.take_room(self.pool, int(rows.sizes.sum()), self.config.batch_size, max_wait_ms)
        call = SmallCall(rows, numbers, snapshot, receipt, receipt.first_row, self.clock.now(), transaction)
        self._put_order(call)
        receipt.expect(len(numbers))

    def _put_order(self, order: object) -> None:
        self.inbox.put(order)
        self.sender_thread.wakeup()
        # Read after the put: the sender thread sets it, then fails what it finds in the inbox.
        if self.inbox.ended_by is not None:
            self.inbox.close_rooms()
            if isinstance(order, SealedBatches):  # the sender thread no longer takes orders, so the memory goes back
                order.batches = order.grants = ()
            raise own_copy(self.inbox.ended_by)

    def _slices(self, snapshot: ClusterSnapshot, rows: Rows) -> Iterator[tuple[Order | int, Slice]]:
        """The rows in slices that ``buffer.memory`` has room for, each with its rows' numbers (``SliceReceipt.rows``).
        Slices in the caller's order would have less than a full batch per partition if there are many partitions. Then
        the rows are cut by partition, and each slice is a copy, so it has half the size.
        """
        known = TopicPartitions.of(rows.topics.names, snapshot)
        choose = self._partitioning.choose
        if self.slice_limit < len(known) * rows.limit and self.slice_limit < int(rows.sizes.sum()):
            partitions = choose(snapshot, known, rows)
            order = rows.by_partition(partitions, len(known))
            for cut in slices(rows.sizes[order], self.slice_limit // 2):
                chosen = order[cut]
                yield chosen, rows.take(chosen).group(known, partitions[chosen], sorts=False)
            return
        # A partitioner that may refuse a row sees all rows before any row is put.
        checked = choose(snapshot, known, rows) if isinstance(self.partitioner, CustomPartitioner) else None
        for cut in slices(rows.sizes, self.slice_limit):
            if not rows.sizes[cut].any():
                continue
            part = rows[cut]
            yield cut.start, part.group(known, choose(snapshot, known, part) if checked is None else checked[cut])

    def _await_topics(
        self, topics: TopicColumn, named: Partitions, left_out: Mask | None, first_row: int | None
    ) -> ClusterSnapshot:
        """A snapshot with all topics and the partitions that rows name."""
        wanted: dict[str, int | None] = dict.fromkeys(topics.names)
        if named is not None:
            negative = named < NO_PARTITION
            refuse_partitions(named, negative if left_out is None else negative & ~left_out)
            highest = np.full(len(wanted), NO_PARTITION)
            if topics.codes is None:
                highest[0] = named.max()
            else:
                np.maximum.at(highest, topics.codes, named)
            pairs = zip(topics.names, highest.tolist(), strict=True)
            wanted |= {topic: partition for topic, partition in pairs if partition != NO_PARTITION}
        try:
            return self.metadata.wait_for_topics(wanted, self.config.max_block_ms)
        except KafkaTimeoutError as error:
            if error.missing_partition is not None and first_row is not None:
                topic, partition = error.missing_partition
                is_named = named == partition
                if topics.codes is not None:
                    is_named &= topics.codes == topics.names.index(topic)
                error.row = first_row + int(np.argmax(is_named))
            raise
