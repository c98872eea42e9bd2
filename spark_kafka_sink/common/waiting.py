"""Waits that leave locks intact when an interrupt (Ctrl-C) strikes.

``threading.Condition.wait`` releases its lock meanwhile: after an interrupt in there, the ``with`` around it may unlock
a lock that another thread has acquired. Here a waiting thread holds only a lock of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Protocol

from spark_kafka_sink.common import forks
from spark_kafka_sink.common.clock import SystemClock

_LONGEST_MS: Final = 1_000.0
"""An interrupt that comes just before a thread begins to wait is noticed only when the wait ends."""

_clock = SystemClock()


class Wakeable(Protocol):
    """Something that a thread sleeps in (``Transport``), or that thread."""

    def wakeup(self) -> None:
        """Wakes that thread. Any thread may call this."""


class Sleeper:
    """One waiting thread. Its lock stays locked until ``wake``."""

    __slots__ = ("_asleep",)

    def __init__(self) -> None:
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def wait(self, ms: float) -> None:
        """May return early: the caller checks its condition again."""
        self._asleep.acquire(timeout=min(ms, _LONGEST_MS) / 1000.0)

    def wake(self) -> None:
        """Ends the wait. Called with the lock that guards the condition; a second call has no effect."""
        if self._asleep.locked():
            self._asleep.release()


def sleep(ms: float) -> None:
    """May return early: the caller looks at the clock again."""
    Sleeper().wait(ms)


class Waiters:
    """The threads that wait for changes of the state that one lock guards."""

    __slots__ = ("_generation", "_sleepers")

    def __init__(self) -> None:
        self._generation = forks.generation
        self._sleepers: set[Sleeper] = set()

    @property
    def inherited(self) -> bool:
        """Whether this process was forked since. Threads of the parent notify, and may have held the lock."""
        return self._generation != forks.generation

    def join(self) -> Sleeper:
        """A sleeper for the calling thread. Called with the lock; the caller releases it, then calls ``sleep``."""
        sleeper = Sleeper()
        self._sleepers.add(sleeper)
        return sleeper

    def sleep(self, sleeper: Sleeper, ms: float) -> None:
        """Sleep without the lock until ``notify_all``, at most ``ms``. The caller then checks its condition again."""
        try:
            sleeper.wait(ms)
        finally:
            self._sleepers.discard(sleeper)

    def wait_for(self, lock: AbstractContextManager[object], condition: Callable[[], bool], ms: float) -> bool:
        """Wait without the lock until ``condition``, called with the lock, is true. False after ``ms``.

        In the child of a fork it raises ``forks.inherited_error()`` unless the condition is true.
        """
        if self.inherited:
            if condition():
                return True
            raise forks.inherited_error()
        deadline = _clock.now() + ms
        while True:
            with lock:
                if condition():
                    return True
                remaining = deadline - _clock.now()
                if remaining <= 0:
                    return False
                sleeper = self.join()
            self.sleep(sleeper, remaining)

    def notify_all(self) -> None:
        """Wakes all waiting threads. Called with the lock; a second call has no effect."""
        if self._sleepers:
            for sleeper in tuple(self._sleepers):
                sleeper.wake()
            self._sleepers.clear()
