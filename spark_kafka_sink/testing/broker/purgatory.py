"""Responses that wait for a change of the state or for their timeout (Kafka: ``DelayedOperationPurgatory``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from spark_kafka_sink.testing.broker.request_context import Delayed
from spark_kafka_sink.testing.broker.wire import Fields


@dataclass(eq=False, slots=True)
class _Waiting:
    delayed: Delayed
    response: asyncio.Future[Fields]
    timer: asyncio.TimerHandle


class Purgatory:
    """Waiting responses. ``check`` is called after every request and every change by the script. Loop thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: set[_Waiting] = set()

    def watch(self, delayed: Delayed) -> asyncio.Future[Fields]:
        """The response, once it is due. Cancelling the future stops the watch."""
        response: asyncio.Future[Fields] = self._loop.create_future()
        timer = self._loop.call_later(delayed.timeout_ms / 1000, self._expire, delayed, response)
        waiting = _Waiting(delayed, response, timer)
        self._waiting.add(waiting)
        response.add_done_callback(lambda _: self._forget(waiting))
        return response

    def check(self) -> None:
        for waiting in list(self._waiting):
            _complete(waiting.response, waiting.delayed.try_complete)

    def _expire(self, delayed: Delayed, response: asyncio.Future[Fields]) -> None:
        _complete(response, delayed.expire)

    def _forget(self, waiting: _Waiting) -> None:
        waiting.timer.cancel()
        self._waiting.discard(waiting)


def _complete(response: asyncio.Future[Fields], due: Callable[[], Fields | None]) -> None:
    """Completes a waiting response if it is due. An exception fails the waiting request, not the request whose handling
    calls ``check``."""
    if response.done():
        return
    try:
        fields = due()
    except Exception as error:
        response.set_exception(error)
        return
    if fields is not None:
        response.set_result(fields)
