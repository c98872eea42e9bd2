"""A TCP gate that is closed in one direction: what was sent meanwhile arrives when it opens, as TCP sends it again."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tests.faults.support.proxy import Address, Direction, Server

ANYBODY = 0
_READ_BYTES = 64 * 1024


class Gate(Server):
    """Passes connections on to ``target``.

    Also what a client has sent before it gave its connection up arrives late. A gate may tell its ``peers`` apart
    (``peer_at``), each of which has a way of its own through it. Methods may be called from any thread.
    """

    def __init__(self, target: Address) -> None:
        super().__init__()
        self._target = target
        self._lines: dict[asyncio.Task[None], int] = {}
        self._parted: set[int] = set()
        self._closed: set[tuple[Direction, int]] = set()
        self._healed = asyncio.Event()
        self._delay_s = 0.0

    def peer_at(self, address: Address) -> int | None:
        """The peer that has connected from this address, None if it is none of them."""
        return ANYBODY

    def close(self, direction: Direction, peer: int = ANYBODY) -> int:
        """No byte passes in this direction any more, on old and new connections. Returns the number of old ones."""

        def close() -> int:
            self._closed.add((direction, peer))
            self._healed.clear()
            return len(self._lines_of(peer))

        return self._thread.call(close)

    def part(self, peer: int = ANYBODY) -> int:
        """Old connections break, and new ones do at once. Returns the number of old ones."""

        def part() -> int:
            self._parted.add(peer)
            lines = self._lines_of(peer)
            for line in lines:
                line.cancel()
            return len(lines)

        return self._thread.call(part)

    def delay(self, seconds: float) -> None:
        """From now on every piece of data takes so much longer, in each direction."""
        self._thread.call(lambda: setattr(self, "_delay_s", seconds))

    def heal(self) -> None:
        """Everything passes in both directions, and nothing is delayed."""

        def heal() -> None:
            self._parted.clear()
            self._closed.clear()
            self._delay_s = 0.0
            self._healed.set()

        self._thread.call(heal)

    def _lines_of(self, peer: int) -> list[asyncio.Task[None]]:
        return [line for line, whose in self._lines.items() if whose == peer]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = self.peer_at(writer.get_extra_info("peername")[:2])
        if peer is None or peer in self._parted:
            writer.transport.abort()
            return
        line = asyncio.current_task()
        assert line is not None
        self._lines[line] = peer
        try:
            of_target, to_target = await asyncio.open_connection(*self._target)
            try:
                ways = (Direction.TO_BROKER, reader, to_target), (Direction.TO_CLIENT, of_target, writer)
                await asyncio.gather(*(self._pump(peer, *way) for way in ways))
            finally:
                to_target.close()
        finally:
            writer.close()
            del self._lines[line]

    async def _pump(
        self, peer: int, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Ends with the sender's connection, and closes that of the receiver then."""
        with suppress(OSError):
            while data := await reader.read(_READ_BYTES):
                while (direction, peer) in self._closed:
                    await self._healed.wait()
                await asyncio.sleep(self._delay_s)
                writer.write(data)
                await writer.drain()
        writer.close()
