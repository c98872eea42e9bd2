"""Waits that leave locks intact when an interrupt (Ctrl-C) strikes.

``threading.Condition.wait`` releases its lock meanwhile: after an interrupt in there, the ``with`` around it may unlock
a lock that another thread has acquired. Here a waiting thread holds only a lock of its own.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Protocol

from spark_kafka_sink.common import interrupts
from spark_kafka_sink.common.clock import NEVER, SystemClock
from spark_kafka_sink.common.interrupts import interruptible, uninterrupted
from spark_kafka_sink.errors import KafkaError, own_copy

_LONGEST_MS: Final = 1_000.0
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
        with interruptible():
            self._asleep.acquire(timeout=min(ms, _LONGEST_MS) / 1000.0)

    def wake(self) -> None:
        """Ends the wait. Called with the lock that guards the condition; a second call has no effect."""
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
    """The threads that wait for changes of the state that one lock guards; ``sender`` makes these, None: any thread."""

    __slots__ = ("_generation", "_sleepers", "sender")

    def __init__(self, sender: SendingThread | None = None) -> None:
        self.sender = sender
        self._generation = interrupts.generation
        self._sleepers: set[Sleeper] = set()

    @property
    def alone(self) -> bool:
        """Whether the threads that notify are gone, and may have held the lock: after a fork, or as Python ends."""
        return self._generation != interrupts.generation or sys.is_finalizing()

    def obstacle(self) -> KafkaError | None:
        """Why a wait of the calling thread would not end; None if it would. Called before every wait."""
        if self._generation != interrupts.generation:
            return interrupts.inherited_error()
        return None if self.sender is None else self.sender.obstacle()

    def check(self) -> None:
        """Raises the ``obstacle`` of the calling thread, if it has one."""
        if (obstacle := self.obstacle()) is not None:
            raise obstacle

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

    def wake_sender(self) -> None:
        """There is something for the loop to do."""
        if self.sender is not None:
            self.sender.wakeup()

    def wait_for(self, lock: AbstractContextManager[object], condition: Callable[[], bool], ms: float | None) -> bool:
        """Wait without the lock until ``condition``, called with the lock, is true. False after ``ms``; None: never.

        Raises the ``obstacle`` unless the condition is true. The caller runs a ``CallersLoop`` meanwhile, which is for
        one thread and needs no lock.
        """
        if self.alone:
            if condition():
                return True
            self.check()
        if isinstance(self.sender, CallersLoop):
            return self.sender.run_until(condition, NEVER if ms is None else ms)
        deadline = NEVER if ms is None else _clock.now() + ms
        while True:
            obstacle = self.obstacle()  # read first: the sender may make the condition true and end
            with uninterrupted(), lock:  # a signal handler that waits for the sender thread would keep the lock from it
                if condition():
                    return True
                remaining = deadline - _clock.now()
                if remaining <= 0:
                    return False
                if obstacle is not None:
                    raise obstacle
                sleeper = self.join()
            self.sleep(sleeper, remaining)

    def notify_all(self) -> None:
        """Wakes all waiting threads. Called with the lock; a second call has no effect."""
        if self._sleepers:
            for sleeper in tuple(self._sleepers):
                sleeper.wake()
            self._sleepers.clear()


class Outcome:
    """The result or error of a call that the sender thread completes, for the caller that waits for it."""

    __slots__ = ("_changed", "_done", "_error", "_lock", "_result")

    def __init__(self, sender: SendingThread | None = None) -> None:
        self._lock = threading.Lock()
        self._changed = Waiters(sender)
        self._done = False
        self._result: object = None
        self._error: Exception | None = None

    def complete(self, result: object, error: Exception | None) -> None:
        """Any thread; a second call has no effect."""
        with self._lock:
            if not self._done:
                self._result, self._error, self._done = result, error, True
            self._changed.notify_all()

    def wait(self, ms: float) -> bool:
        """False if it is not complete by then. Raises the ``obstacle`` of the calling thread."""
        return self._changed.wait_for(self._lock, lambda: self._done, ms)

    def value(self) -> object:
        """The result, once ``wait`` has returned True; raises the error."""
        if self._error is not None:
            raise own_copy(self._error)
        return self._result
