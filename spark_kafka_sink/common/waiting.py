"""Waits that leave locks intact when an interrupt (Ctrl-C) strikes.

``threading.Condition.wait`` releases its lock meanwhile: after an interrupt in there, the ``with`` around it may unlock
a lock that another thread has acquired. Here a waiting thread holds only a lock of its own, so a signal handler may
raise in a wait, or make another call of the same producer.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from spark_kafka_sink.common import forks
from spark_kafka_sink.common.clock import NEVER, SystemClock
from spark_kafka_sink.errors import KafkaError, own_copy

_MAX_SLEEP_MS: Final = 1_000.0
"""An interrupt that comes just before a thread begins to wait is noticed only when the wait ends."""

_clock = SystemClock()


class Wakeable(Protocol):
    """Something that a thread sleeps in (``Selector``), or that thread."""

    def wakeup(self) -> None:
        """Wakes that thread. Any thread may call this."""


class SendingThread(Wakeable, Protocol):
    """The sender thread of a producer."""

    def obstacle(self) -> KafkaError | None:
        """Why a wait of the calling thread for this one would not end; None if it would."""


class CallersLoop:
    """Stands for a ``SendingThread`` where there is none: who waits runs the loop."""

    def wakeup(self) -> None:
        pass

    def obstacle(self) -> KafkaError | None:
        return None

    def run_until(self, condition: Callable[[], bool], ms: float) -> bool:
        """False if the condition is not true after ``ms``."""
        raise NotImplementedError


class Sleeper:
    """One waiting thread. Its lock stays locked until ``wake``."""

    __slots__ = ("_asleep",)

    def __init__(self) -> None:
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def wait(self, ms: float) -> None:
        """May return early: the caller checks its condition again."""
        self._asleep.acquire(timeout=min(ms, _MAX_SLEEP_MS) / 1000.0)

    def wake(self) -> None:
        """Ends the wait. Called once for each wait."""
        if self._asleep.locked():
            self._asleep.release()


def sleep(ms: float) -> None:
    """May return early: the caller looks at the clock again."""
    Sleeper().wait(ms)


def start_thread(thread: threading.Thread) -> None:
    """Raises ``RuntimeError`` as the program ends, where CPython 3.11 waits forever for a thread that never runs."""
    if sys.is_finalizing():
        raise RuntimeError("The program ends, and Python starts no more threads")
    thread.start()


class Waiters:
    """The threads that wait until something is true. ``sender`` makes it true; None: any thread.

    It takes no lock. Waiting thread: join, then read the condition. Other thread: make it true, then wake. One of them
    sees the other.
    """

    __slots__ = ("_asleep", "_generation", "sender")

    def __init__(self, sender: SendingThread | None = None) -> None:
        self.sender = sender
        self._generation = forks.generation
        self._asleep: list[Sleeper] = []

    @property
    def alone(self) -> bool:
        """Whether the threads that notify are gone: after a fork, or as Python ends."""
        return self._generation != forks.generation or sys.is_finalizing()

    def obstacle(self) -> KafkaError | None:
        """Why a wait of the calling thread would not end; None if it would. Called before every wait."""
        if self._generation != forks.generation:
            return forks.inherited_error()
        return None if self.sender is None else self.sender.obstacle()

    @staticmethod
    def now() -> float:
        """The time of ``wait_for`` (monotonic ms)."""
        return _clock.now()

    def check(self) -> None:
        """Raises the ``obstacle`` of the calling thread, if it has one."""
        if (obstacle := self.obstacle()) is not None:
            raise obstacle

    def wake_sender(self) -> None:
        """There is something for the loop to do."""
        if self.sender is not None:
            self.sender.wakeup()

    def wait_for(self, condition: Callable[[], bool], ms: float | None) -> bool:
        """Wait until ``condition`` is true; False after ``ms``, None: never.

        Raises the ``obstacle`` unless the condition is true. The caller runs a ``CallersLoop`` meanwhile.
        """
        if condition():
            return True
        if self.alone:
            self.check()
        if isinstance(self.sender, CallersLoop):
            return self.sender.run_until(condition, NEVER if ms is None else ms)
        deadline = NEVER if ms is None else _clock.now() + ms
        sleeper = Sleeper()
        while True:
            obstacle = self.obstacle()  # read first: the sender may make the condition true and end
            try:
                self._asleep.append(sleeper)
                if condition():
                    return True
                remaining = deadline - _clock.now()
                if remaining <= 0:
                    return False
                if obstacle is not None:
                    raise obstacle
                sleeper.wait(remaining)
            finally:
                with suppress(ValueError):  # it was woken
                    self._asleep.remove(sleeper)

    def notify_all(self) -> None:
        """Wakes all waiting threads. Any thread may call it."""
        for _ in range(len(self._asleep)):  # a thread that joins again meanwhile has read its condition
            with suppress(IndexError):  # another thread has woken the last one
                self._asleep.pop().wake()


class Outcome:
    """The result or error of a call that the sender thread completes, for the caller that waits for it."""

    __slots__ = ("_changed", "_ends")

    def __init__(self, sender: SendingThread | None = None) -> None:
        self._changed = Waiters(sender)
        self._ends: list[tuple[object, Exception | None]] = []

    def complete(self, result: object, error: Exception | None) -> None:
        """Any thread; a second call has no effect."""
        self._ends.append((result, error))
        self._changed.notify_all()

    def wait(self, ms: float) -> bool:
        """False if it is not complete by then. Raises the ``obstacle`` of the calling thread."""
        return self._changed.wait_for(lambda: bool(self._ends), ms)

    def value(self) -> object:
        """The result, once ``wait`` has returned True; raises the error."""
        result, error = self._ends[0]
        if error is not None:
            raise own_copy(error)
        return result
