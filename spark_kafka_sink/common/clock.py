"""The clock. All other code receives the time as an argument."""

from __future__ import annotations

import math
import time
from typing import Final, Protocol

NEVER: Final = math.inf
"""As a time in ms: no deadline."""


class Clock(Protocol):
    def now(self) -> float:
        """Monotonic milliseconds: for deadlines."""

    def epoch_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC: for record timestamps."""

    def epoch_s(self) -> float:
        """The same time in seconds: the cheapest to read, once per record of ``send``."""


class SystemClock:
    def now(self) -> float:
        return time.monotonic() * 1000.0

    def epoch_ms(self) -> int:
        return time.time_ns() // 1_000_000

    epoch_s = staticmethod(time.time)
