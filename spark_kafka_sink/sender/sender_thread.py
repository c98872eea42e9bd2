"""The thread around the loop: the only place where the sender meets a clock and real sockets."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.errors import KafkaError, ProducerClosedError
from spark_kafka_sink.network.transport import Transport
from spark_kafka_sink.sender.callbacks import Callbacks
from spark_kafka_sink.sender.sender import Sender

_log = logging.getLogger("spark_kafka_sink.sender")


class SenderThread:
    """Turns the loop until it is told to close. Any thread may call its methods.

    A busy caller runs the loop inline (``run_inline``) while the thread is idle: the interpreter runs one of the two at
    a time anyway, and each switch costs both. The thread that runs the loop holds ``_turning``, the lock of the loop,
    the transport and ``_wake_at``. ``callbacks`` are the thread's alone.
    """

    def __init__(self, transport: Transport, clock: Clock, name: str) -> None:
        self._transport = transport
        self._clock = clock
        self._turning = threading.Lock()
        self._turner: int | None = None
        self._wake_at = 0.0
        self._rest_until = self._swing_until = 0.0
        self._resume = threading.Event()
        self._failure: BaseException | None = None
        self._failed_turns = self._completed = 0
        self._closing = threading.Event()
        self._drain_until = float("inf")
        self._draining = False
        self._sender: Sender | None = None
        self.callbacks = Callbacks(self._callbacks_added)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, sender: Sender) -> None:
        self._sender = sender
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller is in a callback, or in a turn of the loop: it must not wait for either."""
        return threading.get_ident() in (self._turner, self._thread.ident) or self.callbacks.runs_here

    def wakeup(self) -> None:
        """The thread has something to do, at once: somebody is going to wait for it."""
        self._rest_until = 0.0
        self._resume.set()
        self._transport.wakeup()

    def wakeup_poll(self) -> None:
        """Batches are ready: end the poll for network events. An idle thread stays idle."""
        self._transport.wakeup()

    @contextmanager
    def run_inline(self) -> Iterator[None]:
        """Around a caller's work that the loop has to send.

        Work that follows other work within ``_REST_MS`` is a caller in full swing: what is ready is then sent, and what
        has come is taken in, on the caller's thread at the end of the block.
        """
        now = self._clock.now()
        steers = now < self._swing_until and not (self._failed_turns or self.is_current) and self.is_alive()
        if steers:
            self._rest_until = now + _REST_MS
        yield
        if steers:
            self._turn_here()
        self._swing_until = self._clock.now() + _REST_MS

    def close(self, timeout_ms: float) -> bool:
        """Send what is left for up to ``timeout_ms``, fail the rest, end. False when the thread did not end in time."""
        self._drain_until = self._clock.now() + timeout_ms
        self._closing.set()
        self.wakeup()
        if not self.is_current and self._thread.ident is not None:
            self._thread.join(min(timeout_ms + _GRACE_MS, _LONGEST_JOIN_MS) / 1000.0)
        return not self._thread.is_alive()

    def _turn_here(self) -> None:
        """Turn until the network has nothing more to say. The thread rests for a while after that.

        An interrupt (Ctrl-C) in here closes the producer: the loop may be halfway through anything.
        """
        # Acquired and noted in one call of C: between two an interrupt could strike, and the lock stay locked.
        held: list[bool] = []
        try:
            held.extend(map(self._turning.acquire, (False,)))
            if not held[-1]:
                self._transport.wakeup()
                held.extend(map(self._turning.acquire, (True,), (_REST_MS / 1000.0,)))
                if not held[-1]:
                    return  # in callbacks that take their time
            self._turner = threading.get_ident()
            while not self._closing.is_set() and self._failure is None:
                events = self._transport.poll(0.0)
                self._rest_until = self._clock.now() + _REST_MS
                self._wake_at = self._loop.run_once(self._clock.now(), events)
                if not events:
                    break
        except Exception as error:
            self._turn_failed(error)
            self.wakeup()
        except BaseException as error:
            self._failure = error
            self.wakeup()
            raise
        finally:
            if any(held):
                self._turner = None
                self._turning.release()
            if self.callbacks.pending:
                self._resume.set()

    def _callbacks_added(self) -> None:
        """The thread looks for them after each turn; a caller wakes it after its own."""
        if threading.get_ident() not in (self._turner, self._thread.ident):
            self._resume.set()
            self._transport.wakeup()

    def _turn_failed(self, error: Exception) -> None:
        """Go on (Java: ``Sender.run``), unless turns fail one after the other and complete no batch."""
        if self._completed != self._loop.completed:
            self._completed = self._loop.completed
            self._failed_turns = 0
        self._failed_turns += 1
        self._wake_at = self._clock.now()
        if self._failed_turns >= _MOST_FAILED_TURNS:
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
            self._turn_until_closed()
        except BaseException as cause:
            self._failure = cause
            turns = f"gave up after {self._failed_turns} failed turns in a row" if self._failed_turns else "died"
            _log.exception("The sender thread of %s %s", self._thread.name, turns)
            error = ProducerClosedError(f"The sender thread {turns}: {cause!r}. Open a new producer.")
            error.__cause__ = cause
        finally:
            try:
                with self._turning:
                    self._loop.abort(error)
                    self._loop.close()
                    self._transport.shutdown()
            finally:
                self.callbacks.end()

    def _turn_until_closed(self) -> None:
        ended = False
        while not ended:
            self._rest()
            with self._turning:
                self.callbacks.run()
                if self._clock.now() < self._rest_until:
                    continue
                if self._failure is not None:
                    raise self._failure
                try:
                    ended = self._turn()
                    self._failed_turns = 0
                except Exception as error:
                    self._turn_failed(error)
            if self._failed_turns:
                self._closing.wait(_PAUSE_MS / 1000.0)

    def _turn(self) -> bool:
        """Wait for the network and turn once; True when the producer is closed and nothing is left to send."""
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

    def _rest(self) -> None:
        """Leave the loop to the caller who steers, unless callbacks are to be run."""
        while (left := self._rest_until - self._clock.now()) > 0 and not self._closing.is_set():
            if self.callbacks.pending:
                return
            self._resume.wait(left / 1000.0)
            self._resume.clear()


_REST_MS = 5.0
"""How long the thread rests after a caller's last turn: what comes in then waits as long."""

_MOST_FAILED_TURNS = 20
_PAUSE_MS = 100.0
"""After a failed turn, so that what fails each time does not fill the log at the speed of the network."""

_GRACE_MS = 2_000.0
"""How much longer than it was granted the thread may take to end: one turn, not one request."""

_LONGEST_JOIN_MS = 86_400_000.0
"""A lock's timeout holds no infinity; delivery.timeout.ms ends the wait long before."""
