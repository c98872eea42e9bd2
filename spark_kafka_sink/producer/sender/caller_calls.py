"""``CallerCalls``: requests that callers wait for, made by the sender thread on the producer's connections."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Any

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.model import ClusterSnapshot
from spark_kafka_sink.common.waiting import SendingThread, Waiters, sleep
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.network.calls import STALL_MS, Call, CallEnd, Calls, timeout_error
from spark_kafka_sink.network.metadata import Metadata

_log = logging.getLogger("spark_kafka_sink.network")


class CallerCalls:
    """``BlockingCalls`` for any thread but the sender's, which runs ``advance`` while ``busy``, and ``close`` once.

    ``busy``: callers set it after they have added a call; only ``advance`` clears it, before it looks at the calls.
    """

    def __init__(self, calls: Calls, metadata: Metadata, clock: Clock, sender: SendingThread) -> None:
        self._calls = calls
        self._metadata = metadata
        self._clock = clock
        self._sender = sender
        self._lock = threading.Lock()
        self._changed = Waiters(sender)
        self._started: deque[Call] = deque()
        self._given_up: deque[Call] = deque()
        self._closed_by: KafkaError | None = None
        self.busy = False

    # Callers

    @property
    def snapshot(self) -> ClusterSnapshot:
        return self._metadata.snapshot

    def now(self) -> float:
        return self._clock.now()

    def call(self, call: Call, deadline: float) -> Any:
        """Waits for the call. Logs every 10 s what it waits for, and gives the call up at the deadline."""
        began = self._clock.now()
        call.on_end = self._ended
        try:
            self._started.append(call)
            self._changed_by_caller()
            while (left := deadline - self._clock.now()) > 0 and not self._wait(call, min(left, STALL_MS)):
                if left > STALL_MS:
                    now = self._clock.now()
                    _log.warning("%s", self._calls.stalled(call, now - began, now))
        finally:
            if call.end is None:
                self._calls.note_obstacles((call,), self._clock.now())
                self._given_up.append(call)
                self._changed_by_caller()
        if call.end is not None:
            if call.end.error is not None:
                raise call.end.error.with_traceback(None)
            return call.end.body
        if self._closed_by is not None:
            raise self._closed_by.with_traceback(None)
        raise timeout_error(call, deadline - began)

    def _wait(self, call: Call, ms: float) -> bool:
        """False if neither the call nor the sender has ended by then."""
        return self._changed.wait_for(self._lock, lambda: self._closed_by is not None or call.end is not None, ms)

    def _changed_by_caller(self) -> None:
        self.busy = True
        self._sender.wakeup()

    def refresh(self, deadline: float) -> None:
        self._metadata.await_update(deadline - self._clock.now(), self._sender.wakeup)

    def pause(self, ms: float) -> None:
        until = self._clock.now() + ms
        while (left := until - self._clock.now()) > 0:
            sleep(left)

    def _ended(self, _end: CallEnd) -> None:
        with self._lock:
            self._changed.notify_all()

    # The sender thread

    @property
    def has_unended(self) -> bool:
        return self.busy or self._calls.busy

    def advance(self, now: float) -> float:
        """Send what can be sent; returns when to call it again at the latest (monotonic ms)."""
        self.busy = False
        try:
            while self._started:
                call = self._started.popleft()
                if not call.stopped:
                    self._calls.start(call)
            while self._given_up:
                self._calls.stop((self._given_up.popleft(),))
            return self._calls.advance(now)
        finally:
            if self._calls.busy:
                self.busy = True

    def close(self, error: KafkaError) -> None:
        """Every call, now and later, raises ``error``."""
        with self._lock:
            self._closed_by = error
            self._changed.notify_all()
