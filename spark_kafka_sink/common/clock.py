"""The clock, and waits that double after each failure (KIP-580). All other code receives the time as an argument."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from random import Random
from typing import Final, Protocol

NEVER: Final = math.inf
"""A time in ms that stands for no deadline."""


class Clock(Protocol):
    def now(self) -> float:
        """Monotonic milliseconds: for deadlines."""

    def epoch_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC: for record timestamps."""

    def epoch_s(self) -> float:
        """The same time in seconds: the cheapest to read, once per record of ``send``."""


class SystemClock:
    """The time of the system. In a test that freezes the time (freezegun, time-machine) records get the frozen time,
    and waits end as usual."""

    def now(self) -> float:
        # time.monotonic is frozen, too: deadlines would never come.
        return time.clock_gettime(time.CLOCK_MONOTONIC) * 1000.0

    def epoch_ms(self) -> int:
        return time.time_ns() // 1_000_000

    @property
    def epoch_s(self) -> Callable[[], float]:
        return time.time  # looked up at each call: a test may have frozen it


JITTER: Final = 0.2

MIN_MS: Final = 1.0
"""The shortest delay. With a backoff of 0, failures that take no time would make the sender's loop spin."""

_MAX_DOUBLINGS: Final = 62
"""The most doublings, because ``2.0**attempts`` would overflow a float."""


def exponential_delay(initial_ms: float, max_ms: float, attempts: int) -> float:
    """Milliseconds to wait after a failure that came after ``attempts`` others: ``initial_ms * 2**attempts``, at most
    ``max_ms``. For example, 100, 200, 400, …, 1000, 1000 ms.
    """
    return min(initial_ms * 2.0 ** min(attempts, _MAX_DOUBLINGS), max_ms)


class ExponentialBackoff:
    """``exponential_delay`` ± 20 %, but at least ``MIN_MS`` (Java: ``ExponentialBackoff``, without that minimum)."""

    __slots__ = ("_initial_ms", "_max_ms", "_random")

    def __init__(self, initial_ms: float, max_ms: float, random: Random) -> None:
        self._max_ms = max(max_ms, MIN_MS)
        self._initial_ms = max(initial_ms, MIN_MS)
        self._random = random

    def delay(self, attempts: int) -> float:
        """Milliseconds to wait after a failure that came after ``attempts`` others."""
        term = exponential_delay(self._initial_ms, self._max_ms, attempts)
        return max(MIN_MS, min(term * self._random.uniform(1 - JITTER, 1 + JITTER), self._max_ms))
