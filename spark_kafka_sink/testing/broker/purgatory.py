"""Responses that wait for a change of the state or for their timeout (Kafka: ``DelayedOperationPurgatory``)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from spark_kafka_sink.testing.broker.call import Delayed
from spark_kafka_sink.testing.broker.wire import Fields


@dataclass(eq=False, slots=True)
class _Waiting:
    delayed: Delayed
    response: asyncio.Future[Fields]
    timer: asyncio.TimerHandle


class Purgatory:
    """Loop thread only. ``check`` is called after every request and every change by the script."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: set[_Waiting] = set()

    def watch(self, delayed: Delayed) -> asyncio.Future[Fields]:
        """The response, when it comes; cancelling it stops the watch."""
        response: asyncio.Future[Fields] = self._loop.create_future()
        timer = self._loop.call_later(delayed.timeout_ms / 1000, self._expire, delayed, response)
        waiting = _Waiting(delayed, response, timer)
        self._waiting.add(waiting)
        response.add_done_callback(lambda _: self._forget(waiting))
        return response

    def check(self) -> None:
        for waiting in list(self._waiting):
            response = None if waiting.response.done() else waiting.delayed.try_complete()
            if response is not None:
                waiting.response.set_result(response)

    def _expire(self, delayed: Delayed, response: asyncio.Future[Fields]) -> None:
        if not response.done():
            response.set_result(delayed.expire())

    def _forget(self, waiting: _Waiting) -> None:
        waiting.timer.cancel()
        self._waiting.discard(waiting)
