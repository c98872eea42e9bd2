"""``SenderThread``: the sender thread. It runs ``Sender`` with a clock and real sockets (Java: ``Sender.run``,
``KafkaThread``), then the callbacks; tests run both by hand.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import Final

from spark_kafka_sink.common.clock import NEVER, Clock
from spark_kafka_sink.common.waiting import Waiters, sleep, start_thread
from spark_kafka_sink.errors import IllegalStateError, ProducerClosedError, own_copy
from spark_kafka_sink.network.selector import Event, Selector
from spark_kafka_sink.producer.callbacks import Callbacks
from spark_kafka_sink.producer.sender import Sender

_log = logging.getLogger("spark_kafka_sink.sender")

_MAX_FAILURES = 20
_PAUSE_MS = 100.0
"""The pause after a failed iteration, so that a permanent failure fills the log slowly."""

_LOOK_MS = 1_000.0

_GRACE_MS = 2_000.0
"""``close`` waits this much longer than its timeout: enough for the running iteration, not for a request."""


_threads: Final[set[int]] = set()
"""The sender threads of all producers."""


def on_sender_thread() -> bool:
    """Whether the calling thread is the sender thread of any producer. Such a thread never waits for another one's end,
    because that one might be waiting for it."""
    return threading.get_ident() in _threads


class SenderThread:
    """The thread that runs ``Sender``. Any thread may call its methods. Only the thread itself runs the loop and
    ``callbacks``, and uses the transport.

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
        self._sender, self._core = sender, core  # kept until the thread ends
        start_thread(self._thread)

    def is_alive(self) -> bool:
        """Whether the thread has started and not ended.

        Not ``Thread.is_alive``, which in CPython 3.11 and 3.12 is False after an interrupted ``join``.
        """
        return self._thread.ident is not None and not self._ended

    @property
    def is_current(self) -> bool:
        """Whether the calling thread runs the loop or a callback, and so must not wait for either."""
        return threading.get_ident() == self._thread.ident or self.callbacks.runs_here

    def obstacle(self) -> ProducerClosedError | IllegalStateError | None:
        """Why a wait for this thread would not end (``SendingThread``): a ``ProducerClosedError`` if it has ended."""
        if sys.is_finalizing():
            return ProducerClosedError(
                "The program is ending, and Python has stopped the sender thread. Flush or close the producer earlier."
            )
        if self._ended or not self.is_current:
            return own_copy(self._ended_by) if self._ended else None
        return IllegalStateError(
            "This call in a callback would wait for itself, because the sender thread runs both. Make it on another "
            "thread. send does not wait if the topic was used before and buffer.memory has room."
        )

    def wakeup(self) -> None:
        """End the wait for network events: there is something to send, or a caller is about to wait for the sender."""
        self._transport.wakeup()

    def close(self, timeout_ms: float) -> None:
        """Send queued batches for up to ``timeout_ms``, fail the rest, end."""
        self._drain_until = min(self._drain_until, self._clock.now() + timeout_ms)
        self._closing = True
        self.wakeup()
        if (
            not (self.is_current or on_sender_thread())
            and self.is_alive()
            and self.waiters.wait_for(lambda: self._ended, timeout_ms + _GRACE_MS)
        ):
            self._thread.join(_GRACE_MS / 1000.0)

    def after_fork_in_child(self) -> None:
        """Called in the child of a fork. The copy of a thread whose callback or partitioner forked must not continue,
        and finalizers must not close the parent's sockets.
        """
        self._inherited = True
        self._parents = dict(self._sender.__dict__)
        self._sender.__dict__.clear()

    def _callback_added(self) -> None:
        """The thread checks the queue after each iteration."""
        if threading.get_ident() != self._thread.ident:
            self._transport.wakeup()

    def _iteration_failed(self, error: Exception) -> None:
        """Continue, as Java's ``Sender.run``; end after ``_MAX_FAILURES`` in a row without a completed batch."""
        if self._inherited:
            return
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
        _threads.add(threading.get_ident())
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
        callbacks = self.callbacks
        closing = self._abort, self._sender.client.close, self._transport.shutdown, callbacks.end
        for step in (*closing, callbacks.warn_of_unheard):
            try:
                step()
            except BaseException:
                _log.exception("Uncaught error while the sender thread of %s ends", self._thread.name)
        _log.debug("The sender thread of %s has ended", self._thread.name)
        _threads.discard(threading.get_ident())
        self._ended = True
        self.waiters.notify_all()

    def _abort(self) -> None:
        self._sender.abort(self._ended_by)

    def _run_until_closed(self) -> None:
        ended = False
        while not ended:
            self.callbacks.run()
            self.callbacks.warn_of_unheard()
            if self._inherited:
                return
            try:
                ended = self._run_once()
                self._failures = 0
            except Exception as error:
                self._iteration_failed(error)
                sleep(_PAUSE_MS)

    def _sleep(self) -> list[Event]:
        """Waits for the network or a wake-up. A caller may be interrupted between its put and the wake-up, so this
        looks at the inbox at least once a second.
        """
        inbox = self._sender.intake.inbox
        inbox.alert = self._sender.intake.wakes_on_records or inbox.ended_by is not None
        try:  # after `alert` is set: an entry that was put before is seen here
            wait_ms = 0.0 if inbox.entries else min(self._wake_at - self._clock.now(), _LOOK_MS)
            return self._transport.poll(max(0.0, wait_ms))
        finally:
            inbox.alert = inbox.ended_by is not None

    def _run_once(self) -> bool:
        """Wait for the network and iterate once; True when the producer is closed and has no work left."""
        events = self._sleep()
        closing = self._closing  # read before the time, so that a close(0) that is seen ends here
        now = self._clock.now()
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
