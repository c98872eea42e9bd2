"""``Appender``: rows into batches on the caller's thread. Reserve memory → claim batches → encode → compress → publish.

The one way into the accumulator, for columns and for what ``send`` has buffered (Java: ``KafkaProducer.doSend`` and
``RecordAccumulator.append``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.interrupts import interruptible, uninterrupted
from spark_kafka_sink.common.model import NO_TIMESTAMP, ClusterSnapshot, TopicPartition
from spark_kafka_sink.errors import InvalidRecordError, KafkaError, KafkaTimeoutError, own_copy
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.buffer_pool import Reservation, SharedBuffer
from spark_kafka_sink.producer.claim import Claim, EncodedRange, Order, RowSizes, RowTimes, Run
from spark_kafka_sink.producer.kafka_partitioners import BuiltInPartitioner
from spark_kafka_sink.producer.partitioner import NOT_GIVEN, CustomPartitioner, Explicit, Partitioner, PartitionLoad
from spark_kafka_sink.producer.pending_records import PendingRecords
from spark_kafka_sink.producer.producer_batch import UNKNOWN_OFFSET, BatchListener, RecordRange
from spark_kafka_sink.producer.receipt import SendReceipt, SliceReceipt
from spark_kafka_sink.producer.rows import (
    ColumnRows,
    GroupedRows,
    Mask,
    Rows,
    TopicPartitions,
    ValueRows,
    check_sizes,
    cumulated_value_bounds,
    left_out_rows,
    refuse_partitions,
    slices,
)
from spark_kafka_sink.producer.sender import SenderThread
from spark_kafka_sink.producer.transaction_manager import TransactionManager
from spark_kafka_sink.records.columns import (
    FieldLengths,
    Int32Array,
    Int64Array,
    RecordColumns,
    TopicColumn,
    java_size_estimate,
)

_LARGEST_SLICE = 4 << 20


class AppendCallbacks(BatchListener, Protocol):
    """Learns the outcome of rows that are appended (Java: ``RecordAccumulator.AppendCallbacks``)."""

    def expect(self, rows: int, order: Order | None) -> None:
        """Called once a slice, before its batches can complete. Row ``i`` of its ``RecordRange``s is row ``order[i]``
        of the slice; None: the caller's order.
        """

    def fail(self, error: Exception) -> None:
        """Rows that ``expect`` was called for will not be sent, and no batch may report them."""


@dataclass(eq=False)
class Appender:
    """Any thread may call it. No lock is held while rows are encoded and compressed."""

    config: ProducerConfig
    accumulator: RecordAccumulator
    metadata: Metadata
    partitioner: Partitioner
    sender_thread: SenderThread
    transactions: TransactionManager | None
    clock: Clock

    def __post_init__(self) -> None:
        memory = self.config.buffer_memory
        self.slice_limit = max(1, min(_LARGEST_SLICE, memory // 4))
        """The most bytes encoded at once, unless one record is larger."""
        self.size_limits = {"max.request.size": self.config.max_request_size, "buffer.memory": memory}

    def append(self, topics: TopicColumn, columns: RecordColumns, explicit: Explicit, receipt: SendReceipt) -> None:
        """Append rows; waits for metadata and memory, together up to max.block.ms.

        max.block.ms begins anew after each wait for memory that was granted: one call may have many times the rows
        that buffer.memory holds. ``explicit`` are partition numbers, ``NOT_GIVEN`` where the partitioner chooses,
        ``LEFT_OUT`` for a row that is not appended. What was appended before an error stays appended: ``receipt``
        reports it.
        """
        left_out = left_out_rows(explicit)
        if not len(columns) or (left_out is not None and left_out.all()):
            return
        lengths = FieldLengths.of(columns)
        sizes = java_size_estimate(lengths)
        if left_out is not None:
            sizes[left_out] = 0
        check_sizes(sizes, self.size_limits)
        began = self.clock.now()
        snapshot = self._await_topics(topics, explicit, left_out, receipt.first_row)
        remaining = max(0.0, self.config.max_block_ms - (self.clock.now() - began))
        limit = max(map(self.accumulator.batch_limit, topics.names))
        now_ms = self.clock.epoch_ms()
        columns = columns.with_timestamps(now_ms)
        times = RowTimes.of(now_ms if columns.timestamps is None else columns.timestamps, self.config.linger_ms)
        rows = ColumnRows.of(topics, columns, explicit, lengths, times, limit).without(left_out)
        for numbers, slice_ in self._slices(snapshot, rows):
            if receipt.error is not None:
                raise own_copy(receipt.error)
            if self._append(slice_, SliceReceipt(receipt, numbers, receipt.first_row), remaining):
                remaining = self.config.max_block_ms
            del slice_  # frees its memory before the next slice is copied

    def append_pending(self, pending: PendingRecords) -> None:
        """Append what ``send`` has buffered, with the memory reserved for it. Never waits: the sender may call it.

        Called in an ``uninterrupted`` block. The caller undoes ``pending.claim`` when this fails.
        """
        sent, limit = pending.times(), self.accumulator.batch_limit(pending.topic)
        rows = self._value_rows(pending, sent, limit) or self._column_rows(pending, sent, limit)
        lagging = self.accumulator.lagging(rows.sizes.runs, pending.created)
        self._publish(pending.claim, rows, pending.result, pending.created, lagging)

    def _value_rows(self, pending: PendingRecords, sent: Int64Array | int, limit: int) -> ValueRows | None:
        """None where the records have more than values, or another partitioner needs to see columns."""
        if not isinstance(self.partitioner, BuiltInPartitioner) or (found := pending.values_only()) is None:
            return None
        topic, (values, lengths), times = pending.topic, found, RowTimes.of(sent, self.config.linger_ms)
        pending.result.timestamps, pending.result.value_sizes = sent, lengths
        cumulative, load = cumulated_value_bounds(lengths, times, limit), self._load(pending.snapshot, topic)
        chosen = self.partitioner.runs(topic, cumulative, len(pending.snapshot.topics[topic].leaders), load)
        runs = [Run(TopicPartition(topic, partition), start, end) for partition, start, end in chosen]
        largest = cumulative.step if isinstance(cumulative, range) else int(np.diff(cumulative).max())
        return ValueRows(None, RowSizes(runs, cumulative, limit, times), largest, values, lengths)

    def _column_rows(self, pending: PendingRecords, sent: Int64Array | int, limit: int) -> GroupedRows:
        columns, explicit = pending.record_columns(sent)
        lengths, result = FieldLengths.of(columns), pending.result
        result.timestamps = sent if columns.timestamps is None else columns.timestamps
        result.key_sizes, result.value_sizes = lengths.key, lengths.value
        topics, times = TopicColumn((pending.topic,)), RowTimes.of(result.timestamps, self.config.linger_ms)
        rows = ColumnRows.of(topics, columns, explicit, lengths, times, limit)
        known = TopicPartitions.of(topics.names, pending.snapshot)
        return rows.group(known, self._partitions(pending.snapshot, known, rows))

    def undo(self, claim: Claim, callbacks: AppendCallbacks, error: BaseException) -> None:
        """An append has failed. Afterwards its batches are published, as before, or have failed with it. Its memory is
        left to the owner of the claim.

        The sender is woken, because the batches may have come due while they were claimed.
        """
        accumulator, cause = self.accumulator, as_exception(error)
        if not claim.published:
            if lost := accumulator.give_back(claim):
                accumulator.pool.release(lost)
                for batch in lost:
                    batch.complete(UNKNOWN_OFFSET, NO_TIMESTAMP, cause)
                accumulator.finish(lost)
            if claim.expected:
                callbacks.fail(cause)
        self.sender_thread.wakeup()

    def _slices(self, snapshot: ClusterSnapshot, rows: ColumnRows) -> Iterator[tuple[Order | int, GroupedRows]]:
        """The rows in slices that ``buffer.memory`` has room for, and which rows these are (``SliceReceipt.rows``).

        Cut by partition where a slice in the caller's order has less than a full batch for each partition. Each slice
        is then copied, so it has half the size.
        """
        known = TopicPartitions.of(rows.topics.names, snapshot)
        if self.slice_limit < len(known) * rows.limit and self.slice_limit < int(rows.sizes.sum()):
            partitions = self._partitions(snapshot, known, rows)
            order = rows.by_partition(partitions, len(known))
            for cut in slices(rows.sizes[order], self.slice_limit // 2):
                chosen = order[cut]
                yield chosen, rows.take(chosen).group(known, partitions[chosen], sorts=False)
            return
        # A partitioner that may refuse a row sees all rows first: nothing is appended before.
        checked = self._partitions(snapshot, known, rows) if isinstance(self.partitioner, CustomPartitioner) else None
        for cut in slices(rows.sizes, self.slice_limit):
            if not rows.sizes[cut].any():
                continue
            part = rows[cut]
            partitions = self._partitions(snapshot, known, part) if checked is None else checked[cut]
            yield cut.start, part.group(known, partitions)

    def _append(self, rows: Rows, receipt: SliceReceipt, max_wait_ms: float) -> bool:
        """Append one slice; returns whether it had to wait for memory."""
        claim, pool = Claim(Reservation()), self.accumulator.pool
        with uninterrupted():
            try:
                lagging = self.accumulator.lagging(rows.sizes.runs, self.clock.now())
                size = rows.sizes.cumulative[-1]
                size = max(size, min(size + _bound_of_copies(rows.sizes, lagging), pool.total))
                waited = pool.reserve(claim.memory, size, max_wait_ms, self.sender_thread.wakeup)
                self._publish(claim, rows, receipt, self.clock.now(), lagging)
                return waited
            except BaseException as error:
                with uninterrupted():  # what ended the wait for memory may have left the outer one open
                    self.records_lost(error)
                    self.undo(claim, receipt, error)
                    pool.cancel(claim.memory)
                raise

    def records_lost(self, error: BaseException) -> None:
        """A transaction must not be committed without records that ``error`` may have kept out of the batches."""
        if self.transactions is not None:
            self.transactions.records_lost(as_exception(error))

    def _publish(
        self,
        claim: Claim,
        rows: Rows,
        callbacks: AppendCallbacks,
        created: float,
        lagging: frozenset[TopicPartition],
    ) -> None:
        """Claim batches, encode the rows for them, and let the sender see them. ``created``: linger.ms begins
        (monotonic ms). ``lagging``: partitions whose batches will wait. After an error the caller undoes the claim.
        """
        accumulator = self.accumulator
        accumulator.claim(claim, rows.sizes, created)
        needed = _assign(claim, rows, rows.encode(claim.ranges), callbacks, lagging, accumulator.compresses)
        accumulator.pool.reduce(claim.memory, needed)
        accumulator.compress_filled(claim)
        claim.expected = True
        callbacks.expect(len(rows.sizes.cumulative) - 1, rows.order)
        wake = accumulator.publish(claim)
        if claim.memory.size:
            accumulator.pool.cancel(claim.memory)
        if wake:
            self.sender_thread.wakeup()

    def _await_topics(
        self, topics: TopicColumn, explicit: Explicit, left_out: Mask | None, first_row: int | None
    ) -> ClusterSnapshot:
        """A snapshot with all topics and the partitions that rows name."""
        wanted: dict[str, int | None] = dict.fromkeys(topics.names)
        if explicit is not None:
            negative = explicit < NOT_GIVEN
            refuse_partitions(explicit, negative if left_out is None else negative & ~left_out)
            highest = np.full(len(wanted), NOT_GIVEN)
            if topics.codes is None:
                highest[0] = explicit.max()
            else:
                np.maximum.at(highest, topics.codes, explicit)
            named = zip(topics.names, highest.tolist(), strict=True)
            wanted |= {topic: partition for topic, partition in named if partition != NOT_GIVEN}
        try:
            return self.metadata.wait_for_topics(wanted, self.config.max_block_ms)
        except KafkaTimeoutError as error:
            if error.missing_partition is not None and first_row is not None:
                topic, partition = error.missing_partition
                is_named = explicit == partition
                if topics.codes is not None:
                    is_named &= topics.codes == topics.names.index(topic)
                error.row = first_row + int(np.argmax(is_named))
            raise

    def _partitions(self, snapshot: ClusterSnapshot, known: TopicPartitions, rows: ColumnRows) -> Int32Array:
        """The number of each row's partition. Keys are hashed over all rows at once; rows without keys, and those of
        other partitioners, go topic by topic.
        """
        codes = rows.topics.codes
        counts = len(known) if codes is None else known.counts[codes]
        if isinstance(self.partitioner, BuiltInPartitioner):
            partitions = self.partitioner.by_key(rows.columns, rows.explicit, counts)
            left = np.flatnonzero(partitions == NOT_GIVEN)
        else:
            partitions = np.empty(len(rows.columns), np.int32)
            left = np.arange(len(partitions))
        for topic, chosen in rows.topics.groups(left):
            partitions[chosen] = self._chosen(snapshot, topic, rows, chosen)
        return partitions if codes is None else partitions + known.firsts[codes]

    def _chosen(self, snapshot: ClusterSnapshot, topic: str, rows: ColumnRows, chosen: Order) -> Int32Array:
        """The partitions that the partitioner chooses for some rows of a topic."""
        count, load = len(snapshot.topics[topic].leaders), self._load(snapshot, topic)
        if isinstance(self.partitioner, BuiltInPartitioner):
            return self.partitioner.assign(topic, rows.sizes[chosen], count, load)
        part = rows if rows.topics.codes is None else rows.take(chosen)
        try:
            with interruptible():
                return self.partitioner.partition(topic, part.columns, part.explicit, part.sizes, count, load)
        except InvalidRecordError as error:
            if error.row is not None:
                error.row = int(chosen[error.row])
            raise

    def _load(self, snapshot: ClusterSnapshot, topic: str) -> PartitionLoad:
        """The available partitions, and how many batches wait in each."""
        available = snapshot.topics[topic].available(self.accumulator.nodes.unavailable)
        return PartitionLoad(available, None, snapshot, self.accumulator, topic)


def as_exception(error: BaseException) -> Exception:
    """The error of rows that were not sent because of ``error``, which may be what a signal handler raised."""
    return error if isinstance(error, Exception) else KafkaError(f"Not sent, because send was interrupted: {error!r}")


def _bound_of_copies(sizes: RowSizes, lagging: frozenset[TopicPartition]) -> int:
    """Bytes of the rows that ``_assign`` may copy.

    All of a lagging partition; of others those in an open batch, which holds ``limit`` bytes or one larger row.
    """
    copies = 0
    cumulative = sizes.cumulative
    for partition, start, end in sizes.runs:
        size = cumulative[end] - cumulative[start]
        if partition not in lagging:
            size = min(size, max(sizes.limit, cumulative[end] - cumulative[end - 1]))
        copies += size
    return copies


def _assign(
    claim: Claim,
    rows: Rows,
    encoded: Sequence[bytes | memoryview],
    callbacks: AppendCallbacks,
    lagging: frozenset[TopicPartition],
    compresses: bool,
) -> int:
    """Note in the claim which batch gets which records. Returns the bytes of memory that these keep.

    A batch owns ``bytes``. A memoryview pins the buffer of all encoded rows: filled batches share it; open batches and
    those of lagging partitions would pin it too long, so they copy. Filled batches that are compressed keep neither.
    """
    shared_buffer = None if compresses else SharedBuffer(sum(map(len, encoded)))
    latest = rows.latest(claim.ranges)
    largest = rows.largest(claim.ranges)
    needed = shared = 0
    each_range = zip(claim.ranges, encoded, latest, largest, strict=True)
    for (batch, start, end, first), records, timestamp, size in each_range:
        record_range = RecordRange(callbacks, first, end - start, len(records), start)
        if isinstance(records, bytes) or not batch.filled or (batch.partition in lagging and not compresses):
            claim.encoded.append(EncodedRange(batch, bytes(records), record_range, timestamp, None, size))
            needed += len(records)
        else:
            claim.encoded.append(EncodedRange(batch, records, record_range, timestamp, shared_buffer, size))
            if shared_buffer is None:
                needed += len(records)
            else:
                shared = shared_buffer.size
    return needed + shared
