"""``Callbacks``: the queue of user callbacks, which only the sender thread runs."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any, TypeAlias

from spark_kafka_sink.common.waiting import SendingThread, Waiters, start_thread

_log = logging.getLogger("spark_kafka_sink.producer")

QueuedCallback: TypeAlias = Callable[[Any], object]


class Callbacks:
    """Any thread adds calls when it completes batches; the sender thread runs them in that order.

    No callback runs inside ``send`` or ``append_columns``, whose caller may hold a lock that the callback takes. The
    sender thread runs them with the loop's lock: callbacks that block stop the sending, as in Java, and records wait in
    buffer.memory instead of this queue.
    """

    def __init__(self, wakeup: Callable[[], None], sender: SendingThread | None = None) -> None:
        self.sender = sender
        self._wakeup = wakeup
        self._queue: deque[tuple[Sequence[QueuedCallback], object]] = deque()
        self._lock = threading.Lock()
        self._changed = Waiters()
        self._added = self._ran = 0
        self._ended = False
        self._runs = threading.Lock()
        self._threads: set[int] = set()

    @property
    def pending(self) -> bool:
        return bool(self._queue)

    @property
    def runs_here(self) -> bool:
        """Whether the calling thread is in ``run`` or ``run_here``."""
        return get_ident() in self._threads

    def add(self, calls: Sequence[QueuedCallback], argument: object) -> None:
        """Queue ``call(argument)`` for each of ``calls``; after ``end``, a thread of its own runs them."""
        with self._lock:
            self._queue.append((calls, argument))
            self._added += 1
            late = self._ended
        if late:
            start_thread(threading.Thread(target=self.run, name="pykafka-late-callbacks", daemon=True))
        else:
            self._wakeup()

    def run(self) -> None:
        """Run the calls added so far. Exceptions are logged; ``sys.exit`` does not end the sender."""
        with self._runs:
            self._run()

    def _run(self) -> None:
        thread = get_ident()
        self._threads.add(thread)
        try:
            for _ in range(len(self._queue)):
                calls, argument = self._queue.popleft()
                for call in calls:
                    try:
                        call(argument)
                    except BaseException:
                        _log.exception("A callback of a sent record raised")
                with self._lock:
                    self._ran += 1
                    self._changed.notify_all()
        finally:
            self._threads.discard(thread)

    def run_here(self, call: QueuedCallback, argument: object) -> None:
        """Run one call on the calling thread, at once."""
        thread = get_ident()
        nested = thread in self._threads
        self._threads.add(thread)
        try:
            call(argument)
        except Exception:
            _log.exception("A callback of a sent record raised")
        finally:
            if not nested:
                self._threads.discard(thread)

    def wait(self, timeout_ms: float) -> bool:
        """Wait until the calls added so far have run; False after ``timeout_ms``."""
        if self._ran == self._added:
            return True
        last = self._added
        return self._changed.wait_for(self._lock, lambda: self._ran >= last, timeout_ms)

    def end(self) -> None:
        """The sender thread runs the queue for the last time, before any other thread may run it."""
        with self._runs:
            with self._lock:
                self._ended = True
            self._run()
