"""``Sender``: one iteration of the loop is a function of the time and of network events (Java: ``Sender.runOnce``).

``SenderThread`` runs it with a clock and real sockets (Java: ``Sender.run``, ``KafkaThread``), tests run it by hand.
``Callbacks`` is the queue of user callbacks, which only the sender thread runs.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol, TypeAlias

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.clock import NEVER, Clock, ExponentialBackoff
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import ClusterSnapshot, ProducerIdentity
from spark_kafka_sink.common.waiting import SendingThread, Waiters, sleep, start_thread
from spark_kafka_sink.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosedError,
    UnsupportedVersionError,
    own_copy,
    unexpected_error,
)
from spark_kafka_sink.network.calls import CallEnd, Calls
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.diagnosis import idempotence_error
from spark_kafka_sink.network.error_table import NOT_RETRIED
from spark_kafka_sink.network.messages import Response
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.network.selector import Event, Selector
from spark_kafka_sink.producer import transaction_requests as requests
from spark_kafka_sink.producer.accumulator import DrainMode, RecordAccumulator
from spark_kafka_sink.producer.produce_api import produce_request
from spark_kafka_sink.producer.produce_response_handler import ProduceResponseHandler, expiry_error
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.sequences import Sequences
from spark_kafka_sink.producer.transaction_manager import State, TransactionManager
from spark_kafka_sink.producer.trouble_log import TroubleLog
from spark_kafka_sink.producer.unread_failures import UnreadFailures

_log = logging.getLogger("spark_kafka_sink.sender")
_callback_log = logging.getLogger("spark_kafka_sink.producer")

_IN_FLIGHT: Final = "max.in.flight.requests.per.connection"


class Pending(Protocol):
    """Records of ``send`` that are not in the accumulator yet (``append.pending``)."""

    def publish_due(self, now: float) -> float:
        """Append those whose linger.ms is over; returns when the next are due (monotonic ms)."""

    def abort(self, error: KafkaError) -> None:
        """Fail all of them."""


@dataclass(eq=False)
class Sender:
    """Drains batches and sends them to the leaders. Owned by the thread that runs the loop."""

    config: ProducerConfig
    random: Random
    accumulator: RecordAccumulator
    metadata: Metadata
    client: NetworkClient
    calls: Calls
    sequences: Sequences
    pending: Pending
    transactions: TransactionManager | None

    def __post_init__(self) -> None:
        self._backoff = ExponentialBackoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms, self.random)
        self._trouble = TroubleLog(self.config, self.accumulator, self.metadata, self.client, self.calls)
        self.response_handler = ProduceResponseHandler(
            self.config, self.random, self.accumulator, self.sequences, self.metadata, self.transactions, self._trouble
        )
        self._producer_id_answer: ProducerIdentity | CallEnd | None = None  # of InitProducerId, not handled yet
        self._no_producer_id: KafkaError | None = None  # why InitProducerId is sent again
        self._had_producer_id = False
        self._aborted = False

    @property
    def has_work(self) -> bool:
        transactions = self.transactions
        return self.accumulator.has_incomplete or (transactions is not None and transactions.is_ending)

    def begin_close(self, now: float) -> float:
        """Abort an open transaction. Returns a deadline for its end (monotonic ms); batches expire by themselves."""
        if self.transactions is None:
            return NEVER
        self.transactions.close()
        return now + self.config.delivery_timeout_ms

    def run_once(self, now: float, events: Sequence[Event]) -> float:
        """Handle ``events``, send ready batches, return the time of the next call at the latest (monotonic ms)."""
        transactions = self.transactions
        self.client.handle(events, now)
        self.client.expire(now)
        self._expire(now)
        wake_at = self.pending.publish_due(now)
        if transactions is not None:
            self._run_transactions(transactions, now)
        snapshot = self.metadata.snapshot
        ready = self.accumulator.ready(snapshot, now)
        if ready.unknown_leaders:
            self.metadata.request_update()
        # Before Produce requests: under load they fill every connection, and an update would never find room.
        update_at = self.metadata.maybe_update(now, self.accumulator.topics_in_use)
        wake_at = min(wake_at, ready.next_check, update_at)
        if transactions is None:
            wake_at = min(wake_at, self._request_producer_id(ready.nodes, now))
        if self.calls.busy:
            wake_at = min(wake_at, self.calls.advance(now))
        if not self.sequences.needs_identity and (transactions is None or transactions.may_send):
            wake_at = min(wake_at, self._send_producer_data(snapshot, ready.nodes, now))
        trouble = self._trouble
        if now >= trouble.next_at:
            trouble.write(now)
        rows_wait = self.accumulator.has_incomplete or self.metadata.waiting_since is not None
        if rows_wait or trouble.unwritten:
            wake_at = min(wake_at, trouble.next_at)
        return min(wake_at, self.client.next_deadline(now), self.accumulator.next_expiry)

    def abort(self, error: KafkaError) -> None:
        """Fail every batch, queued or in flight, and refuse new rows."""
        self.response_handler.abort(self.accumulator.abort(error), error)
        self.pending.abort(error)
        self.metadata.fail_waiters(error)
        self.calls.fail(error)
        if self.transactions is not None:
            self.transactions.end(error)
        self._aborted = True

    def _run_transactions(self, transactions: TransactionManager, now: float) -> None:
        """Java: ``maybeSendAndPollTransactionalRequest``."""
        self._fail_rejected(transactions, now)
        transactions.take_submitted()
        self._fail_rejected(transactions, now)
        transactions.advance()
        if transactions.state is State.FATAL_ERROR and transactions.error is not None and not self._aborted:
            self.abort(transactions.error)

    def _fail_rejected(self, transactions: TransactionManager, now: float) -> None:
        """Outside a transaction, and in a failed one, queued batches fail."""
        if not transactions.may_send and self.accumulator.has_incomplete:
            batches = self.accumulator.drain_all()
            if batches:
                error = transactions.rejection()
                self._fail_all([(batch, error) for batch in batches], now)

    def _request_producer_id(self, nodes: Sequence[int], now: float) -> float:
        """Get a producer id once a batch needs it; returns when to call again at the latest."""
        sequences, calls = self.sequences, self.calls
        answer, self._producer_id_answer = self._producer_id_answer, None
        if answer is not None:
            if isinstance(answer, ProducerIdentity):
                self._take_producer_id(answer, now)
            elif answer.error is not None:
                self._handle_no_producer_id(answer.error, answer.code, now)
            return now
        if not sequences.needs_identity or not (nodes or sequences.epochs_exhausted):
            return NEVER
        if not calls.of(self):
            call = requests.producer_id(self._producer_id_completed)
            call.retry_at = now if self._no_producer_id is None else now + self._backoff.delay(0)
            calls.start(call, self)
        return NEVER

    def _producer_id_completed(self, end: CallEnd) -> None:
        """A response that cannot be taken in raises here, which costs only its connection."""
        granted = end.error is None
        self._producer_id_answer = (
            ProducerIdentity(int(end.body.producer_id), int(end.body.producer_epoch)) if granted else end
        )

    def _take_producer_id(self, identity: ProducerIdentity, now: float) -> None:
        _log.debug("Producer id %d, epoch %d", *identity)
        self.sequences.identity, self._had_producer_id = identity, True
        self._no_producer_id = None
        for partition in self.sequences.to_resolve():
            self.response_handler.resolve_sequences(partition, now)

    def _handle_no_producer_id(self, error: KafkaError, code: ErrorCode, now: float) -> None:
        """The batches that wait fail, and later ones ask again; if a broker refused, the producer ends; if none did,
        the request is repeated."""
        # Only if the option was not given, and no row was sent with idempotence.
        may_do_without = not (self.config.asks_for_idempotence or self._had_producer_id)
        if isinstance(error, UnsupportedVersionError) and may_do_without:
            self._do_without_idempotence(error)
        elif isinstance(error, NOT_RETRIED):
            if isinstance(error, UnsupportedVersionError):
                error = UnsupportedVersionError(idempotence_error(error))
            self._fail_all([(batch, error) for batch in self.accumulator.drain_all()], now)
        elif code is not ErrorCode.none:
            self.abort(error)
        else:  # no broker refused
            self._no_producer_id = error

    def _do_without_idempotence(self, error: KafkaError) -> None:
        """The brokers are older than idempotence. Without it only one request in flight keeps the order."""
        self.sequences.idempotent = False
        order = "the order of rows may change, too"
        if self.sequences.one_in_flight:
            order = f"{_IN_FLIGHT}=1 keeps the order"
        elif _IN_FLIGHT not in self.config.asked:
            self.client.send_one_at_a_time()
            self.sequences.one_in_flight = True
            order = f"one request at a time to each broker keeps the order ({_IN_FLIGHT})"
        _log.warning(
            "%s, so rows are sent without idempotence, which is on by default: retries may write some twice; %s. "
            "enable.idempotence=true makes this an error, enable.idempotence=false ends this warning.", error, order,
        )  # fmt: skip

    def _send_producer_data(self, snapshot: ClusterSnapshot, nodes: Sequence[int], now: float) -> float:
        """Fill each ready node's connection with Produce requests (Java: ``sendProducerData``); returns when a full
        connection may have room.
        """
        wake_at = NEVER
        for node_id in nodes:
            node = snapshot.nodes[node_id]
            if (error := self.client.authentication_error(node, now)) is not None:
                while batches := self.accumulator.drain(node_id, now):
                    self._fail_all([(batch, error) for batch in batches], now)
                continue
            self.accumulator.nodes.update(node_id, self.client.ready(node, now), now)
            while self.client.ready(node, now):
                batches = self.accumulator.drain(node_id, now)
                if not batches:
                    break
                if self.transactions is not None:
                    drained, batches = batches, self.transactions.sendable(batches)
                    if len(batches) < len(drained):
                        wake_at = now  # the next iteration adds the partitions of the other batches
                if self.accumulator.topic_limits.max_message_bytes:
                    self.accumulator.topic_limits.forget_old(now)
                    batches = self._within_limits(batches, now)
                if not batches:
                    continue
                self._send_produce_request(node_id, batches, now)
            else:
                wake_at = min(wake_at, now + self.client.ready_delay(node, now))
        return wake_at

    def _within_limits(self, batches: Iterable[ProducerBatch], now: float) -> list[ProducerBatch]:
        """The batches that their topics take. Larger ones that were never sent are split and return to their queues."""
        accumulator = self.accumulator
        fitting = []
        for batch in batches:
            try:
                if batch.payload is None:
                    accumulator.seal(batch)
                if not batch.attempts and accumulator.exceeds_topic_limit(batch):
                    self.response_handler.split_unsent(batch, now)
                else:
                    fitting.append(batch)
            except Exception as error:
                _log.exception("A batch could not be split: its records fail")
                self._fail_all([(batch, unexpected_error(error))], now)
        return fitting

    def _send_produce_request(self, node_id: int, batches: Sequence[ProducerBatch], now: float) -> None:
        """After an unexpected exception the request's batches fail, and no other batch."""
        sent = False
        counted: list[ProducerBatch] = []

        def on_complete(response: Response) -> None:
            if sent:
                self.response_handler.handle(batches, response)

        try:
            for batch in batches:
                if batch.payload is None:
                    self.accumulator.seal(batch)
                waits = self.sequences.send(batch)
                counted.append(batch)
                if waits:
                    self.accumulator.set_drain_mode(batch.partition, DrainMode.MUTED)
            transactions = self.transactions
            transaction = () if transactions is None else (transactions.transactional_id, transactions.protocol)
            request = produce_request(batches, self.config, self.metadata.snapshot, on_complete, *transaction)
            self.client.send(node_id, request, now)
            sent = True
        except Exception as error:
            _log.exception("A Produce request could not be made: its records fail")
            for batch in counted:
                self.sequences.remove_in_flight(batch)
            self._fail_all([(batch, unexpected_error(error)) for batch in batches], now)
        else:
            metrics = self.accumulator.metrics
            metrics.request_sent(node_id, sum([batch.count for batch in batches]), now)
            for batch in batches:
                metrics.batch_sent(batch, now - batch.created)

    def _expire(self, now: float) -> None:
        """Fail batches older than delivery.timeout.ms, in their order."""
        if overdue := self.accumulator.expire(now):
            expired = self.sequences.in_order(overdue)
            self._fail_all(
                [(batch, expiry_error(batch, now, self._batch_obstacle(batch, now))) for batch in expired], now
            )

    def with_obstacle(self, timeout: str, now: float) -> KafkaTimeoutError:
        """The error of a call that waited in vain, with what stood in its way. Any thread may call it."""
        obstacle = self.obstacle(now)
        return KafkaTimeoutError(f"{timeout}. {obstacle}" if obstacle else timeout)

    def obstacle(self, now: float) -> str | None:
        """What keeps the oldest request of a transaction, else the oldest batch, from its end; None if nothing is
        known. Any thread may call it."""
        call = None if self.transactions is None else self.calls.oldest(self.transactions)
        if call is not None:
            return self.calls.obstacle_of(call, now)
        backlog = self.accumulator.backlog()
        if backlog is None:
            return None
        last = backlog.oldest.last_error
        return self._batch_obstacle(backlog.oldest, now) or (None if last is None else str(last))

    def connection_error(self) -> KafkaError | None:
        """The last error of a broker that cannot be reached; None if there is none. Any thread may call it."""
        return self.metadata.last_connection_error()

    def _batch_obstacle(self, batch: ProducerBatch, now: float) -> str | None:
        """What keeps a batch from its acknowledgement, besides its last error; None if nothing is known."""
        transactions = self.transactions
        call = self.calls.oldest(transactions or self)
        waits = self.sequences.needs_identity if transactions is None else transactions.is_adding(batch.partition)
        if waits and (why := self._no_producer_id if call is None else self.calls.obstacle_of(call, now)):
            return str(why)
        return self.metadata.leader_obstacle(batch.partition, now)

    def _fail_all(self, batches: Iterable[tuple[ProducerBatch, KafkaError]], now: float) -> None:
        """Each batch is tried. One that raises stays incomplete until delivery.timeout.ms."""
        handler, unexpected_error = self.response_handler, None
        for batch, error in batches:
            try:
                handler.fail(batch, error)
                if batch.header is not None:
                    handler.resolve_sequences(batch.partition, now)
            except Exception as raised:
                unexpected_error = raised
        handler.release_finished()
        if unexpected_error is not None:
            raise unexpected_error


