"""``LoginThread``: the daemon thread of one login, so that no sender waits for tokens or tickets."""

from __future__ import annotations

import logging
import threading
from typing import Final, Protocol

from spark_kafka_sink.common.clock import Clock

_log = logging.getLogger("spark_kafka_sink.login")

_LONGEST_MS: Final = 3_600_000.0
"""An event's timeout cannot be infinite."""


class Login(Protocol):
    """What a login's thread runs: fetches tokens ahead of their end, takes steps of Kerberos."""

    def run_once(self, now: float) -> float:
        """Does what is due at ``now``, and returns when to call again at the latest (both monotonic ms).

        Must return in bounded time. Completes the waiter's ``LoginStep``, also on failure, and never raises.
        """


class LoginThread:
    """Calls ``login.run_once`` when it is due, and after ``wake``. Any thread may call its methods."""

    def __init__(self, login: Login, clock: Clock, name: str) -> None:
        self._login = login
        self._clock = clock
        self._name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._due = threading.Event()
        self._closed = False

    def wake(self) -> None:
        """Call it after a change that ``run_once`` must see. The first call starts the thread."""
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        self._due.set()

    def close(self) -> None:
        """The thread ends after the work that it does now; does not wait for it."""
        self._closed = True
        self._due.set()

    def _run(self) -> None:
        while not self._closed:
            self._due.clear()
            try:
                wake_at = self._login.run_once(self._clock.now())
            except Exception:
                _log.exception("Uncaught error in %s; it goes on", self._name)
                wake_at = self._clock.now() + _LONGEST_MS
            self._due.wait(min(max(0.0, wake_at - self._clock.now()), _LONGEST_MS) / 1000.0)
