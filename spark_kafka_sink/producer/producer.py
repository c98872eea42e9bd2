"""``KafkaProducer``: records and columns in, futures and receipts out (Java's class of this name)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType, TracebackType
from typing import Final, Never

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.forks import pickling_error
from spark_kafka_sink.common.model import PartitionInfo
from spark_kafka_sink.producer.core import Offsets, ProducerCore
from spark_kafka_sink.producer.future_record_metadata import Callback, FutureRecordMetadata
from spark_kafka_sink.producer.inbox import RECORD_OVERHEAD, KnownTopic
from spark_kafka_sink.producer.intake import as_exception
from spark_kafka_sink.producer.interceptors import InterceptorChain, ProducerInterceptor
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.producer.record import ProducerRecord, RecordMetadata
from spark_kafka_sink.producer.rows import Column, record_columns
from spark_kafka_sink.producer.sender_thread import on_sender_thread
from spark_kafka_sink.producer.serializers import GivenSerializer, RecordSerializers
from spark_kafka_sink.producer.transaction_requests import (
    ConsumerGroupMetadata,
    PreparedTransaction,
    TransactionalIdentity,
)
from spark_kafka_sink.records.columns import TopicColumn

_log = logging.getLogger("spark_kafka_sink.producer")

_ABORT_MS: Final = 5_000.0
"""How long a ``with`` block that an interrupt has ended waits for the abort of the open transaction."""


def _as_dictionary(options: Iterable[str]) -> str:
    """The dictionary to write instead of kafka-python's arguments, without their values, which may be passwords."""
    names = ", ".join(f'"{name.replace("_", ".")}": …' for name in options)
    return f"KafkaProducer takes a dictionary with Kafka's names of options: KafkaProducer({{{names}}})"


def _not_a_record(given: str) -> TypeError:
    return TypeError(
        f'send takes a ProducerRecord, not {given}: producer.send(ProducerRecord("orders", value=b"…", key=b"…"))'
    )


