"""A TCP gate that is closed in one direction: what was sent meanwhile arrives when it opens, as TCP sends it again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

from spark_kafka_sink.testing.broker.loop_thread import LoopThread
from spark_kafka_sink.testing.proxy import LOOPBACK, Address, Direction

_READ_BYTES = 64 * 1024


class Gate:
    """Listens on 127.0.0.1 and passes connections on to ``target``, from ``__enter__`` to ``__exit__``.

    Also what a client has sent before it gave its connection up arrives late. Methods may be called from any thread.
    """

    def __init__(self, target: Address) -> None:
        self._target = target
        self._delay_s = 0.0
        self._serving: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread = LoopThread("gate")
        self._open = {direction: self._thread.call(_opened) for direction in Direction}
        self._server = self._thread.run(asyncio.start_server(self._accepted, LOOPBACK, 0))
        self.address: Address = self._server.sockets[0].getsockname()[:2]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.run(self._end())
        self._thread.stop()

    def close(self, direction: Direction) -> None:
        """No byte passes in this direction any more, on old and new connections."""
        self._thread.call(self._open[direction].clear)

    def delay(self, seconds: float) -> None:
        """From now on every piece of data takes so much longer, in each direction."""
        self._thread.call(lambda: setattr(self, "_delay_s", seconds))

    def heal(self) -> None:
        """Both directions are open, and nothing is delayed."""

        def heal() -> None:
            self._delay_s = 0.0
            for opened in self._open.values():
                opened.set()

        self._thread.call(heal)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            of_target, to_target = await asyncio.open_connection(*self._target)
            await asyncio.gather(
                self._pump(Direction.TO_BROKER, reader, to_target), self._pump(Direction.TO_CLIENT, of_target, writer)
            )
        except OSError:
            return  # nothing listens there
        finally:
            writer.close()
            self._serving.discard(task)

    async def _pump(self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Ends with the sender's connection, and closes that of the receiver then."""
        with suppress(OSError):
            while data := await reader.read(_READ_BYTES):
                await self._open[direction].wait()
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def _end(self) -> None:
        self._server.close()
        serving = tuple(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


def _opened() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event
