"""Responses that wait for something to happen or for their time to run out (Kafka: ``DelayedOperationPurgatory``)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from spark_kafka_sink.testing.broker.call import Delayed
from spark_kafka_sink.testing.broker.wire import Fields


@dataclass(eq=False, slots=True)
class _Waiting:
    delayed: Delayed
    answer: asyncio.Future[Fields]
    timer: asyncio.TimerHandle


class Purgatory:
    """Lives on the broker's loop. ``check`` is called after every request and every change by the script."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: set[_Waiting] = set()

    def watch(self, delayed: Delayed) -> asyncio.Future[Fields]:
        """The answer, when it comes; cancelling it stops the watch."""
        answer: asyncio.Future[Fields] = self._loop.create_future()
        timer = self._loop.call_later(delayed.timeout_ms / 1000, self._expire, delayed, answer)
        waiting = _Waiting(delayed, answer, timer)
        self._waiting.add(waiting)
        answer.add_done_callback(lambda _: self._forget(waiting))
        return answer

    def check(self) -> None:
        for waiting in list(self._waiting):
            answer = None if waiting.answer.done() else waiting.delayed.try_complete()
            if answer is not None:
                waiting.answer.set_result(answer)

    def _expire(self, delayed: Delayed, answer: asyncio.Future[Fields]) -> None:
        if not answer.done():
            answer.set_result(delayed.expire())

    def _forget(self, waiting: _Waiting) -> None:
        waiting.timer.cancel()
        self._waiting.discard(waiting)
