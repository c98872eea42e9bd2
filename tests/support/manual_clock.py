"""A clock that moves only when the test advances it."""

from __future__ import annotations


class ManualClock:
    """Implements ``clock.Clock``. Starts at 0 ms monotonic and ``epoch_ms`` since 1970."""

    def __init__(self, epoch_ms: int = 1_700_000_000_000) -> None:
        self._now = 0.0
        self._started_epoch_ms = epoch_ms

    def now(self) -> float:
        return self._now

    def epoch_ms(self) -> int:
        return self._started_epoch_ms + int(self._now)

    def epoch_s(self) -> float:
        return self.epoch_ms() / 1000.0

    def advance(self, ms: float) -> float:
        """Advances by ``ms`` and returns the new ``now``."""
        self._now += ms
        return self._now
