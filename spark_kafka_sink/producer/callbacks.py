"""``Callbacks``: the queue of user callbacks, which only the sender thread runs."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from spark_kafka_sink.common import forks
from spark_kafka_sink.common.repeated_warnings import RepeatedWarnings
from spark_kafka_sink.common.task_figures import count_noun
from spark_kafka_sink.common.waiting import SendingThread, Waiters, start_thread
from spark_kafka_sink.errors import BrokerError, TransactionAbortedError, clause

_log = logging.getLogger("spark_kafka_sink.producer")

QueuedCallback: TypeAlias = Callable[[Any], object]


class Callbacks:
    """The queue of callbacks. Any thread adds calls; the sender thread runs them in that order, between two iterations.

    No callback runs inside ``send`` or ``append_columns``, whose caller may hold a lock that the callback takes.
    Callbacks that block stop the sending, as in Java, and records wait in buffer.memory instead of this queue.

    A thread adds a call, then reads ``_ended``. The sender thread sets ``_ended``, then runs the queue for the last
    time. One of them sees the other, and the thread that takes a call out of the queue runs it.
    """

    def __init__(self, wakeup: Callable[[], None], sender: SendingThread | None = None) -> None:
        self.sender = sender
        self._wakeup = wakeup
        self._queue: deque[tuple[Sequence[QueuedCallback], object]] = deque()
        self._ended = False
        self._late = threading.Lock()
        self._thread: int | None = None
        self._warnings = RepeatedWarnings(_log)
        self._unheard: deque[tuple[str, Exception, int]] = deque()

    @property
    def runs_here(self) -> bool:
        """Whether the calling thread is in ``run``."""
        return threading.get_ident() == self._thread

    def add(self, calls: Sequence[QueuedCallback], argument: object) -> None:
        """Queue ``call(argument)`` for each of ``calls``; after ``end``, a thread of its own runs them."""
        self._queue.append((calls, argument))
        if self._ended:
            start_thread(threading.Thread(target=self._run_late, name="pykafka-late-callbacks", daemon=True))
        else:
            self._wakeup()

    def run(self) -> None:
        """Run the calls added so far. Exceptions are logged; ``sys.exit`` does not end the sender thread."""
        if not self._queue:
            return
        self._thread, generation = threading.get_ident(), forks.generation
        try:
            for _ in range(len(self._queue)):
                if forks.generation != generation:
                    return  # a callback has forked, and the other calls are the parent's
                with suppress(IndexError):  # a late thread has taken it
                    calls, argument = self._queue.popleft()
                    for call in calls:
                        try:
                            call(argument)
                        except BaseException:
                            _log.exception("A callback of a sent record raised")
        finally:
            self._thread = None

    def _run_late(self) -> None:
        with self._late:  # so that callbacks never run side by side
            self.run()

    def note_unheard(self, topic: str, error: Exception, records: int) -> None:
        """Notes failed records that have no callback and that no thread waits for. Called by the sender thread."""
        if not isinstance(error, TransactionAbortedError):  # aborted by the caller, or the commit raises the error
            self._unheard.append((topic, error, records))

    def warn_of_unheard(self) -> None:
        """Logs what was noted. Called by the sender thread between its iterations, because a logging handler is the
        program's: it may raise, fork, or hold a lock while it waits for these records."""
        while self._unheard:
            topic, error, records = self._unheard.popleft()
            cause = error.name if isinstance(error, BrokerError) else type(error).__name__
            failed = f"{count_noun(records, 'record')} of topic {topic} failed with {cause}"
            text = f"{failed}, and no callback or thread waited for the result: {clause(error)}."
            with suppress(Exception):
                self._warnings.write((topic, cause), Waiters.now(), text)

    def end(self) -> None:
        """The sender thread runs the queue for the last time."""
        with self._late:
            self._ended = True
            self.run()
