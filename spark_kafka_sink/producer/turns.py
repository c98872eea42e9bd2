"""How a caller in full swing lets the sender thread have its turn."""

from __future__ import annotations

import threading
from collections import deque

from spark_kafka_sink.network.selector import Selector
from spark_kafka_sink.network.transport import Event

_LONGEST_TURN_S = 0.005


class TurnTakingSelector(Selector):
    """The sender's sockets, and whoever waits for it to come back to them.

    The interpreter runs one thread at a time. While a caller computes, the sender gets it back 5 ms after each system
    call of its own: it would need 50 ms for what takes it half a millisecond, and the brokers would wait for it. So
    a caller that has filled a stage while the sender lags stands back for one turn of it, which ends where it polls.
    """

    def __init__(self, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1) -> None:
        super().__init__(send_buffer_bytes, receive_buffer_bytes)
        self._standing_back: deque[threading.Lock] = deque()
        self._owner: int | None = None

    def poll(self, timeout_ms: float) -> list[Event]:
        self._owner = threading.get_ident()
        while self._standing_back:
            self._standing_back.popleft().release()
        return super().poll(timeout_ms)

    def stand_back(self) -> None:
        """Wait for the end of a turn that somebody has woken the sender for; no longer than it would have to wait."""
        if threading.get_ident() == self._owner:
            return  # a callback that sends
        over = threading.Lock()
        over.acquire()
        self._standing_back.append(over)
        over.acquire(timeout=_LONGEST_TURN_S)