class KafkaProducer:
    """A Kafka producer: batches rows per partition and sends them on a thread of its own. Any thread may use it.

    ``config`` has Kafka's option names (``bootstrap.servers``, ``linger.ms``, …), values native or strings. Raises
    ``ConfigError`` with all faults at once. Connects with the first row. A serializer passed here (an object, or a
    function such as ``lambda value: value.encode()``, which is not called for None) overrides the one named by its
    option; ``interceptors`` come after those of ``interceptor.classes``.

    A broker that refuses this client is not asked again for 30 s: calls that wait for it raise ``AuthenticationError``,
    and records for its partitions fail with it. (Java's producer keeps trying, and the records wait for
    delivery.timeout.ms.) Existing connections stay open, so sending to other brokers continues, as in Java; sending to
    this broker resumes when it accepts the login. For a transactional producer the error is fatal, as in Java.
    """

    def __init__(
        self,
        config: ProducerConfig | Mapping[str, object] = MappingProxyType({}),
        *,
        key_serializer: GivenSerializer | None = None,
        value_serializer: GivenSerializer | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        **options: Never,
    ) -> None:
        if options:
            raise TypeError(_as_dictionary(options))
        if not isinstance(config, ProducerConfig):
            config = ProducerConfig.parse(config)
        config = config.with_client_id()
        self._interceptors = InterceptorChain.load(config, interceptors)
        self._serializers = RecordSerializers.load(config, key_serializer, value_serializer)
        try:
            self._serializers.configure(config.by_name())
            self._interceptors.configure(config.by_name())
            self._core = ProducerCore.open(config, self._interceptors, self._serializers)
        except BaseException:
            self._interceptors.close()
            with suppress(Exception):  # logged
                self._serializers.close()
            raise
        core = self._core
        self.config = core.config
        special = core.transaction_manager or self._interceptors or self._serializers or core.record_partitioner
        # Topics whose records `send` puts at once; none if records need checks, serializers or interceptors, or once it
        # is closed.
        self._names: Mapping[str, KnownTopic] = {} if special else core.inbox.names
        self._inbox = core.inbox
        self._put = core.inbox.entries.extend

    def send(  # noqa: C901  a call of another method takes a tenth of its time
        self,
        record: ProducerRecord,
        callback: Callback | None = None,
        value: None = None,  # these three are refused; `**others` would cost 8 % of the call
        key: None = None,
        partition: None = None,
    ) -> FutureRecordMetadata:
        """Send one record asynchronously; the future gives its ``RecordMetadata``.

        ``callback(metadata, error)`` runs on the sender thread, never inside this call; one of the two is None. Nothing
        is sent while it runs, so it must not block. An exception it raises is logged. Waits for metadata and memory,
        together up to max.block.ms. Raises ``KafkaTimeoutError``, ``AuthenticationError``, ``InvalidRecordError``,
        ``RecordTooLargeError`` or a serializer's error; the record is then not sent.
        """
        # The hot path: a look at the clock, the future, and no lock. All else is in other methods. Code that interrupts
        # it (a signal handler, a finalizer) may send or flush at any line: nothing is shared but the room, which is an
        # estimate, and the inbox, which gets the record in one step.
        try:
            topic = self._names[record.topic]
        except KeyError:  # faster than get(), by 30 ns a record
            topic = None
        except AttributeError:
            raise _not_a_record(type(record).__name__) from None
        if value is not None or key is not None or partition is not None:  # type: ignore[redundant-expr]
            raise _not_a_record("one with value, key or partition beside it")
        future = None
        if topic is not None and record.partition is None and record.timestamp is None and record.headers is None:
            data, name = record.value, record.key
            if data.__class__ is bytes and (name is None or name.__class__ is bytes):
                inbox = self._inbox
                room = inbox.room
                left = room.left - RECORD_OVERHEAD - len(data) - (0 if name is None else len(name))
                if left >= 0:
                    room.left = left
                    if topic.epoch_s() >= inbox.next_ms_at:
                        inbox.mark_time(self._core.clock.epoch_ms())
                    future = FutureRecordMetadata()
                    future._records = records = topic.open
                    future._number = number = records.next_number()
                    self._put((records, number, name, data))
                    if inbox.alert:
                        self._core.records.after_put(records, number)
        if future is None:  # a new topic, other fields, a transaction, serializers, interceptors or a RecordPartitioner
            future = self._send_intercepted(record) if self._interceptors else self._append(record)
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
        """Send rows of one topic as columns, at a fraction of the cost of ``send``.

        Columns are Arrow arrays, numpy arrays or lists of values of one type, all of one length. ``key`` and ``value``:
        strings or bytes; serializers and interceptors are not called. ``headers``: lists of pairs or structs of key
        and value, or maps. ``timestamp``: with a time zone, or epoch ms; null: now. ``partition``: null where the
        partitioner chooses.

        Waits for metadata and memory, together up to max.block.ms, which starts again whenever memory is granted,
        because one call may hold many times buffer.memory. Raises ``InvalidRecordError`` or ``RecordTooLargeError`` for
        a row before any of the rows is appended, and ``KafkaTimeoutError`` when a wait is over.
        """
        topics = TopicColumn.of(topic)
        given = {"key": key, "value": value, "headers": headers, "timestamp": timestamp, "partition": partition}
        columns, partitions = record_columns(given, self._core.clock.epoch_ms())
        receipt = SendReceipt()
        if columns is not None:
            self._core.append_columns(topics, columns, partitions, receipt)
        return receipt

    def flush(self, timeout_ms: float | None = None) -> None:
        """Send everything appended so far, and wait until it is delivered or has failed.

        The callbacks of these records have run by then. Raises ``IllegalStateError`` in a callback. Without
        ``timeout_ms``, delivery.timeout.ms is the deadline.
        """
        self._core.flush(timeout_ms)

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The partitions of ``topic`` with leader and replicas; waits up to max.block.ms for its metadata."""
        self._core.check_open()
        return self._core.wait_for_topic(topic).partitions(topic)

    def metrics(self) -> dict[str, dict[str, float]]:
        """Every metric by Kafka's group and name: ``metrics()["producer-metrics"]["record-send-rate"]``.

        ``producer-topic-metrics.<topic>`` and ``producer-node-metrics.node-<id>`` exist once something was sent there.
        Averages and maxima without a measurement are NaN.
        """
        return self._core.accumulator.metrics.read(self._core.clock.now())

    def open_metrics(self) -> str:
        """The metrics as OpenMetrics text, for a Prometheus endpoint."""
        core = self._core
        return core.accumulator.metrics.open_metrics(self.config.client_id, core.clock.now())

    def init_transactions(
        self, timeout_ms: float | None = None, *, transactional_id: str | None = None
    ) -> TransactionalIdentity:
        """Fence other producers with this transactional id, and abort their open transaction.

        With ``transactional_id`` the producer changes to that id: before its first transaction, between two
        transactions, or after ``prepare_transaction``, which leaves the prepared transaction open under its own id. So
        one producer with its connections can serve one task after another. If it is the same id, its earlier epoch is
        fenced as any other producer's.
        """
        return self._core.transactions.init(timeout_ms, transactional_id=transactional_id)

    def resume_transactions(self, identity: TransactionalIdentity) -> None:
        """Instead of ``init_transactions``: continue with an identity from an ``init_transactions`` elsewhere, perhaps
        in another process.

        The first transaction shows whether the identity is still valid. It may be used once, by a producer with its
        transactional.id. ``begin_transaction`` renews an identity of protocol v1. Brokers before Kafka 2.5 cannot renew
        it, so there nothing may have been written under it.
        """
        self._core.transactions.resume(identity)

    def begin_transaction(self) -> None:
        """Records may be sent from here on, until the transaction is prepared, committed or aborted."""
        self._core.transactions.begin()

    def send_offsets_to_transaction(
        self, offsets: Offsets, group: str | ConsumerGroupMetadata, timeout_ms: float | None = None
    ) -> None:
        """Commit a consumer's offsets with the transaction.

        ``offsets``: (topic, partition) → offset of the next record to read, or ``OffsetAndMetadata``. ``group``: the
        group's id; ``ConsumerGroupMetadata`` also fences zombie members (KIP-447). Raises ``ValueError`` for a value
        that no request can carry.
        """
        self._core.transactions.send_offsets(offsets, group, timeout_ms)

    def commit_transaction(self, timeout_ms: float | None = None) -> None:
        """Send what is left, wait for every batch, commit."""
        self._core.transactions.commit(timeout_ms)

    def abort_transaction(self, timeout_ms: float | None = None) -> None:
        """Drop what is not sent yet (its futures fail with ``TransactionAbortedError``), then abort."""
        self._core.transactions.abort(timeout_ms)

    def prepare_transaction(self, timeout_ms: float | None = None) -> PreparedTransaction:
        """Send what is left, wait for every batch, leave the transaction open.

        This producer or another process ends it later. Neither ``close`` nor ``init_transactions`` with another
        ``transactional_id`` ends it.
        """
        return self._core.transactions.prepare(timeout_ms)

    @property
    def transactional_identity(self) -> TransactionalIdentity | None:
        """The identity of the next transaction. With protocol v2, each end of a transaction bumps the epoch.
        ``begin_transaction`` bumps it after a change from protocol v1, or when a v1 epoch may not be used again.
        """
        return self._core.transactions.identity

    def close(self, timeout_ms: float | None = None) -> None:
        """Deliver what is left for up to ``timeout_ms``, fail the rest, end the thread and the connections.

        ``close(0)`` fails what is incomplete at once; so does ``close`` in a callback, which does not wait. Every
        callback has run when the thread has ended. A second ``close`` has no effect, nor has one in a child process
        that inherited the producer by a fork.

        A program that ends with an open producer still delivers what is left for up to 10 s, and logs how many records
        are lost. It does not if a signal or ``os._exit`` ends it, as with Spark's Python workers. In finalizers
        (``__del__``) that run later, ``close`` has no effect; what would send or wait raises ``ProducerClosedError``.
        """
        if self._core.is_inherited:
            return
        if timeout_ms != 0 and (self._core.sender_thread.is_current or on_sender_thread()):
            _log.warning("close() in a callback cannot wait: like close(0), it fails undelivered records")
            timeout_ms = 0
        self._names = {}
        self._core.close(timeout_ms)

    def __reduce__(self) -> Never:
        raise pickling_error(self)

    def __enter__(self) -> KafkaProducer:
        """The block ends with ``close()``, even after an exception: what was sent before is delivered, and an open
        transaction aborted (Java: try-with-resources). ``KeyboardInterrupt`` ends it with ``close(0)`` and a warning
        with the number of undelivered records; a transactional producer then still takes up to 5 s for its abort.
        """
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KeyboardInterrupt) and not self._core.is_inherited:
            self._give_up()
        else:
            self.close()

    def _give_up(self) -> None:
        """Close without delivering what is left, but abort an open transaction."""
        undelivered = self._core.undelivered
        self.close(0.0 if self._core.transaction_manager is None else _ABORT_MS)
        if undelivered:
            _log.warning("Interrupted: %d records were not delivered before the producer was closed", undelivered)

    def _send_intercepted(self, record: ProducerRecord) -> FutureRecordMetadata:
        """Sends a record with interceptors, which get each error of ``send``, even of a closed producer (Java:
        ``onSendError``)."""
        record = self._interceptors.on_send(record)
        try:
            future = self._append(record)
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

    def _append(self, record: ProducerRecord) -> FutureRecordMetadata:
        core = self._core
        with core.append() as transaction:
            left: float = self.config.max_block_ms
            key, value, headers = record.key, record.value, record.headers
            if self._serializers:
                began = core.clock.now()
                core.records.known_topic(record.topic, None, left, transaction)  # first, as in Java
                left = max(0.0, left - (core.clock.now() - began))
                key, value, headers = self._serializers.serialize(record)
            if headers is not record.headers:
                record = replace(record, headers=headers)
            return core.records.put(record, key, value, transaction, left)
