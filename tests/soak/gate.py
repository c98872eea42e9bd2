"""A TCP gate that is closed in one direction: what was sent meanwhile arrives when it opens, as TCP sends it again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from spark_kafka_sink.testing.broker.loop_thread import LoopThread
from tests.faults.support.proxy import LOOPBACK, Address, Direction

ANYBODY = 0
_READ_BYTES = 64 * 1024


class Gate:
    """Listens at ``address`` and passes connections on to ``target``, from ``__enter__`` to ``__exit__``.

    Also what a client has sent before it gave its connection up arrives late. ``peers``: those that connect, each of
    which has a way of its own through the gate; ``peer_at`` tells which one it is. Methods may be called from any
    thread.
    """

    def __init__(self, target: Address, listen: Address = (LOOPBACK, 0), peers: Sequence[int] = (ANYBODY,)) -> None:
        self.address = listen
        self._target = target
        self._peers = peers
        self._serving: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread = LoopThread("gate")
        self._ways = self._thread.call(lambda: {peer: _Way() for peer in self._peers})
        self._server = self._thread.run(asyncio.start_server(self._accepted, *self.address))
        self.address = self._server.sockets[0].getsockname()[:2]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.run(self._end())
        self._thread.stop()

    def peer_at(self, address: Address) -> int | None:
        """The peer that has connected from this address, None if it is none of them."""
        return ANYBODY

    def close(self, direction: Direction, peer: int = ANYBODY) -> int:
        """No byte passes in this direction any more, on old and new connections. Returns the number of old ones."""
        return self._thread.call(lambda: self._ways[peer].close(direction))

    def part(self, peer: int = ANYBODY) -> int:
        """Old connections break, and new ones do at once. Returns the number of old ones."""
        return self._thread.call(self._ways[peer].part)

    def delay(self, seconds: float) -> None:
        """From now on every piece of data takes so much longer, in each direction."""

        def delay() -> None:
            for way in self._ways.values():
                way.delay_s = seconds

        self._thread.call(delay)

    def heal(self) -> None:
        """Everything passes in both directions, and nothing is delayed."""

        def heal() -> None:
            for way in self._ways.values():
                way.heal()

        self._thread.call(heal)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        peer = self.peer_at(writer.get_extra_info("peername")[:2])
        way = None if peer is None else self._ways[peer]
        if way is None or way.parted:
            writer.transport.abort()
            return
        self._serving.add(task)
        way.lines.add(task)
        try:
            await self._serve(way, reader, writer)
        except (OSError, asyncio.CancelledError):
            return  # nothing listens there, or it was parted (Python 3.11 logs a cancelled server task as an error)
        finally:
            writer.close()
            way.lines.discard(task)
            self._serving.discard(task)

    async def _serve(self, way: _Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        of_target, to_target = await asyncio.open_connection(*self._target)
        try:
            await asyncio.gather(
                way.pump(Direction.TO_BROKER, reader, to_target), way.pump(Direction.TO_CLIENT, of_target, writer)
            )
        finally:
            to_target.close()

    async def _end(self) -> None:
        self._server.close()
        serving = tuple(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


class _Way:
    """That of a peer through a gate. Loop thread only."""

    def __init__(self) -> None:
        self.lines: set[asyncio.Task[None]] = set()
        self.parted = False
        self.delay_s = 0.0
        self._open = {direction: asyncio.Event() for direction in Direction}
        self.heal()

    def close(self, direction: Direction) -> int:
        self._open[direction].clear()
        return len(self.lines)

    def part(self) -> int:
        self.parted = True
        for line in self.lines:
            line.cancel()
        return len(self.lines)

    def heal(self) -> None:
        self.parted = False
        self.delay_s = 0.0
        for opened in self._open.values():
            opened.set()

    async def pump(self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Ends with the sender's connection, and closes that of the receiver then."""
        with suppress(OSError):
            while data := await reader.read(_READ_BYTES):
                await self._open[direction].wait()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                writer.write(data)
                await writer.drain()
        writer.close()