_MAX_FAILURES = 20
_PAUSE_MS = 100.0
"""After a failed iteration: a permanent failure fills the log slowly."""

_GRACE_MS = 2_000.0
"""``close`` waits this much longer than its timeout: enough for the running iteration, not for a request."""


class SenderThread:
    """Any thread may call its methods. Only the thread itself runs the loop and ``callbacks``, and uses the transport.

    An interrupt (Ctrl-C) may strike a caller at any line of these methods: the thread goes on, and the caller may make
    the same call again.
    """

    def __init__(self, transport: Selector, clock: Clock, name: str) -> None:
        self._transport = transport
        self._clock = clock
        self._wake_at = 0.0
        self._failures = self._completed = 0
        self._closing = False
        self._drain_until = NEVER
        self._draining = False
        self._sender: Sender  # from ``start`` on
        self.waiters = Waiters(self)
        self._ended = self._inherited = False
        self._ended_by = ProducerClosedError("The producer was closed before these records were delivered")
        self.callbacks = Callbacks(self._callback_added, self)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, sender: Sender, core: object = None) -> None:
        self._sender, self._core = sender, core  # which exists until the thread ends
        start_thread(self._thread)

    def is_alive(self) -> bool:
        """Whether the thread has started and not ended.

        Not ``Thread.is_alive``: CPython 3.11 and 3.12 call a thread ended whose ``join`` was interrupted.
        """
        return self._thread.ident is not None and not self._ended

    @property
    def is_current(self) -> bool:
        """Whether the calling thread runs the loop or a callback: it must not wait for either."""
        return threading.get_ident() == self._thread.ident or self.callbacks.runs_here

    def obstacle(self) -> ProducerClosedError | IllegalStateError | None:
        """Why a wait for this thread would not end (``SendingThread``): a ``ProducerClosedError`` if it has ended."""
        if sys.is_finalizing():
            return ProducerClosedError("The program ends, and Python has stopped the sender thread. Flush it earlier.")
        if self._ended or not self.is_current:
            return own_copy(self._ended_by) if self._ended else None
        return IllegalStateError(
            "This call in a callback would wait for itself, because the sender thread runs both. Make it on another "
            "thread. send does not wait if the topic was used before and buffer.memory has room."
        )

    def wakeup(self) -> None:
        """End the wait for network events: there is something to send, or a caller is about to wait for the sender."""
        self._transport.wakeup()

    def close(self, timeout_ms: float) -> bool:
        """Send queued batches for up to ``timeout_ms``, fail the rest, end. False when the thread did not end."""
        self._drain_until = min(self._drain_until, self._clock.now() + timeout_ms)
        self._closing = True
        self.wakeup()
        if (
            not self.is_current
            and self.is_alive()
            and self.waiters.wait_for(lambda: self._ended, timeout_ms + _GRACE_MS)
        ):
            self._thread.join(_GRACE_MS / 1000.0)
        return not self.is_alive()

    def after_fork_in_child(self) -> None:
        """In the child of a fork: the copy of a thread whose callback forked must not go on with the loop."""
        self._inherited = True

    def _callback_added(self) -> None:
        """The thread checks the queue after each iteration."""
        if threading.get_ident() != self._thread.ident:
            self._transport.wakeup()

    def _iteration_failed(self, error: Exception) -> None:
        """Continue, as Java's ``Sender.run``; end after ``_MAX_FAILURES`` in a row without a completed batch."""
        completed = self._sender.response_handler.completed
        if self._completed != completed:
            self._completed, self._failures = completed, 0
        self._failures += 1
        self._wake_at = self._clock.now()
        if self._failures >= _MAX_FAILURES:
            raise error
        _log.error("Uncaught error in the sender thread of %s; it goes on", self._thread.name, exc_info=error)

    def _run(self) -> None:
        _log.debug("Starting the sender thread of %s", self._thread.name)
        try:
            self._run_until_closed()
        except BaseException as cause:
            reason = f"gave up after {self._failures} failed iterations in a row" if self._failures else "died"
            _log.exception("The sender thread of %s %s", self._thread.name, reason)
            self._ended_by = ProducerClosedError(f"The sender thread {reason}: {cause!r}. Open a new producer.")
            self._ended_by.__cause__ = cause
        finally:
            if not self._inherited:
                self._close_all()

    def _close_all(self) -> None:
        for step in (self._abort, self._sender.client.close, self._transport.shutdown, self.callbacks.end):
            try:
                step()
            except BaseException:
                _log.exception("Uncaught error while the sender thread of %s ends", self._thread.name)
        _log.debug("The sender thread of %s has ended", self._thread.name)
        self._ended = True
        self.waiters.notify_all()

    def _abort(self) -> None:
        self._sender.abort(self._ended_by)

    def _run_until_closed(self) -> None:
        ended = False
        while not ended:
            self.callbacks.run()
            if self._inherited:
                return
            try:
                if self.callbacks.unread.collected:
                    self.callbacks.unread.write(self._clock.now())
                ended = self._run_once()
                self._failures = 0
            except Exception as error:
                self._iteration_failed(error)
                sleep(_PAUSE_MS)

    def _run_once(self) -> bool:
        """Wait for the network and iterate once; True when the producer is closed and has no work left."""
        events = self._transport.poll(max(0.0, self._wake_at - self._clock.now()))
        now = self._clock.now()
        closing = self._closing
        if closing and now >= self._drain_until:
            return True
        if closing and not self._draining:
            _log.debug("Shutting down the sender thread of %s: it sends what is left", self._thread.name)
            self._draining = True
            self._drain_until = min(self._drain_until, self._sender.begin_close(now))
        if self._draining and not self._sender.has_work:
            return True
        self._wake_at = self._sender.run_once(now, events)
        if closing:
            self._wake_at = min(self._wake_at, self._drain_until) if self._sender.has_work else now
        return False


