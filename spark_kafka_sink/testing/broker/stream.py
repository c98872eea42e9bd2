"""The bytes of an accepted connection, plain or through TLS.

asyncio's own TLS does not send the alert when a handshake fails; brokers do.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any, Final

_READ_SIZE: Final = 1 << 16
_UNEXPECTED_MESSAGE: Final = bytes.fromhex("15 0303 0002 02 0a")
"""A broker's alert to a client that does not speak TLS. (OpenSSL does not send it.)"""


class Stream:
    """The stream that a connection reads and writes, without TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def readexactly(self, size: int) -> bytes:
        """Reads bytes. Raises ``asyncio.IncompleteReadError`` at the end, ``OSError`` if the connection is broken."""
        return await self._reader.readexactly(size)

    async def write(self, data: bytes) -> None:
        """Writes bytes. Returns when the peer has read enough of them. Raises ``ConnectionError``."""
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        """Close in good order, so that the written bytes arrive."""
        self._writer.close()
        await self._writer.wait_closed()

    def is_closing(self) -> bool:
        """Whether this end is closed."""
        return self._writer.is_closing()

    def abort(self) -> None:
        """Close at once, as a killed process does."""
        self._writer.transport.abort()


class TlsStream(Stream):
    """The server's side of TLS. ``shake_hands`` comes first."""

    def __init__(self, context: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._read = bytearray()

    @property
    def common_name(self) -> str | None:
        """The common name in the client's certificate."""
        certificate: Any = self._tls.getpeercert() or {}
        names = (pair for part in certificate.get("subject", ()) for pair in part)
        return next((value for name, value in names if name == "commonName"), None)

    async def shake_hands(self) -> None:
        """The TLS handshake. Raises ``ssl.SSLError`` after the alert is sent, ``ConnectionError`` if the client has
        closed the connection."""
        while not await self._is_done():
            await self._receive()

    async def _is_done(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            if not self._outgoing.pending:
                await super().write(_UNEXPECTED_MESSAGE)
            raise
        finally:
            with suppress(ConnectionError):
                await self._flush()
        return True

    async def readexactly(self, size: int) -> bytes:
        while len(self._read) < size:
            try:
                data = self._tls.read(_READ_SIZE)
            except ssl.SSLWantReadError:
                await self._flush()  # the response to a key update
                await self._receive()
                continue
            if not data:
                raise asyncio.IncompleteReadError(bytes(self._read), size)
            self._read += data
        taken = bytes(self._read[:size])
        del self._read[:size]
        return taken

    async def write(self, data: bytes) -> None:
        if data:
            self._tls.write(data)
        await self._flush()

    async def close(self) -> None:
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        await self._flush()
        await super().close()

    async def _receive(self) -> None:
        try:
            data = await self._reader.read(_READ_SIZE)
        except ConnectionError:  # the client had not read all bytes
            data = b""
        if not data:
            raise ConnectionResetError("the client hung up")
        self._incoming.write(data)

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await super().write(self._outgoing.read())
