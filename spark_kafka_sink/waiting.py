"""Waiting for a change of what a lock guards, so that an interrupt (Ctrl-C) leaves that lock alone.

A ``Condition`` lets go of its lock while it waits: an interrupt inside of that, and the ``with`` around it unlocks what
another thread has locked meanwhile. Here nobody holds any lock while waiting but one of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from spark_kafka_sink.clock import SystemClock

_LONGEST_MS: Final = 60_000.0  # a lock's timeout holds no infinity
_clock = SystemClock()


class Sleeper:
    """Waits with a lock of its own, which stays locked until then."""

    __slots__ = ("_asleep",)

    def __init__(self) -> None:
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def wait(self, ms: float) -> None:
        """May return before; whoever calls looks again."""
        self._asleep.acquire(timeout=min(ms, _LONGEST_MS) / 1000.0)

    def wake(self) -> None:
        """Under the lock that guards what is waited for. May be done twice."""
        if self._asleep.locked():
            self._asleep.release()


class Waiters:
    """All who wait for what one lock guards."""

    __slots__ = ("_sleepers",)

    def __init__(self) -> None:
        self._sleepers: set[Sleeper] = set()

    def join(self) -> Sleeper:
        """Under the lock, which then is left to ``sleep``."""
        sleeper = Sleeper()
        self._sleepers.add(sleeper)
        return sleeper

    def sleep(self, sleeper: Sleeper, ms: float) -> None:
        """Without the lock, until ``notify_all`` or for so long; whoever calls looks again."""
        try:
            sleeper.wait(ms)
        finally:
            self._sleepers.discard(sleeper)

    def wait_for(self, lock: AbstractContextManager[object], happened: Callable[[], bool], ms: float) -> bool:
        """Without the lock; ``happened`` is asked under it. False when the time is up."""
        deadline = _clock.now() + ms
        while True:
            with lock:
                if happened():
                    return True
                remaining = deadline - _clock.now()
                if remaining <= 0:
                    return False
                sleeper = self.join()
            self.sleep(sleeper, remaining)

    def notify_all(self) -> None:
        """Under the lock. May be done twice."""
        if self._sleepers:
            for sleeper in tuple(self._sleepers):
                sleeper.wake()
            self._sleepers.clear()
