"""``CallerCalls``: requests that callers wait for, made by the sender thread on the producer's connections."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Collection
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
    ``closed_by``: the error of ``close``.
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
        self.closed_by: KafkaError | None = None
        self.busy = False

    # Callers

    @property
    def snapshot(self) -> ClusterSnapshot:
        return self._metadata.snapshot

    def now(self) -> float:
        return self._clock.now()

    def call(self, call: Call, deadline: float) -> Any:
        waits_ms = max(0.0, deadline - self._clock.now())
        self.run((call,), deadline)
        if call.end is not None:
            if call.end.error is not None:
                raise call.end.error.with_traceback(None)
            return call.end.body
        if self.closed_by is not None:
            raise self.closed_by.with_traceback(None)
        raise timeout_error(call, waits_ms)

    def run(self, calls: Collection[Call], deadline: float) -> None:
        """Returns when all calls have ended, or the sender has, or the deadline has passed; those that have not ended
        then are given up. Every 10 s a warning says what is waited for.
        """
        began = self._clock.now()
        for call in calls:
            call.on_end = self._ended
        try:
            self._started.extend(calls)
            self._changed_by_caller()
            while (left := deadline - self._clock.now()) > 0 and not self._wait(calls, min(left, STALL_MS)):
                if left > STALL_MS:
                    oldest = next(call for call in calls if call.end is None)
                    now = self._clock.now()
                    _log.warning("%s", self._calls.stalled(oldest, now - began, now))
        finally:
            if unended := [call for call in calls if call.end is None]:
                self._calls.note_obstacles(unended, self._clock.now())
                self._given_up.extend(unended)
                self._changed_by_caller()

    def _wait(self, calls: Collection[Call], ms: float) -> bool:
        """False if neither all calls nor the sender have ended by then."""
        return self._changed.wait_for(
            self._lock, lambda: self.closed_by is not None or all(call.end is not None for call in calls), ms
        )

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
            self.closed_by = error
            self._changed.notify_all()
