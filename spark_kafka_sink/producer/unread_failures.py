"""``UnreadFailures``: the log line about records of ``send`` that failed and that nobody looked at, as in asyncio."""

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
    """Those of the records that share a result. The sender adds batches with their number of records, readers the
    indexes that they have read.
    """

    topic: str
    batches: list[tuple[Exception, int]] = field(default_factory=list)
    read: dict[int, Exception] = field(default_factory=dict)

    def unread(self) -> Iterator[tuple[tuple[str, str], Exception, int]]:
        """By topic and cause; records that were read are subtracted."""
        for error, rows in [*self.batches, *((error, -1) for error in [*self.read.values()])]:
            if not isinstance(error, TransactionAbortedError):  # the caller has aborted them, or learns at the commit
                yield (self.topic, _cause(error)), error, rows


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
        sums: dict[tuple[str, str], tuple[int, Exception]] = {}
        with suppress(LookupError):  # until there are no more: other threads take some, too
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
                    "%s of topic %s failed with %s, and nobody has read their futures or given them a callback: %s.",
                    count_noun(count, "record"), topic, cause, clause(first),
                )  # fmt: skip
