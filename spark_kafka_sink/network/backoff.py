"""Delays that double after each failure (Java: ``ExponentialBackoff``, KIP-580)."""

from __future__ import annotations

import math
from random import Random

MULTIPLIER = 2.0
JITTER = 0.2


class ExponentialBackoff:
    """``initial_ms * 2**attempts`` ± 20 %, at most ``max_ms``."""

    __slots__ = ("_exponent_limit", "_initial_ms", "_max_ms", "_random")

    def __init__(self, initial_ms: float, max_ms: float, random: Random) -> None:
        self._initial_ms = min(initial_ms, max_ms)
        self._max_ms = max_ms
        self._random = random
        self._exponent_limit = math.log2(max_ms / max(initial_ms, 1.0)) if max_ms > initial_ms else 0.0

    def delay(self, attempts: int) -> float:
        """Milliseconds to wait after ``attempts`` earlier failures, 0 for the first."""
        term = self._initial_ms * math.pow(MULTIPLIER, min(attempts, self._exponent_limit))
        return min(term * self._random.uniform(1 - JITTER, 1 + JITTER), self._max_ms)
