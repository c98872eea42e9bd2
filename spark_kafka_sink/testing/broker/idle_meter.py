"""The idle ratio of the request handlers (Kafka: ``KafkaRequestHandlerPool``, ``RequestHandlerAvgIdlePercent``)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

_WINDOW_S: Final = 60.0
_SAMPLE_S: Final = 1.0


class IdleMeter:
    """The share of their time that the handlers wait for requests: 1.0 when idle, 0.0 when all are busy.

    The ratio is of the last minute, while Kafka's average weighs the last minute most. Loop thread only. ``now_s``: any
    clock that does not go back.
    """

    def __init__(self, handlers: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self._handlers = handlers
        self._now_s = now_s
        self._waiting = 0
        self._idle_s = 0.0
        self._until_s = now_s()
        self._samples: deque[tuple[float, float]] = deque([(self._until_s, 0.0)])

    def handler_waits(self) -> None:
        self._advance()
        self._waiting += 1

    def handler_works(self) -> None:
        self._advance()
        self._waiting -= 1

    def ratio(self) -> float:
        self._advance()
        since_s, idle_s = self._samples[0]
        passed_s = (self._until_s - since_s) * self._handlers
        return (self._idle_s - idle_s) / passed_s if passed_s else 1.0

    def _advance(self) -> None:
        now_s = self._now_s()
        self._idle_s += self._waiting * (now_s - self._until_s)
        self._until_s = now_s
        if now_s - self._samples[-1][0] >= _SAMPLE_S:
            self._samples.append((now_s, self._idle_s))
        while len(self._samples) > 1 and now_s - self._samples[1][0] >= _WINDOW_S:
            self._samples.popleft()
