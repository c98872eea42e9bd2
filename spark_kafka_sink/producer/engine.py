"""``ProducerEngine``: the one door to the parts of a producer. ``KafkaProducer`` and Spark's tasks come through it."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from random import Random
from typing import Final, Protocol, cast
from weakref import WeakSet

from spark_kafka_sink.common.clock import NEVER, SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.forks import on_fork
from spark_kafka_sink.common.metrics import ProducerTotals
from spark_kafka_sink.errors import (
    InvalidRecordError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosedError,
    RecordTooLargeError,
)
from spark_kafka_sink.network.calls import BlockingCalls
from spark_kafka_sink.network.selector import Selector
from spark_kafka_sink.producer.accumulator.accumulator import Flush
from spark_kafka_sink.producer.append.append import as_exception
from spark_kafka_sink.producer.append.receipt import SendReceipt
from spark_kafka_sink.producer.assembly import InheritedParts, ProducerComponents, assemble
from spark_kafka_sink.producer.partitioning.kafka_partitioners import BuiltInPartitioner
from spark_kafka_sink.producer.topics import Topics
from spark_kafka_sink.producer.transactional_calls import TransactionalCalls
from spark_kafka_sink.records.columns import Int32Array, RecordColumns, TopicColumn

_log = logging.getLogger("spark_kafka_sink.producer")

_EXIT_MS: Final = 10_000.0

_running: Final[WeakSet[ProducerComponents]] = WeakSet()  # their threads hold them


class Plugin(Protocol):
    """Interceptors or serializers."""

    def close(self) -> None: ...


class ProducerEngine(TransactionalCalls):
    """Rows in columns in, receipts out, with all that a Spark task needs, on one set of connections.

    Any thread may use it. It has a thread of its own, and connects with the first row. Raises ``ConfigError`` if none
    of the bootstrap servers can be resolved. After ``close``, and in a child of the process that made it, every call
    raises ``ProducerClosedError``. ``is_inherited``: this process is such a child. ``plugins`` are closed with it.
    """

    def __init__(self, config: ProducerConfig, plugins: Sequence[Plugin] = ()) -> None:
        super().__init__()
        self.config = config.with_client_id()
        selector = Selector(self.config.send_buffer_bytes, self.config.receive_buffer_bytes)
        try:
            self.parts = assemble(self.config, selector, SystemClock(), Random(), selector.counters)
        except BaseException:
            selector.shutdown()
            raise
        self.is_inherited = False
        self._closed = False
        self._plugins = plugins
        self._plugins_closed = threading.Lock()  # acquired once, by the close() that closes them
        self.parts.sender_thread.start(self.parts.sender, self.parts)
        _running.add(self.parts)
        on_fork(self)

    @property
    def topics(self) -> Topics:
        """Facts about topics."""
        return self.parts.topics

    @property
    def calls(self) -> BlockingCalls:
        """Requests other than Produce for callers that wait, such as CreateTopics."""
        self.check_open()
        return self.parts.caller_calls

    def append_columns(
        self, topic: str | TopicColumn, columns: RecordColumns, partitions: Int32Array | None, receipt: SendReceipt
    ) -> None:
        """Append rows; ``receipt`` collects the outcome of each batch.

        In each partition they come behind what this thread has sent before, also by ``KafkaProducer.send``.

        ``topic``: of all rows, or one per row. ``partitions`` (int32): the partition of each row, -1 where the
        partitioner chooses, ``LEFT_OUT`` for a row that is not appended; None: it chooses all. Waits and raises as
        ``KafkaProducer.send_columns``, and raises the receipt's error once an earlier batch of it has failed.
        """
        self.check_may_append()
        topics = TopicColumn.of(topic)
        receipt.waiters.sender = self.parts.sender_thread
        try:
            self.parts.pending.go_before(topics.names)
            self.parts.appender.append(topics, columns, partitions, receipt)
        except BaseException as error:
            self.records_lost(error)
            raise

    def flush(self, timeout_ms: float | None = None) -> None:
        """Send what was appended without lingering, and wait until it is complete (see ``KafkaProducer.flush``)."""
        self.check_open()
        _flush(self.parts, NEVER if timeout_ms is None else timeout_ms)

    def begin_sticky_runs(self) -> None:
        """The next unkeyed rows of each topic go to a new sticky partition, where ``partitioner.class`` is sticky.

        For small writes with a ``flush`` each: a run that outlives its batch puts many of them on one partition.
        """
        partitioner = self.parts.appender.partitioner
        if isinstance(partitioner, BuiltInPartitioner):
            partitioner.begin_sticky_runs()

    def begin_totals(self, without: Collection[str] = ()) -> ProducerTotals:
        """``totals`` at the begin of a task: the longest latency starts anew. Nothing may be in flight."""
        return self.parts.accumulator.metrics.begin_totals(without)

    def totals(self, without: Collection[str] = ()) -> ProducerTotals:
        """Sums of the metrics' counters. ``without``: topics whose bytes, batches and retries are left out."""
        return self.parts.accumulator.metrics.totals(without)

    def is_alive(self) -> bool:
        """Whether it still accepts rows: not closed, and its sender thread runs."""
        return not self._closed and not self.is_inherited and self.parts.sender_thread.is_alive()

    def close(self, timeout_ms: float | None = None) -> None:
        """Deliver what is left for up to ``timeout_ms``, fail the rest, end the thread and the connections.

        ``KafkaProducer.close`` says what ``close(0)``, closing twice and closing in a fork do.
        """
        if self.is_inherited or self.parts.sender_thread.waiters.alone:
            return
        parts, timeout_ms = self.parts, NEVER if timeout_ms is None else timeout_ms
        deadline = parts.clock.now() + timeout_ms
        if not self._closed and timeout_ms > 0 and parts.sender_thread.is_alive():
            parts.pending.flush(timeout_ms)
        self._closed = True
        parts.accumulator.close()
        parts.sender_thread.close(max(0.0, deadline - parts.clock.now()))
        if self._plugins_closed.acquire(blocking=False):
            with ExitStack() as closing:  # the last one first; each, also after one that raises
                closing.callback(parts.appender.partitioner.close)
                for plugin in reversed(self._plugins):
                    closing.callback(plugin.close)

    def become_inherited(self) -> None:
        """In the child of a fork: every use but ``close`` raises from now on. The parts are the parent's."""
        if not self.is_inherited:
            self.is_inherited = True
            self.parts.sender_thread.become_inherited()
            self._parents = self.parts  # finalisers would close the parent's sockets
            self._parents.pending.topics.clear()  # KafkaProducer.send appends to these without another check
            self.parts = cast(ProducerComponents, InheritedParts())

    def check_open(self) -> None:
        """Raises ``ProducerClosedError`` if it accepts no rows."""
        if self._closed:
            raise ProducerClosedError("The producer is closed. Open a new one.")
        if isinstance(error := self.parts.sender_thread.obstacle(), ProducerClosedError):
            raise error

    def check_may_append(self) -> None:
        """``check_open``; raises ``IllegalStateError`` outside a transaction, if the producer is transactional."""
        self.check_open()
        if self.parts.transaction_manager is not None:
            self.parts.transaction_manager.check_in_transaction()

    def records_lost(self, error: BaseException) -> None:
        """An append has raised ``error``: a transaction must not be committed without its records.

        An invalid record was never part of it: the caller may go on, as in Java, where only an ``ApiException``
        fails the transaction. A record that is too large has such an exception.
        """
        refused = isinstance(error, InvalidRecordError) and not isinstance(error, RecordTooLargeError)
        if self.parts.transaction_manager is not None and not refused:
            self.parts.transaction_manager.records_lost(as_exception(error))


