"""``RepeatedWarnings``: a warning about a lasting condition is written the first time, then once in 30 s."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from spark_kafka_sink.common.clock import NEVER

EVERY_MS: Final = 30_000.0

STALL_MS: Final = 10_000.0
"""How long something waits for brokers before the first warning."""


@dataclass(eq=False)
class RepeatedWarnings:
    """The warnings of one thread, each about a subject. Times are monotonic ms."""

    log: logging.Logger
    _last: dict[Hashable, float] = field(default_factory=dict)
    _unwritten: Counter[Hashable] = field(default_factory=Counter)

    def next_at(self, subject: Hashable, waiting_since: float = -NEVER) -> float:
        """When the next warning is due, about a wait after ``STALL_MS``."""
        return max(waiting_since + STALL_MS, self._last.get(subject, -NEVER) + EVERY_MS)

    def write(self, subject: Hashable, now: float, text: str) -> None:
        """Warns if a line is due, with the number of texts that were left out since the last line; otherwise the text
        is only a debug line."""
        last = self._last.get(subject, -NEVER)
        if now < last + EVERY_MS:
            self._unwritten[subject] += 1
            self.log.debug("%s", text)
            return
        more = self._unwritten.pop(subject, 0)
        self._last[subject] = now
        self.log.warning("%s%s", text, f" ({more} more in the last {(now - last) / 1000:.0f} s)" if more else "")
