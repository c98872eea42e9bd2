"""One accepted socket: frames in, frames out (Kafka: ``Processor``, ``KafkaChannel``).

Like a broker's channel, a connection is muted while one of its requests is handled. The next frame is read when the
response has been written, so responses keep the order of requests.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final

from spark_kafka_sink.testing.broker.authentication import LoginSession
from spark_kafka_sink.testing.broker.stream import Stream

_LENGTH: Final = struct.Struct(">i")


class ClientConnection:
    """A client's connection. Loop thread only."""

    def __init__(
        self,
        number: int,
        session: LoginSession,
        node: int,
        stream: Stream,
        running: asyncio.Event,
    ) -> None:
        """``running``: cleared while the node is paused, so that nothing is read or written."""
        self.number = number
        self.session = session
        self.node = node
        self.held_back: bytes | None = None
        self._stream = stream
        self._running = running

    async def read_frame(self, max_bytes: int) -> bytes | None:
        """The next request without its length prefix; None when this end or the peer is gone, or sends no frame."""
        if self._stream.is_closing():
            return None
        try:
            (size,) = _LENGTH.unpack(await self._stream.readexactly(_LENGTH.size))
            if not 0 <= size <= max_bytes:
                return None
            frame = await self._stream.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            return None
        await self._running.wait()
        return frame

    async def write(self, frame: bytes) -> None:
        """Send a frame, then one that was held back for it."""
        await self._running.wait()
        held, self.held_back = self.held_back, None
        await self._stream.write(frame if held is None else frame + held)

    async def close_after(self, data: bytes = b"") -> None:
        """Send ``data`` and close in good order (FIN)."""
        await self._running.wait()
        try:
            await self._stream.write(data)
            await self._stream.close()
        except OSError:
            pass

    def abort(self) -> None:
        """Close at once, as a killed process does."""
        self._stream.abort()