def _flush(parts: ProducerComponents, timeout_ms: float) -> None:
    parts.sender_thread.waiters.check()
    clock, accumulator, flush = parts.clock, parts.accumulator, Flush()
    deadline = clock.now() + timeout_ms
    if not parts.pending.flush(timeout_ms):
        raise KafkaTimeoutError(f"Failed to flush within {timeout_ms:.0f} ms")
    try:
        accumulator.begin_flush(flush)
        parts.sender_thread.wakeup()
        accumulator.await_flush(flush, max(0.0, deadline - clock.now()))
    except KafkaTimeoutError as timeout:
        raise parts.sender.with_obstacle(f"Failed to flush within {timeout_ms:.0f} ms", clock.now()) from timeout
    finally:
        accumulator.end_flush(flush)
    if not parts.sender_thread.callbacks.wait(max(0.0, deadline - clock.now())):
        raise KafkaTimeoutError(f"The callbacks of the flushed records have not run within {timeout_ms:.0f} ms")


@atexit.register
def _flush_at_exit() -> None:
    """Python stops the sender threads after this. The producers stay open for handlers that run later."""
    clock = SystemClock()
    deadline = clock.now() + _EXIT_MS
    for parts in [each for each in _running if not each.sender_thread.waiters.alone]:
        with suppress(KafkaError, KeyboardInterrupt):
            _flush(parts, max(0.0, deadline - clock.now()))
        if lost := parts.pending.undelivered + parts.accumulator.undelivered:
            _log.error(
                "%d records are lost, as the program ends before they are delivered. Flush or close earlier.", lost
            )
