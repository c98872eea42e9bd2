"""``ProducerCore``: the objects of one producer, which ``KafkaProducer`` and a Spark task share, and its
``TransactionalCalls``, each of which waits on its caller's thread for the sender thread's result.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from random import Random
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast
from uuid import UUID
from weakref import WeakSet

from spark_kafka_sink.common.cause import timed_out
from spark_kafka_sink.common.clock import NEVER, Clock, SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.forks import inherited_error, on_fork
from spark_kafka_sink.common.model import (
    LARGEST_INT16,
    LARGEST_INT32,
    LARGEST_INT64,
    ClusterSnapshot,
    TopicPartition,
    check_number,
    check_text,
)
from spark_kafka_sink.common.waiting import CallOutcome
from spark_kafka_sink.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosedError,
)
from spark_kafka_sink.network.calls import Calls
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.network.selector import NetworkCounters, Selector
from spark_kafka_sink.producer.accumulator import Flush, RecordAccumulator
from spark_kafka_sink.producer.buffer_pool import BufferPool
from spark_kafka_sink.producer.columns_call import ColumnAppender
from spark_kafka_sink.producer.inbox import Inbox
from spark_kafka_sink.producer.intake import Intake
from spark_kafka_sink.producer.interceptors import InterceptorChain
from spark_kafka_sink.producer.kafka_partitioners import BuiltInPartitioner, load_partitioner
from spark_kafka_sink.producer.metrics import ProducerMetrics
from spark_kafka_sink.producer.partitioner import CustomPartitioner
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.producer.send import RecordSend
from spark_kafka_sink.producer.sender import Sender
from spark_kafka_sink.producer.sender_thread import SenderThread
from spark_kafka_sink.producer.sequences import Sequences
from spark_kafka_sink.producer.serializers import RecordSerializers
from spark_kafka_sink.producer.transaction_manager import (
    RESUMED,
    Step,
    TransactionalCall,
    TransactionManager,
)
from spark_kafka_sink.producer.transaction_requests import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
    TransactionalIdentity,
)
from spark_kafka_sink.records.arrays import Int32Array
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn

_log = logging.getLogger("spark_kafka_sink.producer")

_EXIT_MS: Final = 10_000.0

_RECENT_MS = 200.0
"""The age up to which a metadata response is recent enough for ``refresh_metadata``, which limits the requests of many
short tasks. A topic that was deleted and created again in less time fails the task, as if this had happened while the
task wrote."""

Offsets = Mapping[TopicPartition, int | OffsetAndMetadata] | Mapping[tuple[str, int], int | OffsetAndMetadata]


class ProducerCore:
    """The engine of one producer: takes rows in columns and gives receipts, on one set of connections.

    Any thread may use it. After ``close``, and in a child of the process that made it, every call raises
    ``ProducerClosedError``. ``open`` starts a sender thread. Without it, the caller runs the loop of ``sender``, over
    any ``transport`` and ``clock``. ``network`` has the transport's counters, for the metrics.
    """

    def __init__(
        self,
        config: ProducerConfig,
        transport: Selector,
        clock: Clock,
        random: Random,
        network: NetworkCounters | None = None,
    ) -> None:
        self.config = config
        self.clock = clock
        self.sender_thread = SenderThread(transport, clock, f"kafka-producer-network-thread | {config.client_id}")
        client = NetworkClient(config, transport, random)
        self.metadata = Metadata(config, random, client, clock, self.sender_thread)
        pool = BufferPool(config.buffer_memory, clock, self.sender_thread)
        metrics = ProducerMetrics(pool, pool.counters, network or NetworkCounters(), client.counters, self.metadata)
        self.pool = pool
        self.accumulator = RecordAccumulator(config, pool, metrics)
        one_in_flight = config.max_in_flight_requests_per_connection == 1
        sequences = Sequences(config.enable_idempotence, config.transactional_id is not None, one_in_flight)
        self._calls = Calls(client, self.metadata, config, random)
        self.inbox = Inbox()
        self.transaction_manager: TransactionManager | None = None
        if config.transactional_id is not None:
            self.transaction_manager = TransactionManager(config, self.accumulator, sequences, client, self._calls)
        self.partitioner = load_partitioner(config, random)
        self.appender = ColumnAppender(
            config, self.accumulator, pool, self.metadata, self.partitioner, self.inbox, self.sender_thread, clock
        )
        custom = self.partitioner if isinstance(self.partitioner, CustomPartitioner) else None
        self.record_partitioner = custom if custom is not None and custom.per_record else None
        callbacks = self.sender_thread.callbacks
        self.records = RecordSend(
            config, pool, self.metadata, self.inbox, self.sender_thread, callbacks, clock, self.appender.size_limits,
            self.record_partitioner,
        )  # fmt: skip
        intake = Intake(
            config, self.inbox, self.accumulator, self.metadata, self.partitioner, self.transaction_manager, clock
        )
        self.sender = pool.sender = Sender(
            config, random, self.accumulator, self.metadata, client, self._calls, sequences, intake, callbacks,
            self.transaction_manager,
        )  # fmt: skip
        self._closed = False
        self._plugins: tuple[RecordSerializers | InterceptorChain, ...] = ()
        self._plugins_closed = threading.Lock()  # acquired once, by the close() that closes them

    @classmethod
    def open(cls, config: ProducerConfig, *plugins: RecordSerializers | InterceptorChain) -> ProducerCore:
        """A core with a thread and sockets of its own. It connects with the first row. ``plugins`` are closed with it.

        Raises ``ConfigError`` if none of the bootstrap servers can be resolved.
        """
        config = config.with_client_id()
        selector = Selector(config.send_buffer_bytes, config.receive_buffer_bytes)
        try:
            core = cls(config, selector, SystemClock(), Random(), selector.counters)
        except BaseException:
            selector.shutdown()
            raise
        core._plugins = plugins
        core.sender_thread.start(core.sender, core)
        _running.add(core)
        on_fork(core)
        return core

    # Rows

    def append_columns(
        self, topic: str | TopicColumn, columns: RecordColumns, partitions: Int32Array | None, receipt: SendReceipt
    ) -> None:
        """Append rows; ``receipt`` collects the outcome of each batch.

        In each partition they follow what this thread has sent before, including by ``KafkaProducer.send``.

        ``topic``: of all rows, or one per row. ``partitions`` (int32): the partition of each row, -1 where the
        partitioner chooses, ``LEFT_OUT`` for a row that is not appended; None: it chooses all. Waits and raises as
        ``KafkaProducer.send_columns``, and raises the receipt's error once an earlier batch of it has failed.
        """
        with self.append() as transaction:
            receipt.waiters.sender = self.sender_thread
            self.appender.append(TopicColumn.of(topic), columns, partitions, receipt, transaction)

    def flush(self, timeout_ms: float | None = None) -> None:
        """Sends what was appended, without lingering, and waits until it is complete (see ``KafkaProducer.flush``)."""
        self.check_open()
        self._flush(NEVER if timeout_ms is None else timeout_ms)

    def begin_flush(self) -> Flush:
        """Begins a flush: no batch lingers until the flush has its outcome or is ``over``."""
        flush = Flush(CallOutcome(self.sender_thread))
        self.inbox.put(flush)
        self.sender_thread.wakeup()
        return flush

    def _flush(self, timeout_ms: float, flush: Flush | None = None) -> None:
        self.sender_thread.waiters.check()
        flush = flush or self.begin_flush()
        assert flush.outcome is not None
        try:
            if not flush.outcome.wait(timeout_ms):
                why = self.sender.why_waiting(None, self.clock.now())
                raise timed_out(f"Failed to flush within {timeout_ms:.0f} ms", why)
        finally:
            flush.over = True

    def begin_sticky_runs(self) -> None:
        """The next unkeyed rows of each topic go to a new sticky partition, where ``partitioner.class`` is sticky.

        For small writes that each end with a ``flush``: a run that outlives its batch would put many such writes on one
        partition.
        """
        if isinstance(self.partitioner, BuiltInPartitioner):
            self.partitioner.begin_sticky_runs()

    @property
    def transactions(self) -> TransactionalCalls:
        """The transactional calls; raises ``IllegalStateError`` without transactional.id."""
        self.check_open()
        if self.transaction_manager is None:
            raise IllegalStateError("Transactions need transactional.id in the producer's configuration")
        return TransactionalCalls(self)

    def append(self) -> AbstractContextManager[int]:
        """The block in which rows are put: it has the number of the open transaction, 0 without transactions. Raises
        unless rows may be put now. If the block raises, or does not end, the transaction is not committed.
        """
        self.check_open()
        return nullcontext(0) if self.transaction_manager is None else self.transaction_manager.append()

    @property
    def undelivered(self) -> int:
        """The number of records that were sent and have no result yet."""
        return self.sender.intake.undelivered + self.accumulator.undelivered

    # The brokers' topics, for any thread but the sender's. Waits take up to max.block.ms.

    @property
    def calls(self) -> Calls:
        """Requests other than Produce for callers that wait, such as CreateTopics."""
        self.check_open()
        return self._calls

    def wait_for_topic(self, topic: str, timeout_ms: float = NEVER) -> ClusterSnapshot:
        """A snapshot of the cluster that has the topic. Raises as ``Metadata.wait_for_topics``."""
        return self.metadata.wait_for_topics({topic: None}, min(timeout_ms, self.config.max_block_ms))

    def partition_count(self, topic: str) -> int:
        return self.wait_for_topic(topic).topics[topic].partition_count

    def refreshed_partition_count(self, topic: str) -> int | None:
        """The number of partitions in the next metadata response; None if the topic does not exist."""
        return self.metadata.refreshed_partition_count(topic, self.config.max_block_ms)

    def has_metadata(self, topic: str) -> bool:
        return topic in self.metadata.snapshot.partition_counts

    def topic_exists(self, topic: str, patience_ms: float) -> bool:
        """Whether the topic exists. A broker may not know a new topic yet, so "no" takes ``patience_ms``. The producer
        does not let the brokers create the topic, now or later."""
        self.metadata.not_created.add(topic)
        try:
            self.wait_for_topic(topic, patience_ms)
        except KafkaTimeoutError as error:
            return error.missing_topic is None
        return True

    def refresh_metadata(self) -> int:
        """Requests a metadata update, without waiting for it; returns ``after`` for ``topic_ids``. A response that came
        just now counts as the update."""
        before = self.metadata.round
        if self.metadata.updated_at > self.clock.now() - _RECENT_MS:
            return before - 1
        self.metadata.request_update(at_once=True)
        self.sender_thread.wakeup()
        return before

    def topic_id(self, topic: str) -> UUID | None:
        """The topic's id, which changes if the topic is created again under the same name. None while it is unknown."""
        info = self.metadata.snapshot.topics.get(topic)
        return None if info is None else info.topic_id

    def topic_ids(self, topics: Sequence[str], after: int) -> Mapping[str, UUID | None]:
        """The ids of existing topics, None from brokers that have none. Waits for a metadata response since the
        ``refresh_metadata`` that returned ``after``, because an earlier one may have the id of a topic that was deleted
        since. After max.block.ms it returns what is known.
        """
        deadline = self.clock.now() + self.config.max_block_ms
        self.metadata.wait_for_topics(dict.fromkeys(topics), self.config.max_block_ms)
        self.metadata.await_round(after, deadline - self.clock.now())
        return {topic: self.topic_id(topic) for topic in topics}

    # From open to closed

    @property
    def is_inherited(self) -> bool:
        """Whether this process is a child of the process that opened the producer."""
        return "_parents" in self.__dict__

    def is_alive(self) -> bool:
        """Whether the producer still accepts rows, because it is not closed and its sender thread runs."""
        return not self.is_inherited and not self._closed and self.sender_thread.is_alive()

    def check_open(self) -> None:
        """Raises ``ProducerClosedError`` if the producer accepts no rows."""
        if self._closed:
            raise ProducerClosedError("The producer is closed. Open a new one.")
        if isinstance(error := self.sender_thread.obstacle(), ProducerClosedError):
            raise error

    def close(self, timeout_ms: float | None = None) -> None:
        """Deliver what is left for up to ``timeout_ms``, fail the rest, end the thread and the connections.

        ``KafkaProducer.close`` says what ``close(0)``, closing twice and closing in a fork do.
        """
        if self.is_inherited or self.sender_thread.waiters.notifiers_gone:
            return
        self._closed = True
        self.inbox.names.clear()
        self.sender_thread.close(NEVER if timeout_ms is None else timeout_ms)
        if self._plugins_closed.acquire(blocking=False):
            with ExitStack() as closing:  # in reverse order, and each even if another one raises
                closing.callback(self.partitioner.close)
                for plugin in reversed(self._plugins):
                    closing.callback(plugin.close)

    def after_fork_in_child(self) -> None:
        """In the child of a fork: every use but ``close`` raises from now on. The objects are the parent's."""
        if not self.is_inherited:
            self.sender_thread.after_fork_in_child()
            self.inbox.names.clear()  # KafkaProducer.send puts records of these without another check
            parents = dict(self.__dict__)
            self.__dict__.clear()
            self._parents = parents  # finalisers would close the parent's sockets

    if not TYPE_CHECKING:
        # In a forked child no attribute is left, so every use of the producer comes here.
        def __getattr__(self, name: str) -> NoReturn:
            if self.is_inherited:
                raise inherited_error()
            raise AttributeError(name)


