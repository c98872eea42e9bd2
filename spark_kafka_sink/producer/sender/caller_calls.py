"""``CallerCalls``: requests that callers wait for, made by the sender thread on the producer's connections."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Any

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.model import ClusterSnapshot
from spark_kafka_sink.common.waiting import Waiters, sleep
from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError
from spark_kafka_sink.network.calls import STALL_MS, Call, CallEnd, Calls, timeout_error
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.producer.sender.topic_limit_lookup import Wakeable

_log = logging.getLogger("spark_kafka_sink.network")


class CallerCalls:
    """``BlockingCalls`` for any thread but the sender's, which runs ``advance`` while ``busy``, and ``close`` once.

    ``busy``: callers set it after they have added a call; only ``advance`` clears it, before it looks at the calls.
    """

    def __init__(self, calls: Calls, metadata: Metadata, clock: Clock, sender: Wakeable) -> None:
        self._calls = calls
        self._metadata = metadata
        self._clock = clock
        self._sender = sender
        self._lock = threading.Lock()
        self._changed = Waiters()
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
        began = self._clock.now()
        call.on_end = self._ended
        try:
            self._started.append(call)
            self.busy = True
            self._sender.wakeup()
            self._wait(call, began, deadline)
        finally:
            if call.end is None:
                self._given_up.append(call)
                self.busy = True
                self._sender.wakeup()
        if call.end is not None:
            if call.end.error is not None:
                raise call.end.error.with_traceback(None)
            return call.end.body
        if self._closed_by is not None:
            raise self._closed_by.with_traceback(None)
        if not self.snapshot.nodes and (lost := self._metadata.last_connection_error() or call.last_error):
            raise KafkaTimeoutError(f"No broker of kafka.bootstrap.servers has responded: {lost}") from lost
        raise timeout_error(call, max(0.0, deadline - began))

    def _wait(self, call: Call, began: float, deadline: float) -> None:
        """Until the call ends, the sender ends or the deadline. Every 10 s a warning says what is waited for."""
        while (left := deadline - self._clock.now()) > 0:
            if self._changed.wait_for(
                self._lock, lambda: call.end is not None or self._closed_by is not None, min(left, STALL_MS)
            ):
                return
            if left > STALL_MS:
                _log.warning("%s", self._calls.stalled(call, self._clock.now() - began))

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
