"""One accepted socket: frames in, frames out (Kafka: ``Processor``, ``KafkaChannel``).

Like a broker's channel it is muted while one of its requests is handled: the next frame is read when the response has
been written, so responses keep the order of requests.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final

from spark_kafka_sink.testing.broker.authentication import Session

_LENGTH: Final = struct.Struct(">i")


class Connection:
    """Loop thread only."""

    def __init__(
        self,
        number: int,
        session: Session,
        node: int,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        running: asyncio.Event,
    ) -> None:
        """``running`` is cleared while the node is paused: then nothing is read or written."""
        self.number = number
        self.session = session
        self.node = node
        self.held_back: bytes | None = None
        self._reader, self._writer = streams
        self._running = running

    async def read_frame(self, max_bytes: int) -> bytes | None:
        """The next request without its length prefix; None when this end or the peer is gone, or sends no frame."""
        if self._writer.is_closing():
            return None
        try:
            (size,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            if not 0 <= size <= max_bytes:
                return None
            frame = await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        await self._running.wait()
        return frame

    async def write(self, frame: bytes) -> None:
        """Send a frame, then one that was held back for it."""
        await self._running.wait()
        held, self.held_back = self.held_back, None
        self._writer.write(frame)
        if held is not None:
            self._writer.write(held)
        await self._writer.drain()

    async def close_after(self, data: bytes = b"") -> None:
        """Send ``data`` and close in good order (FIN)."""
        await self._running.wait()
        try:
            self._writer.write(data)
            self._writer.close()
            await self._writer.wait_closed()
        except ConnectionError:
            pass

    def abort(self) -> None:
        """Close at once, as a killed process does."""
        self._writer.transport.abort()
