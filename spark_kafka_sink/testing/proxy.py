"""A TCP proxy that a test puts between a client and one broker, to cut or silence the line at a chosen byte."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType, TracebackType
from typing import Final, Self

from spark_kafka_sink.network.selector import Selector
from spark_kafka_sink.testing.broker.loop_thread import LoopThread

LOOPBACK: Final = "127.0.0.1"
_READ_BYTES: Final = 64 * 1024

Address = tuple[str, int]


class Direction(Enum):
    TO_BROKER = "requests"
    TO_CLIENT = "answers"


class Proxy:
    """Listens on 127.0.0.1 and passes every connection on to ``broker``, from ``__enter__`` to ``__exit__``.

    A broker names its own address to its clients, so that they would go past the proxy: give the client's selector to
    ``redirected``. Methods may be called from any thread.
    """

    def __init__(self, broker: Address) -> None:
        self.broker = broker
        self._lines: set[_Line] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._cut_after: dict[Direction, int] = {}

    def __enter__(self) -> Self:
        self._thread = LoopThread("kafka-proxy")
        self._server = self._thread.run(asyncio.start_server(self._accepted, LOOPBACK, 0))
        self.address: Address = self._server.sockets[0].getsockname()[:2]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.run(self._close())
        self._thread.stop()

    def cut(self, direction: Direction, after_bytes: int) -> None:
        """Cut the line that carries the next bytes in this direction once ``after_bytes`` of them have passed."""
        self._thread.call(lambda: self._cut_after.__setitem__(direction, after_bytes))

    @property
    def is_cut(self) -> bool:
        """Whether every cut that was asked for has happened."""
        return self._thread.call(lambda: not self._cut_after)

    def silence(self) -> int:
        """Pass nothing more on through the lines there are, and tell neither end: half-open connections.

        Says how many these are. New lines work.
        """

        def silence() -> int:
            for line in self._lines:
                line.silent = True
            return len(self._lines)

        return self._thread.call(silence)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            line = _Line((reader, writer), await asyncio.open_connection(*self.broker))
            self._lines.add(line)
            await line.run(self._cut_after)
            self._lines.discard(line)
        except OSError:
            return  # the broker is down: so is the line
        finally:
            writer.transport.abort()
            self._serving.discard(task)

    async def _close(self) -> None:
        self._server.close()
        serving = tuple(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


class _Line:
    """One connection of a client and the one to the broker that belongs to it. Loop thread only.

    ``silent``: what comes in is kept, for ever.
    """

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        broker: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._client = client
        self._broker = broker
        self.silent = False

    async def run(self, cut_after: dict[Direction, int]) -> None:
        pumps = [
            asyncio.ensure_future(self._pump(Direction.TO_BROKER, cut_after)),
            asyncio.ensure_future(self._pump(Direction.TO_CLIENT, cut_after)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for _, writer in (self._client, self._broker):
                writer.transport.abort()

    async def _pump(self, direction: Direction, cut_after: dict[Direction, int]) -> None:
        (reader, _), (_, writer) = (self._client, self._broker)
        if direction is Direction.TO_CLIENT:
            (reader, _), (_, writer) = (self._broker, self._client)
        while data := await self._read(reader):
            allowed = cut_after.get(direction)
            if allowed is not None and len(data) >= allowed:
                del cut_after[direction]
                writer.write(data[:allowed])
                writer.close()
                await writer.wait_closed()
                return
            if allowed is not None:
                cut_after[direction] = allowed - len(data)
            writer.write(data)
            await writer.drain()

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        try:
            data = await reader.read(_READ_BYTES)
        except ConnectionError:
            data = b""
        if self.silent:
            await asyncio.Event().wait()
        return data


def redirected(proxies: Mapping[Address, Address]) -> type[Selector]:
    """A ``Selector`` that connects to the proxy of an address instead of to that address."""
    to = MappingProxyType(dict(proxies))

    class RedirectedSelector(Selector):
        def connect(self, connection_id: int, host: str, port: int) -> None:
            super().connect(connection_id, *to.get((host, port), (host, port)))

    return RedirectedSelector
