"""The thread around the loop: the only place where the sender meets a clock and real sockets."""

from __future__ import annotations

import logging
import threading

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.errors import KafkaError, ProducerClosedError
from spark_kafka_sink.network.transport import Transport
from spark_kafka_sink.sender.loop import Sender

_log = logging.getLogger("spark_kafka_sink.sender")


class SenderThread:
    """Turns the loop until it is told to close. Any thread may call its methods."""

    def __init__(self, sender: Sender, transport: Transport, clock: Clock, name: str) -> None:
        self._sender = sender
        self._transport = transport
        self._clock = clock
        self._closing = threading.Event()
        self._drain_until = float("inf")
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the sender thread: a callback, which must not wait for it."""
        return threading.current_thread() is self._thread

    def wakeup(self) -> None:
        self._transport.wakeup()

    def close(self, timeout_ms: float) -> bool:
        """Send what is left for up to ``timeout_ms``, fail the rest, end. False when the thread did not end in time."""
        self._drain_until = self._clock.now() + timeout_ms
        self._closing.set()
        self.wakeup()
        if not self.is_current and self._thread.ident is not None:
            self._thread.join(min(timeout_ms + _GRACE_MS, _LONGEST_JOIN_MS) / 1000.0)
        return not self._thread.is_alive()

    def _run(self) -> None:
        error: KafkaError = ProducerClosedError("The producer was closed before these records were delivered")
        try:
            self._turn_until_closed()
        except Exception as cause:
            _log.exception("The sender thread of %s died", self._thread.name)
            error = ProducerClosedError(f"The sender thread died: {cause!r}. Open a new producer.")
            error.__cause__ = cause
        finally:
            self._sender.abort(error)
            self._sender.close()
            self._transport.shutdown()

    def _turn_until_closed(self) -> None:
        wake_at = 0.0
        closing = False
        while True:
            events = self._transport.poll(max(0.0, wake_at - self._clock.now()))
            now = self._clock.now()
            if self._closing.is_set() and now >= self._drain_until:
                return
            if self._closing.is_set() and not closing:
                closing = True
                self._drain_until = min(self._drain_until, self._sender.begin_close(now))
            if closing and not self._sender.has_work:
                return
            wake_at = self._sender.run_once(now, events)
            if self._closing.is_set():
                wake_at = min(wake_at, self._drain_until) if self._sender.has_work else now


_GRACE_MS = 2_000.0
"""How much longer than it was granted the thread may take to end: one turn, not one request."""

_LONGEST_JOIN_MS = 86_400_000.0
"""A lock's timeout holds no infinity; delivery.timeout.ms ends the wait long before."""
