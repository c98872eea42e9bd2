"""``KafkaProducer``: records and columns in, futures and receipts out (Java's class of this name)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from types import TracebackType
from typing import NamedTuple, cast
from uuid import UUID

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.forks import on_fork
from spark_kafka_sink.common.metrics import ProducerTotals
from spark_kafka_sink.common.model import ClusterSnapshot, PartitionInfo
from spark_kafka_sink.errors import (
    IllegalStateError,
    InvalidRecordError,
    KafkaTimeoutError,
    ProducerClosedError,
    RecordTooLargeError,
)
from spark_kafka_sink.network.selector import Selector
from spark_kafka_sink.producer.accumulator.accumulator import Flush
from spark_kafka_sink.producer.append.append import as_exception
from spark_kafka_sink.producer.append.future_record_metadata import Callback, FutureRecordMetadata
from spark_kafka_sink.producer.append.pending import TopicPendingRecords
from spark_kafka_sink.producer.append.receipt import SendReceipt
from spark_kafka_sink.producer.append.record import ProducerRecord, RecordMetadata
from spark_kafka_sink.producer.append.rows import Column, record_columns
from spark_kafka_sink.producer.assembly import InheritedParts, ProducerComponents, assemble
from spark_kafka_sink.producer.interceptors import InterceptorChain, ProducerInterceptor
from spark_kafka_sink.producer.partitioning.kafka_partitioners import BuiltInPartitioner
from spark_kafka_sink.producer.serializers import AnySerializer, RecordSerializers
from spark_kafka_sink.producer.transactional_calls import TransactionalProducer
from spark_kafka_sink.records.columns import Int32Array, RecordColumns, TopicColumn

NO_DEADLINE = float("inf")

_log = logging.getLogger("spark_kafka_sink.producer")


class _Prepared(NamedTuple):
    """A record on its way into the pending records. ``left_ms``: what metadata has left of max.block.ms; None: all."""

    record: ProducerRecord
    key: bytes | None
    value: bytes | None
    left_ms: float | None = None


class KafkaProducer(TransactionalProducer):
    """A Kafka producer: batches rows per partition and sends them on a thread of its own. Any thread may use it.

    ``config`` has Kafka's option names (``bootstrap.servers``, ``linger.ms``, …), values native or strings.
    Raises ``ConfigError`` with all faults at once. Connects with the first row. A serializer given here precedes the
    class that its option names; ``interceptors`` come after those of ``interceptor.classes``.

    A broker that refuses this client is not asked again for 30 s: calls that wait for it raise ``AuthenticationError``,
    and records for its partitions fail with it. (Java's producer keeps trying, and the records wait for
    delivery.timeout.ms.) Connections that were accepted before stay, so the other brokers go on, as in Java; so does
    this one, once it accepts the client again. For a transactional producer the error is fatal, as in Java.
    """

    _inherited: ProducerComponents | None = None
    """The parts, in a child of the process that opened the producer."""

    def __init__(
        self,
        config: ProducerConfig | Mapping[str, object],
        *,
        key_serializer: AnySerializer | None = None,
        value_serializer: AnySerializer | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
    ) -> None:
        super().__init__()
        if not isinstance(config, ProducerConfig):
            config = ProducerConfig.parse(config)
        self.config = config.with_client_id()
        self._interceptors = InterceptorChain.load(self.config, interceptors)
        self._serializers = RecordSerializers.load(self.config, key_serializer, value_serializer)
        selector = Selector(self.config.send_buffer_bytes, self.config.receive_buffer_bytes)
        try:
            self._serializers.configure(self.config.by_name())
            self._interceptors.configure(self.config.by_name())
            self._parts = assemble(self.config, selector, SystemClock(), Random())
            self._parts.accumulator.metrics.network = selector.counters
        except BaseException:
            selector.shutdown()
            self._interceptors.close()
            with suppress(Exception):  # logged
                self._serializers.close()
            raise
        self._closed = False
        self._plugins_closed = threading.Lock()  # acquired once, by the close() that closes them
        self._partitioning = self._parts.record_partitioning
        special = self._parts.transaction_manager or self._interceptors or self._serializers or self._partitioning
        # Topics that `send` appends to at once; none with checks, serializers, interceptors, or once it is closed.
        self._fast: Mapping[str, TopicPendingRecords] = {} if special else self._parts.pending.topics
        self._parts.sender_thread.start(self._parts.sender)
        on_fork(self)

    def send(self, record: ProducerRecord, callback: Callback | None = None) -> FutureRecordMetadata:
        """Send one record asynchronously; the future gives its ``RecordMetadata``.

        ``callback(metadata, error)`` runs on the sender thread, never inside this call; one of the two is None. Nothing
        is sent while it runs, so it must not block. An exception it raises is logged. Waits for metadata and memory,
        together up to max.block.ms. Raises ``KafkaTimeoutError``, ``AuthenticationError``, ``InvalidRecordError``,
        ``RecordTooLargeError`` or a serializer's error; the record is then not sent.
        """
        try:
            topic = self._fast[record.topic]
        except KeyError:  # faster than get(), by 30 ns a record
            topic = None
        future = self._send_checked(record) if topic is None else topic.append(record, record.key, record.value)
        if callback is not None:
            future.add_callback(callback)
        return future

    def send_columns(
        self,
        topic: str,
        *,
        key: Column = None,
        value: Column = None,
        headers: Column = None,
        timestamp: Column = None,
        partition: Column = None,
    ) -> SendReceipt:
        """Send rows of one topic as columns, at a fraction of the cost of ``send``; the receipt has their offsets.

        Columns are Arrow arrays, numpy arrays or lists of values of one type, all of one length. ``key`` and ``value``:
        strings or bytes; serializers and interceptors are not called. ``headers``: lists of (key, value) structs, or
        maps. ``timestamp``: Arrow timestamps or epoch ms; null: now. ``partition``: null where the partitioner chooses.
        Waits and raises as ``append_columns``.
        """
        topics = TopicColumn.of(topic)
        given = {"key": key, "value": value, "headers": headers, "timestamp": timestamp, "partition": partition}
        columns, partitions = record_columns(given, self._parts.clock.epoch_ms())
        receipt = SendReceipt()
        if columns is not None:
            self.append_columns(topics, columns, partitions, receipt)
        return receipt

    def append_columns(
        self, topic: str | TopicColumn, columns: RecordColumns, partitions: Int32Array | None, receipt: SendReceipt
    ) -> None:
        """Append rows; ``receipt`` collects the outcome of each batch.

        In each partition they come behind what this thread has sent before, also by ``send``.

        ``topic``: of all rows, or one per row. ``partitions`` (int32): the partition of each row, -1 where the
        partitioner chooses, ``LEFT_OUT`` for a row that is not appended; None: it chooses all. Waits for metadata and
        memory, together up to max.block.ms, which begins anew after each wait for memory that was granted: one call may
        hold many times buffer.memory. Raises ``InvalidRecordError`` or ``RecordTooLargeError`` for a row before any of
        the rows is appended, ``KafkaTimeoutError`` when a wait is over, and the receipt's error once an earlier batch
        of it has failed.
        """
        self._check_may_append()
        topics = TopicColumn.of(topic)
        try:
            self._parts.pending.go_before(topics.names)
            self._parts.appender.append(topics, columns, partitions, receipt)
        except BaseException as error:
            self._records_lost(error)
            raise

    def flush(self, timeout_ms: float = NO_DEADLINE) -> None:
        """Send everything appended so far without lingering and wait until it is complete, delivered or failed.

        The callbacks of these records have run by then. Raises ``IllegalStateError`` in a callback. Without
        ``timeout_ms``, delivery.timeout.ms is the deadline.
        """
        self._check_open()
        if self._parts.sender_thread.is_current:
            raise IllegalStateError("flush() in a callback would wait for itself")
        clock, accumulator, flush = self._parts.clock, self._parts.accumulator, Flush()
        deadline = clock.now() + timeout_ms
        if not self._parts.pending.flush(timeout_ms):
            raise KafkaTimeoutError(f"Failed to flush within {timeout_ms:.0f} ms")
        try:
            accumulator.begin_flush(flush)
            self._parts.sender_thread.wakeup()
            accumulator.await_flush(flush, max(0.0, deadline - clock.now()))
        finally:
            accumulator.end_flush(flush)
        if not self._parts.sender_thread.callbacks.wait(max(0.0, deadline - clock.now())):
            raise KafkaTimeoutError(f"The callbacks of the flushed records have not run within {timeout_ms:.0f} ms")

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The partitions of ``topic`` with leader and replicas; waits up to max.block.ms for its metadata."""
        return self._await_topic(topic).partitions(topic)

    def partition_count(self, topic: str) -> int:
        """Number of partitions of ``topic``; waits as ``partitions_for``."""
        return self._await_topic(topic).topics[topic].partition_count

    def refreshed_partition_count(self, topic: str) -> int | None:
        """Number of partitions in the next metadata response; None: there is no such topic. Waits as
        ``partitions_for``.
        """
        self._check_open()
        parts = self._parts
        return parts.metadata.refreshed_partition_count(
            topic, self.config.max_block_ms, parts.clock, parts.sender_thread.wakeup
        )

    def has_metadata(self, topic: str) -> bool:
        """Whether the metadata has the topic."""
        return topic in self._parts.metadata.snapshot.partition_counts

    def set_max_message_bytes(self, topic: str, max_message_bytes: int) -> None:
        """The topic's limit, known before a broker has refused a batch."""
        self._parts.accumulator.topic_limits.max_message_bytes[topic] = max_message_bytes

    def topic_id(self, topic: str, after: int = -1) -> UUID | None:
        """The topic's id, which a topic made again under the same name does not share.

        None while it is unknown, or without a metadata response since the ``refresh`` that returned ``after``.
        """
        metadata = self._parts.metadata
        info = metadata.snapshot.topics.get(topic) if metadata.round > after else None
        return None if info is None else info.topic_id

    def refresh(self) -> int:
        """Request a metadata update, without waiting for it; returns ``after`` for ``topic_id``."""
        before = self._parts.metadata.round
        self._parts.metadata.request_update()
        self._parts.sender_thread.wakeup()
        return before

    def begin_sticky_runs(self) -> None:
        """The next unkeyed rows of each topic go to a new sticky partition, where ``partitioner.class`` is sticky.

        For small writes with a ``flush`` each: a run that outlives its batch puts many of them on one partition.
        """
        partitioner = self._parts.appender.partitioner
        if isinstance(partitioner, BuiltInPartitioner):
            partitioner.begin_sticky_runs()

    def is_alive(self) -> bool:
        """Whether this producer still accepts rows: not closed, and its sender thread runs."""
        return not self._closed and self._inherited is None and self._parts.sender_thread.is_alive()

    @property
    def buffer_available_bytes(self) -> int:
        """Free bytes of buffer.memory (Kafka's metric ``buffer-available-bytes``)."""
        return self._parts.accumulator.pool.available

    def metrics(self) -> dict[str, dict[str, float]]:
        """Every metric by Kafka's group and name: ``metrics()["producer-metrics"]["record-send-rate"]``.

        ``producer-topic-metrics.<topic>`` and ``producer-node-metrics.node-<id>`` exist once something was sent there.
        Averages and maxima without a measurement are NaN.
        """
        return self._parts.accumulator.metrics.read(self._parts.clock.now())

    def open_metrics(self) -> str:
        """The metrics as OpenMetrics text, for a Prometheus endpoint."""
        return self._parts.accumulator.metrics.open_metrics(self.config.client_id, self._parts.clock.now())

    def begin_totals(self, without: Collection[str] = ()) -> ProducerTotals:
        """``totals`` at the begin of a task: the longest latency starts anew. Nothing may be in flight."""
        return self._parts.accumulator.metrics.begin_totals(without)

    def totals(self, without: Collection[str] = ()) -> ProducerTotals:
        """Sums of the metrics' counters. ``without``: topics whose bytes, batches and retries are left out."""
        return self._parts.accumulator.metrics.totals(without)

    def close(self, timeout_ms: float = NO_DEADLINE) -> None:
        """Deliver what is left for up to ``timeout_ms``, fail the rest, end the thread and the connections.

        ``close(0)`` fails what is incomplete at once; so does ``close`` in a callback, which does not wait. Every
        callback has run when the thread has ended. Closing twice has no effect, nor has closing in a process that was
        forked from the one that opened the producer.
        """
        if self._inherited is not None:
            return
        was_closed = self._closed
        if timeout_ms > 0 and self._parts.sender_thread.is_current:
            _log.warning("close() in a callback cannot wait: like close(0), it fails undelivered records")
            timeout_ms = 0
        deadline = self._parts.clock.now() + timeout_ms
        if not was_closed and timeout_ms > 0 and self._parts.sender_thread.is_alive():
            self._parts.pending.flush(timeout_ms)
        self._closed = True
        self._fast = {}
        self._parts.accumulator.close()
        self._parts.sender_thread.close(max(0.0, deadline - self._parts.clock.now()))
        if self._plugins_closed.acquire(blocking=False):
            try:
                self._interceptors.close()
            finally:
                try:
                    self._serializers.close()
                finally:
                    self._parts.appender.partitioner.close()

    def become_inherited(self) -> None:
        """In the child of a fork: every use but ``close`` raises from now on. The parts are the parent's."""
        if self._inherited is None:
            self._inherited, self._fast = self._parts, {}
            self._parts.sender_thread.become_inherited()
            self._parts = cast(ProducerComponents, InheritedParts())

    def __enter__(self) -> KafkaProducer:
        """The block ends with ``close()``, also by an exception: what was sent before is delivered, and an open
        transaction aborted (Java: try-with-resources). ``KeyboardInterrupt`` ends it with ``close(0)`` and a warning
        with the number of undelivered records; a transactional producer then still takes up to 5 s for its abort.
        """
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KeyboardInterrupt) and self._inherited is None:
            self._give_up()
        else:
            self.close()

    def _give_up(self) -> None:
        """Close without delivering what is left, but abort an open transaction."""
        undelivered = self._parts.pending.undelivered + self._parts.accumulator.undelivered
        self.close(self._abort_ms)
        if undelivered:
            _log.warning("Interrupted: %d records were not delivered before the producer was closed", undelivered)

    def _send_checked(self, record: ProducerRecord) -> FutureRecordMetadata:
        """The first record of a topic, and each with transactions, serializers, interceptors, a RecordPartitioner."""
        if self._interceptors:
            return self._send_intercepted(record)
        self._check_may_append()
        return self._append(self._prepare(record))

    def _send_intercepted(self, record: ProducerRecord) -> FutureRecordMetadata:
        """Interceptors learn of each error of ``send``, also of a closed producer (Java: ``onSendError``)."""
        record = self._interceptors.on_send(record)
        try:
            self._check_may_append()
            prepared = self._prepare(record)
            record = prepared.record
            future = self._append(prepared)
        except BaseException as error:
            self._interceptors.on_send_error(record, as_exception(error))
            raise

        def acknowledged(metadata: RecordMetadata | None, error: Exception | None) -> None:
            if metadata is not None:
                self._interceptors.on_acknowledgement(metadata, None)
            elif error is not None:
                self._interceptors.on_send_error(record, error, future.partition())

        future.add_callback(acknowledged)
        return future

    def _prepare(self, record: ProducerRecord) -> _Prepared:
        """The record with its serialized key and value, and the partition that a ``RecordPartitioner`` chooses."""
        if not self._serializers and self._partitioning is None:
            return _Prepared(record, record.key, record.value)
        cluster, left = self._parts.metadata.snapshot, None
        if record.topic not in cluster.partition_counts:
            began = self._parts.clock.now()
            cluster = self._await_topic(record.topic)
            left = max(0.0, self.config.max_block_ms - (self._parts.clock.now() - began))
        key, value, headers = self._serializers.serialize(record)
        if headers is not record.headers:
            record = replace(record, headers=headers)
        if self._partitioning is not None:
            record = self._partitioning.partition(record, key, value, cluster)
        return _Prepared(record, key, value, left)

    def _append(self, prepared: _Prepared) -> FutureRecordMetadata:
        try:
            future = self._parts.pending.append(*prepared)
        except BaseException as error:
            self._records_lost(error)
            raise
        if self._partitioning is not None:
            self._partitioning.appended(prepared.record.topic)
        return future

    def _check_may_append(self) -> None:
        self._check_open()
        if self._parts.transaction_manager is not None:
            self._parts.transaction_manager.check_in_transaction()

    def _records_lost(self, error: BaseException) -> None:
        """A transaction must not be committed without these records.

        An invalid record was never part of it: the caller may go on, as in Java, where only an ``ApiException``
        fails the transaction. A record that is too large has such an exception.
        """
        refused = isinstance(error, InvalidRecordError) and not isinstance(error, RecordTooLargeError)
        if self._parts.transaction_manager is not None and not refused:
            self._parts.transaction_manager.records_lost(as_exception(error))

    def _await_topic(self, topic: str) -> ClusterSnapshot:
        self._check_open()
        parts = self._parts
        wake = parts.sender_thread.wakeup
        return parts.metadata.wait_for_topic(topic, None, self.config.max_block_ms, parts.clock, wake)

    def _check_open(self) -> None:
        if self._closed:
            raise ProducerClosedError("The producer is closed. Open a new one.")
        if not self._parts.sender_thread.is_alive():
            raise ProducerClosedError("The producer's sender thread has died; its log says why. Open a new producer.")
