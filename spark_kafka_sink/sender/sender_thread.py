"""``SenderThread``: runs the sender's loop with a clock and real sockets (Java: ``Sender.run``, ``KafkaThread``)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from spark_kafka_sink.clock import NEVER, Clock
from spark_kafka_sink.errors import KafkaError, ProducerClosedError
from spark_kafka_sink.network.transport import Transport
from spark_kafka_sink.sender.callbacks import Callbacks
from spark_kafka_sink.sender.sender import Sender

_log = logging.getLogger("spark_kafka_sink.sender")

_IDLE_MS = 5.0
"""How long the thread stays idle after a caller ran the loop; a response that arrives meanwhile waits no longer."""

_MAX_FAILURES = 20
_PAUSE_MS = 100.0
"""After a failed iteration: a permanent failure fills the log slowly."""

_GRACE_MS = 2_000.0
"""``close`` waits this much longer than its timeout: enough for the running iteration, not for a request."""

_MAX_JOIN_MS = 86_400_000.0
"""A lock's timeout cannot be infinite; delivery.timeout.ms ends the wait earlier."""


class SenderThread:
    """Any thread may call its methods.

    A busy caller runs the loop inline while the thread is idle: only one of the two can hold the GIL, and each switch
    costs both CPU. ``_loop_lock`` guards the loop, the transport and ``_wake_at``. Only the thread runs ``callbacks``.
    """

    def __init__(self, transport: Transport, clock: Clock, name: str) -> None:
        self._transport = transport
        self._clock = clock
        self._loop_lock = threading.Lock()
        self._inline_thread: int | None = None
        self._wake_at = 0.0
        self._idle_until = self._busy_until = 0.0
        self._resume = threading.Event()
        self._failure: BaseException | None = None
        self._failures = self._completed = 0
        self._closing = threading.Event()
        self._drain_until = NEVER
        self._draining = False
        self._sender: Sender | None = None
        self.callbacks = Callbacks(self._callback_added)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, sender: Sender) -> None:
        self._sender = sender
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the calling thread runs the loop or a callback: it must not wait for either."""
        return threading.get_ident() in (self._inline_thread, self._thread.ident) or self.callbacks.runs_here

    def wakeup(self) -> None:
        """End idling and the wait for the network: a caller is about to wait for the sender."""
        self._idle_until = 0.0
        self._resume.set()
        self._transport.wakeup()

    def wakeup_poll(self) -> None:
        """Batches are ready: end the poll for network events. An idle thread stays idle."""
        self._transport.wakeup()

    @contextmanager
    def run_inline(self) -> Iterator[None]:
        """Wraps an append. If it follows another within ``_IDLE_MS``, the caller is busy: after the block it runs the
        loop on its own thread.
        """
        now = self._clock.now()
        inline = now < self._busy_until and not (self._failures or self.is_current) and self.is_alive()
        if inline:
            self._idle_until = now + _IDLE_MS
        yield
        if inline:
            self._run_loop_inline()
        self._busy_until = self._clock.now() + _IDLE_MS

    def close(self, timeout_ms: float) -> bool:
        """Send queued batches for up to ``timeout_ms``, fail the rest, end. False when the thread did not end."""
        self._drain_until = self._clock.now() + timeout_ms
        self._closing.set()
        self.wakeup()
        if not self.is_current and self._thread.ident is not None:
            self._thread.join(min(timeout_ms + _GRACE_MS, _MAX_JOIN_MS) / 1000.0)
        return not self._thread.is_alive()

    def _run_loop_inline(self) -> None:
        """Iterate until the network has no more events. The thread stays idle for a while afterwards.

        An interrupt (Ctrl-C) in here closes the producer: it may leave the loop's state inconsistent.
        """
        # One call of C acquires the lock and notes it: an interrupt cannot strike between the two.
        held: list[bool] = []
        try:
            held.extend(map(self._loop_lock.acquire, (False,)))
            if not held[-1]:
                self._transport.wakeup()
                held.extend(map(self._loop_lock.acquire, (True,), (_IDLE_MS / 1000.0,)))
                if not held[-1]:
                    return  # the thread runs slow callbacks
            self._inline_thread = threading.get_ident()
            while not self._closing.is_set() and self._failure is None:
                events = self._transport.poll(0.0)
                self._idle_until = self._clock.now() + _IDLE_MS
                self._wake_at = self._loop.run_once(self._clock.now(), events)
                if not events:
                    break
        except Exception as error:
            self._iteration_failed(error)
            self.wakeup()
        except BaseException as error:
            self._failure = error
            self.wakeup()
            raise
        finally:
            if any(held):
                self._inline_thread = None
                self._loop_lock.release()
            if self.callbacks.pending:
                self._resume.set()

    def _callback_added(self) -> None:
        """The thread checks the queue after each iteration; an inline run resumes it at its end."""
        if threading.get_ident() not in (self._inline_thread, self._thread.ident):
            self._resume.set()
            self._transport.wakeup()

    def _iteration_failed(self, error: Exception) -> None:
        """Continue, as Java's ``Sender.run``; end after ``_MAX_FAILURES`` in a row without a completed batch."""
        if self._completed != self._loop.completed:
            self._completed = self._loop.completed
            self._failures = 0
        self._failures += 1
        self._wake_at = self._clock.now()
        if self._failures >= _MAX_FAILURES:
            self._failure = error
        else:
            _log.error("Uncaught error in the sender thread of %s; it goes on", self._thread.name, exc_info=error)

    @property
    def _loop(self) -> Sender:
        assert self._sender is not None, "not started"
        return self._sender

    def _run(self) -> None:
        error: KafkaError = ProducerClosedError("The producer was closed before these records were delivered")
        try:
            self._run_until_closed()
        except BaseException as cause:
            self._failure = cause
            reason = f"gave up after {self._failures} failed iterations in a row" if self._failures else "died"
            _log.exception("The sender thread of %s %s", self._thread.name, reason)
            error = ProducerClosedError(f"The sender thread {reason}: {cause!r}. Open a new producer.")
            error.__cause__ = cause
        finally:
            try:
                with self._loop_lock:
                    self._loop.abort(error)
                    self._loop.close()
                    self._transport.shutdown()
            finally:
                self.callbacks.end()

    def _run_until_closed(self) -> None:
        ended = False
        while not ended:
            self._idle()
            with self._loop_lock:
                self.callbacks.run()
                if self._clock.now() < self._idle_until:
                    continue
                if self._failure is not None:
                    raise self._failure
                try:
                    ended = self._run_once()
                    self._failures = 0
                except Exception as error:
                    self._iteration_failed(error)
            if self._failures:
                self._closing.wait(_PAUSE_MS / 1000.0)

    def _run_once(self) -> bool:
        """Wait for the network and iterate once; True when the producer is closed and has no work left."""
        events = self._transport.poll(max(0.0, self._wake_at - self._clock.now()))
        now = self._clock.now()
        closing = self._closing.is_set()
        if closing and now >= self._drain_until:
            return True
        if closing and not self._draining:
            self._draining = True
            self._drain_until = min(self._drain_until, self._loop.begin_close(now))
        if self._draining and not self._loop.has_work:
            return True
        self._wake_at = self._loop.run_once(now, events)
        if closing:
            self._wake_at = min(self._wake_at, self._drain_until) if self._loop.has_work else now
        return False

    def _idle(self) -> None:
        """Wait while a caller runs the loop inline, unless callbacks are pending."""
        while (left := self._idle_until - self._clock.now()) > 0 and not self._closing.is_set():
            if self.callbacks.pending:
                return
            self._resume.wait(left / 1000.0)
            self._resume.clear()