_running: Final[WeakSet[ProducerCore]] = WeakSet()  # their threads hold them


@atexit.register
def _flush_at_exit() -> None:
    """Flushes all producers before Python stops their sender threads. They stay open for handlers that run later."""
    clock = SystemClock()
    deadline = clock.now() + _EXIT_MS
    running = [core for core in _running if not (core.is_inherited or core.sender_thread.waiters.notifiers_gone)]
    cores = [core for core in running if core.sender_thread.is_alive()]
    flushes = [core.begin_flush() for core in cores]  # all of them before the first wait, perhaps for dead brokers
    for core, flush in zip(cores, flushes, strict=True):
        with suppress(KafkaError, KeyboardInterrupt):
            core._flush(max(0.0, deadline - clock.now()), flush)
        if lost := core.undelivered:
            _log.error(
                "%d records are lost, because the program ended before they were delivered. Flush or close the "
                "producer earlier.",
                lost,
            )


class TransactionalCalls:
    """The transactional calls, for any thread but the sender's (KIP-98, KIP-890). ``KafkaProducer`` documents them."""

    def __init__(self, core: ProducerCore) -> None:
        self._core = core

    def init(self, timeout_ms: float | None = None, *, transactional_id: str | None = None) -> TransactionalIdentity:
        step = Step.INIT if transactional_id is None else Step.INIT_AS
        if transactional_id is not None:
            check_text("transactional_id", transactional_id)
            if not transactional_id:
                raise ValueError("Invalid transactional_id: it is empty.")
        return cast(TransactionalIdentity, self._call(step, timeout_ms, transactional_id=transactional_id))

    def resume(self, identity: TransactionalIdentity) -> None:
        check_number("identity.producer_id", identity.producer_id, 0, LARGEST_INT64)
        check_number("identity.epoch", identity.epoch, 0, LARGEST_INT16)
        self._call(Step.RESUME, None, identity=identity)

    def begin(self) -> None:
        self._call(Step.BEGIN, None)

    def send_offsets(
        self, offsets: Offsets, group: str | ConsumerGroupMetadata, timeout_ms: float | None = None
    ) -> None:
        if not isinstance(group, ConsumerGroupMetadata):
            group = ConsumerGroupMetadata(group)
        checked = {_partition(where): _offset(where, offset) for where, offset in offsets.items()}
        if checked:
            self._call(Step.SEND_OFFSETS, timeout_ms, offsets=checked, group=group)

    def commit(self, timeout_ms: float | None = None) -> None:
        self._call(Step.COMMIT, timeout_ms)

    def abort(self, timeout_ms: float | None = None) -> None:
        self._call(Step.ABORT, timeout_ms)

    def prepare(self, timeout_ms: float | None = None) -> PreparedTransaction:
        return cast(PreparedTransaction, self._call(Step.PREPARE, timeout_ms))

    @property
    def identity(self) -> TransactionalIdentity | None:
        manager = self._core.transaction_manager
        return None if manager is None else manager.identity

    def _call(self, step: Step, timeout_ms: float | None, **details: Any) -> object:
        core = self._core
        core.sender_thread.waiters.check()
        granted = core.config.max_block_ms if timeout_ms is None else timeout_ms
        call = TransactionalCall(step, core.sender_thread.callbacks, **details)
        core.inbox.put_call(call)
        core.sender_thread.wakeup()
        if not call.outcome.wait(granted):
            again = "; call it again to continue waiting" if step in RESUMED else ""
            text = f"{step.value} has no response after {granted:.0f} ms{again}"
            raise timed_out(text, core.sender.why_waiting(None, core.clock.now()))
        return call.result()


def _partition(where: tuple[str, int]) -> TopicPartition:
    partition = TopicPartition(*where)
    check_text("topic in offsets", partition.topic)
    check_number(f"partition of {partition.topic} in offsets", partition.partition, 0, LARGEST_INT32)
    return partition


def _offset(where: object, given: int | OffsetAndMetadata) -> OffsetAndMetadata:
    if isinstance(given, OffsetAndMetadata):
        return given
    try:
        return OffsetAndMetadata(given)
    except ValueError as error:
        raise ValueError(f"offsets of {where}: {error}") from None
