"""An asyncio loop on a thread of its own, and the way in from other threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Final, TypeVar

from spark_kafka_sink.common.clock import SystemClock

_T = TypeVar("_T")
DEADLINE_S: Final = 30.0


class _Loop(asyncio.SelectorEventLoop):
    def time(self) -> float:
        """The loop's time. It goes on while a test has frozen ``time.monotonic``, because otherwise no timer of the
        broker would ever be due."""
        return SystemClock().now() / 1000


class LoopThread:
    """A loop on a thread of its own. ``call`` and ``run`` are for other threads; on the loop's own thread ``call`` is a
    plain call."""

    def __init__(self, name: str) -> None:
        self.loop = _Loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], _T]) -> _T:
        """Run ``function`` on the loop's thread and wait for its result or exception."""
        if threading.current_thread() is self._thread:
            return function()
        outcome: Future[_T] = Future()

        def run() -> None:
            try:
                outcome.set_result(function())
            except BaseException as error:
                outcome.set_exception(error)

        self.loop.call_soon_threadsafe(run)
        return outcome.result(DEADLINE_S)

    def run(self, coroutine: Coroutine[object, object, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(DEADLINE_S)

    def stop(self) -> None:
        """End the loop and its thread; its tasks must have ended."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(DEADLINE_S)
        self.loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
