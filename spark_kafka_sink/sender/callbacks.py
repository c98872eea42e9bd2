"""User code that is told what became of records: callbacks, acknowledgements, done-callbacks."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any, TypeAlias

from spark_kafka_sink.waiting import Waiters

_log = logging.getLogger("spark_kafka_sink.producer")

Call: TypeAlias = Callable[[Any], object]


class Callbacks:
    """A queue: any thread adds calls as it completes batches, the sender thread runs them in that order.

    So no callback runs inside ``send`` or ``append_columns``, whose caller may hold a lock that the callback takes. The
    sender thread holds the loop's lock meanwhile: callbacks that block stop the sending, as in Java, and what is sent
    then waits in buffer.memory, not in this queue.
    """

    def __init__(self, wake_sender: Callable[[], None]) -> None:
        self._wake_sender = wake_sender
        self._queue: deque[tuple[Sequence[Call], object]] = deque()
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

    def add(self, calls: Sequence[Call], fate: object) -> None:
        """Have ``calls`` told ``fate``: on the sender thread, once that has ended on a thread of their own."""
        with self._lock:
            self._queue.append((calls, fate))
            self._added += 1
            late = self._ended
        if late:
            threading.Thread(target=self.run, name="pykafka-late-callbacks", daemon=True).start()
        else:
            self._wake_sender()

    def run(self) -> None:
        """Run what was added until now. What a call raises is logged; ``sys.exit`` does not end the sender."""
        with self._runs:
            self._run()

    def _run(self) -> None:
        thread = get_ident()
        self._threads.add(thread)
        try:
            for _ in range(len(self._queue)):
                calls, fate = self._queue.popleft()
                for call in calls:
                    try:
                        call(fate)
                    except BaseException:
                        _log.exception("A callback of a sent record raised")
                with self._lock:
                    self._ran += 1
                    self._changed.notify_all()
        finally:
            self._threads.discard(thread)

    def run_here(self, call: Call, fate: object) -> None:
        """Run a call on the calling thread, at once."""
        thread = get_ident()
        nested = thread in self._threads
        self._threads.add(thread)
        try:
            call(fate)
        except Exception:
            _log.exception("A callback of a sent record raised")
        finally:
            if not nested:
                self._threads.discard(thread)

    def wait(self, timeout_ms: float) -> bool:
        """Until the calls added before this one have run; False when the time is up."""
        if self._ran == self._added:
            return True
        last = self._added
        return self._changed.wait_for(self._lock, lambda: self._ran >= last, timeout_ms)

    def end(self) -> None:
        """The sender thread runs them for the last time; no other one runs any before it is through."""
        with self._runs:
            with self._lock:
                self._ended = True
            self._run()