QueuedCallback: TypeAlias = Callable[[Any], object]


class Callbacks:
    """Any thread adds calls when it completes batches; the sender thread runs them in that order.

    No callback runs inside ``send`` or ``append_columns``, whose caller may hold a lock that the callback takes. The
    sender thread runs them with the loop's lock: callbacks that block stop the sending, as in Java, and records wait in
    buffer.memory instead of this queue.
    """

    def __init__(self, wakeup: Callable[[], None], sender: SendingThread | None = None) -> None:
        self.sender = sender
        self.unread = UnreadFailures(wakeup)
        self._wakeup = wakeup
        self._queue: deque[tuple[Sequence[QueuedCallback], object]] = deque()
        self._lock = threading.Lock()
        self._changed = Waiters()
        self._added = self._ran = 0
        self._ended = False
        self._runs = threading.Lock()
        self._threads: set[int] = set()

    @property
    def runs_here(self) -> bool:
        """Whether the calling thread is in ``run`` or ``run_here``."""
        return threading.get_ident() in self._threads

    def add(self, calls: Sequence[QueuedCallback], argument: object) -> None:
        """Queue ``call(argument)`` for each of ``calls``; after ``end``, a thread of its own runs them."""
        with self._lock:
            self._queue.append((calls, argument))
            self._added += 1
            late = self._ended
        if late:
            start_thread(threading.Thread(target=self.run, name="pykafka-late-callbacks", daemon=True))
        else:
            self._wakeup()

    def run(self) -> None:
        """Run the calls added so far. Exceptions are logged; ``sys.exit`` does not end the sender."""
        with self._runs:
            self._run()

    def _run(self) -> None:
        thread = threading.get_ident()
        self._threads.add(thread)
        try:
            for _ in range(len(self._queue)):
                calls, argument = self._queue.popleft()
                for call in calls:
                    try:
                        call(argument)
                    except BaseException:
                        _callback_log.exception("A callback of a sent record raised")
                self._ran += 1
                self._changed.notify_all()
        finally:
            self._threads.discard(thread)

    def run_here(self, call: QueuedCallback, argument: object) -> None:
        """Run one call on the calling thread, at once."""
        thread = threading.get_ident()
        nested = thread in self._threads
        self._threads.add(thread)
        try:
            call(argument)
        except Exception:
            _callback_log.exception("A callback of a sent record raised")
        finally:
            if not nested:
                self._threads.discard(thread)

    def wait(self, timeout_ms: float) -> bool:
        """Wait until the calls added so far have run; False after ``timeout_ms``."""
        if self._ran == self._added:
            return True
        last = self._added
        return self._changed.wait_for(lambda: self._ran >= last, timeout_ms)

    def end(self) -> None:
        """The sender thread runs the queue for the last time, before any other thread may run it."""
        with self._runs:
            with self._lock:
                self._ended = True
            self._run()
