"""``UnreadFailures``: the log line about failed records of ``send`` whose errors were never read, as in asyncio."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from weakref import ref

from spark_kafka_sink.common.clock import NEVER
from spark_kafka_sink.common.repeated_warnings import EVERY_MS
from spark_kafka_sink.common.task_figures import count_noun
from spark_kafka_sink.errors import BrokerError, TransactionAbortedError, clause

_log = logging.getLogger("spark_kafka_sink.producer")


def _cause(error: Exception) -> str:
    return error.name if isinstance(error, BrokerError) else type(error).__name__


@dataclass(eq=False)
class Failures:
    """The failures of records that share a result. The sender adds batches with their number of records; readers add
    the indexes that they have read.
    """

    topic: str
    batches: list[tuple[Exception, int]] = field(default_factory=list)
    read: dict[int, Exception] = field(default_factory=dict)

    def unread(self) -> Iterator[tuple[tuple[str, str], Exception, int]]:
        """The unread failures by topic and cause."""
        for error, rows in [*self.batches, *((error, -1) for error in [*self.read.values()])]:
            if not isinstance(error, TransactionAbortedError):  # aborted by the caller, or the commit raises the error
                yield (self.topic, _cause(error)), error, rows


class UnreadFailures:
    """The unread failures of one producer. A failure is noted once per batch; delivered records cost nothing. Futures
    may be collected at any line of any thread, so a collected future only leaves its failures here, and the sender's
    loop writes the log.
    """

    def __init__(self, wakeup: Callable[[], None]) -> None:
        self._wakeup = wakeup
        self._kept: dict[ref[object], Failures] = {}
        self.collected: deque[Failures] = deque()
        self._next_at = -NEVER

    def keep(self, result: object, failures: Failures) -> None:
        """Notes the first failure of a result, whose futures may still be read."""
        self._kept[ref(result, self._gone)] = failures

    def _gone(self, reference: ref[object]) -> None:
        if (failures := self._kept.pop(reference, None)) is not None:
            self.collected.append(failures)
            self._wakeup()

    def write(self, now: float, *, at_end: bool = False) -> None:
        """Writes one warning per topic and cause for collected futures, at most every 30 s; at the end also for futures
        that still exist.
        """
        sums: dict[tuple[str, str], tuple[int, Exception]] = {}
        with suppress(LookupError):  # other threads take some meanwhile
            while at_end:
                self.collected.append(self._kept.popitem()[1])
        with suppress(LookupError):
            while at_end or now >= self._next_at:
                for key, error, count in self.collected.popleft().unread():
                    before, first = sums.get(key, (0, error))
                    sums[key] = before + count, first
        for (topic, cause), (count, first) in sums.items():
            if count:
                self._next_at = now + EVERY_MS
                _log.warning(
                    "%s of topic %s failed with %s, and the program neither read their futures nor gave them a "
                    "callback: %s.",
                    count_noun(count, "record"), topic, cause, clause(first),
                )  # fmt: skip
