"""Delays that double after each failure (Java: ``ExponentialBackoff``, KIP-580)."""

from __future__ import annotations

import math
from random import Random

MULTIPLIER = 2.0
JITTER = 0.2

LEAST_MS = 1.0
"""Shortest delay: with a backoff of 0, failures that take no time would make the sender's loop spin."""


class ExponentialBackoff:
    """``initial_ms * 2**attempts`` ± 20 %, at most ``max_ms``; both are at least ``LEAST_MS``. (Java's may be 0.)"""

    __slots__ = ("_exponent_limit", "_initial_ms", "_max_ms", "_random")

    def __init__(self, initial_ms: float, max_ms: float, random: Random) -> None:
        self._max_ms = max(max_ms, LEAST_MS)
        self._initial_ms = min(max(initial_ms, LEAST_MS), self._max_ms)
        self._random = random
        self._exponent_limit = math.log2(self._max_ms / self._initial_ms)

    def delay(self, attempts: int) -> float:
        """Milliseconds to wait after a failure that came behind ``attempts`` others."""
        term = self._initial_ms * math.pow(MULTIPLIER, min(attempts, self._exponent_limit))
        return max(LEAST_MS, min(term * self._random.uniform(1 - JITTER, 1 + JITTER), self._max_ms))
