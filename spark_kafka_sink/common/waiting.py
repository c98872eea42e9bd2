"""Waits that leave locks intact when an interrupt (Ctrl-C) strikes.

``threading.Condition.wait`` releases its lock while it waits. After an interrupt in this wait, the ``with`` around it
may unlock a lock that another thread has acquired. Here a waiting thread holds only a lock of its own, so a signal
handler may raise in a wait, or make another call of the same producer.
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
"""The longest sleep at once, because an interrupt that comes just before a sleep is noticed only when the sleep
ends."""

_clock = SystemClock()


class Wakeable(Protocol):
    """An object in which a thread sleeps (``Selector``), or the thread itself."""

    def wakeup(self) -> None:
        """Wakes that thread. Any thread may call this."""


class SendingThread(Wakeable, Protocol):
    """The sender thread of a producer."""

    def obstacle(self) -> KafkaError | None:
        """Why the calling thread's wait for the sender thread would not end; None if it would end."""


class BlockingLoop:
    """The replacement for a ``SendingThread`` where there is none: the waiting thread runs the loop itself."""

    def wakeup(self) -> None:
        pass

    def obstacle(self) -> KafkaError | None:
        return None

    def run_until(self, condition: Callable[[], bool], ms: float) -> bool:
        """Runs the loop until the condition is true. False if it is not true after ``ms``."""
        raise NotImplementedError


class Sleeper:
    """One waiting thread. Its lock stays locked until ``wake``.

    A plain lock, because Ctrl-C can leave the locks of Python's ``Condition`` and ``Event`` locked for ever.
    """

    __slots__ = ("_asleep",)

    def __init__(self) -> None:
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def wait(self, ms: float) -> None:
        """Sleeps until ``wake``, at most ``ms``. May return early, so the caller checks its condition again."""
        self._asleep.acquire(timeout=min(ms, _MAX_SLEEP_MS) / 1000.0)

    def wake(self) -> None:
        """Ends the wait. Called once for each wait."""
        if self._asleep.locked():
            self._asleep.release()


def sleep(ms: float) -> None:
    """Sleeps for ``ms``. May return early, so the caller looks at the clock again."""
    Sleeper().wait(ms)


def start_thread(thread: threading.Thread) -> None:
    """Starts the thread. Raises ``RuntimeError`` during interpreter shutdown, when CPython 3.11 would wait forever for
    a thread that never runs."""
    if sys.is_finalizing():
        raise RuntimeError("The program is ending, and Python starts no more threads")
    thread.start()


class Waiters:
    """The threads that wait until something is true. ``sender`` makes it true; None: any thread.

    No lock is taken. Waiting thread: append its sleeper, then read the condition. Other thread: make the condition
    true, then wake the sleepers. One of them sees the other.
    """

    __slots__ = ("_asleep", "_generation", "sender")

    def __init__(self, sender: SendingThread | None = None) -> None:
        self.sender = sender
        self._generation = forks.generation
        self._asleep: list[Sleeper] = []

    @property
    def waiting(self) -> int:
        """The number of threads that wait."""
        return len(self._asleep)

    @property
    def notifiers_gone(self) -> bool:
        """True after a fork or during interpreter shutdown: nobody will notify."""
        return self._generation != forks.generation or sys.is_finalizing()

    def obstacle(self) -> KafkaError | None:
        """Why a wait of the calling thread would not end; None if it would end. Called before every wait."""
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
        """Wakes the loop, because there is something for it to do."""
        if self.sender is not None:
            self.sender.wakeup()

    def wait_for(self, condition: Callable[[], bool], ms: float | None) -> bool:
        """Waits until ``condition`` is true. Returns False after ``ms`` (None: no limit).

        Raises the ``obstacle`` unless the condition is true. If the sender is a ``BlockingLoop``, the caller runs it
        meanwhile.
        """
        if condition():
            return True
        if self.notifiers_gone:
            self.check()
        if isinstance(self.sender, BlockingLoop):
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
                with suppress(ValueError):  # it was woken, so its sleeper is no longer in the list
                    self._asleep.remove(sleeper)

    def notify_all(self) -> None:
        """Wakes all waiting threads. Any thread may call it."""
        for _ in range(len(self._asleep)):  # a thread that waits again meanwhile has read its condition
            with suppress(IndexError):  # another thread has woken the last one
                self._asleep.pop().wake()


class CallOutcome:
    """The result or error of a call that the sender thread completes, for the caller that waits for it."""

    __slots__ = ("_changed", "_ends")

    def __init__(self, sender: SendingThread | None = None) -> None:
        self._changed = Waiters(sender)
        self._ends: list[tuple[object, Exception | None]] = []

    def complete(self, result: object, error: Exception | None) -> None:
        """Sets the result or error. Any thread may call it; a second call has no effect."""
        self._ends.append((result, error))
        self._changed.notify_all()

    def wait(self, ms: float) -> bool:
        """Waits for completion. False if the call is not complete after ``ms``. Raises the ``obstacle`` of the calling
        thread."""
        return self._changed.wait_for(lambda: bool(self._ends), ms)

    def value(self) -> object:
        """The result, once ``wait`` has returned True; raises the error."""
        result, error = self._ends[0]
        if error is not None:
            raise own_copy(error)
        return result
