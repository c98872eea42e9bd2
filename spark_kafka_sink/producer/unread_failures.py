"""``UnreadFailures``: the log line about records of ``send`` that failed and that nobody looked at, as in asyncio."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from weakref import ref

from spark_kafka_sink.common.clock import NEVER
from spark_kafka_sink.common.task_figures import count_noun
from spark_kafka_sink.errors import BrokerError, TransactionAbortedError, clause

_log = logging.getLogger("spark_kafka_sink.producer")

_EVERY_MS: Final = 30_000.0


@dataclass(eq=False)
class Failures:
    """Those of the records that share a result. Guarded by the result's lock.

    ``read``: records whose error was asked for, or that had a callback. ``unread``: the number of others, by error.
    """

    topic: str
    read: set[int] = field(default_factory=set)
    unread: dict[Exception, int] = field(default_factory=dict)

    def add(self, error: Exception, rows: int, looked_at: set[int]) -> None:
        self.read |= looked_at
        if not isinstance(error, TransactionAbortedError):  # the caller has aborted them, or learns of it at the commit
            self.unread[error] = self.unread.get(error, 0) + rows - len(looked_at)

    def note_read(self, index: int, error: Exception) -> None:
        if index not in self.read:
            self.read.add(index)
            self.unread[error] = self.unread.get(error, 0) - 1


class UnreadFailures:
    """Those of one producer. A failure is noted once a batch; nothing here is called for records that are delivered.

    Futures may be collected at any line of any thread, so that only leaves their failures here, for the sender's loop.
    """

    def __init__(self, wakeup: Callable[[], None]) -> None:
        self._wakeup = wakeup
        self._kept: dict[ref[object], Failures] = {}
        self.collected: deque[Failures] = deque()
        self._next_at = -NEVER

    def keep(self, result: object, failures: Failures) -> None:
        """The first failure of a result. Its futures may yet be read."""
        self._kept[ref(result, self._gone)] = failures

    def _gone(self, reference: ref[object]) -> None:
        if (failures := self._kept.pop(reference, None)) is not None:
            self.collected.append(failures)
            self._wakeup()

    def write(self, now: float, *, at_end: bool = False) -> None:
        """One warning per topic and cause of those that were collected, at most every 30 s; at the end also of those
        whose futures somebody has.
        """
        if not at_end and now < self._next_at:
            return
        found = [self.collected.popleft() for _ in range(len(self.collected))]
        if at_end:
            found += [self._kept.pop(reference) for reference in tuple(self._kept)]
        sums: dict[tuple[str, str], tuple[int, Exception]] = {}
        for failures in found:
            for error, count in failures.unread.items():
                cause = failures.topic, error.name if isinstance(error, BrokerError) else type(error).__name__
                before, first = sums.get(cause, (0, error))
                sums[cause] = before + count, first
        for (topic, cause_name), (count, first) in sums.items():
            if count:
                self._next_at = now + _EVERY_MS
                _log.warning(
                    "%s of topic %s failed with %s, and nobody has read their futures or given them a callback: %s",
                    count_noun(count, "record"), topic, cause_name, f"{clause(first)}.",
                )  # fmt: skip
