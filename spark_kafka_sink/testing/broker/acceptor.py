"""One node's listening socket and the connections it accepted (Kafka: ``Acceptor``, ``Processor``)."""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
import ssl
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from spark_kafka_sink.testing.broker.authentication import TLS, AtListener, LoginSession
from spark_kafka_sink.testing.broker.connection import ClientConnection
from spark_kafka_sink.testing.broker.handler_pool import HandlerPool
from spark_kafka_sink.testing.broker.stream import Stream, TlsStream
from spark_kafka_sink.testing.certificates import CertificateAuthority
from spark_kafka_sink.testing.listener import Listener

LOOPBACK: Final = "127.0.0.1"
_READ_LIMIT: Final = 1 << 20
_HANDSHAKE_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.005

# Below the ephemeral ports: no other process gets a killed node's port before it is started again.
_PORTS: Final = range(10_000, 15_000)
_ATTEMPTS: Final = 1_000


class Acceptor:
    """The listening socket of one listener. Opens on ``port``, 0 for a free one, then always on the same port. Loop
    thread only. ``tls``: None for plaintext."""

    def __init__(
        self,
        at: AtListener,
        port: int,
        pool: HandlerPool,
        numbers: itertools.count[int],
        max_request_bytes: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.port = port
        self._at = at
        self._pool = pool
        self._numbers = numbers
        self._max_request_bytes = max_request_bytes
        self._tls = tls
        self._socket: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: dict[ClientConnection, asyncio.Task[Any]] = {}
        self._handshaking: set[socket.socket] = set()
        self._running = asyncio.Event()
        self._running.set()

    def open(self) -> None:
        self._socket = _listening(self.port) if self.port else _listening_anywhere()
        self._socket.setblocking(False)
        self.port = self._socket.getsockname()[1]
        asyncio.get_running_loop().add_reader(self._socket, self._accept, self._socket)

    def close(self) -> None:
        """Stop listening and cut every connection, as ``kill -9`` does."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        self.cut_connections()

    async def closed(self) -> None:
        """Waits, after ``close``, until no connection is served."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut_connections(self) -> None:
        """Close the present connections; new ones are accepted."""
        for connection, task in list(self._connections.items()):
            connection.abort()
            task.cancel()
        for accepted in self._handshaking:
            with suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)

    def pause(self) -> None:
        """Read and write nothing, as a process under SIGSTOP; connections are still accepted, as the kernel does."""
        self._running.clear()

    def resume(self) -> None:
        self._running.set()

    def _accept(self, listening: socket.socket) -> None:
        with suppress(BlockingIOError, ConnectionAbortedError):
            accepted, _ = listening.accept()
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = asyncio.get_running_loop().create_task(self._serve(accepted, listening))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, accepted: socket.socket, listening: socket.socket) -> None:
        """Serves a connection. ``close`` does not cancel a task whose connection is not known yet, because that would
        leave the socket open."""
        number = next(self._numbers)
        self._handshaking.add(accepted)
        try:
            stream = await self._stream(number, accepted, listening)
        finally:
            self._handshaking.discard(accepted)
        if stream is None:
            return
        connection = ClientConnection(number, LoginSession(self._at, number), self._at.node, stream, self._running)
        task = asyncio.current_task()
        assert task is not None
        self._connections[connection] = task
        try:
            if self._socket is not listening:
                return
            while (frame := await connection.read_frame(self._max_request_bytes)) is not None:
                await self._pool.serve(connection, frame)
        finally:
            connection.abort()
            del self._connections[connection]

    async def _stream(self, number: int, accepted: socket.socket, listening: socket.socket) -> Stream | None:
        """The connection's stream; None when the TLS handshake failed."""
        reader, writer = await asyncio.open_connection(sock=accepted, limit=_READ_LIMIT)
        if self._tls is None:
            return Stream(reader, writer)
        stream = TlsStream(self._tls, reader, writer)
        try:
            async with asyncio.timeout(_HANDSHAKE_TIMEOUT_S):
                while not self._running.is_set() and self._socket is listening:
                    await asyncio.sleep(_POLL_S)
                await stream.shake_hands()
        except OSError as error:  # with TLS's own errors and the timeout
            self._at.note(number, TLS, error=str(error) or type(error).__name__)
            stream.abort()
            return None
        self._at.note(number, TLS, stream.common_name)
        return stream


def _listening(port: int) -> socket.socket:
    return socket.create_server((LOOPBACK, port), backlog=128)


def _listening_anywhere() -> socket.socket:
    for _ in range(_ATTEMPTS):
        with suppress(OSError):
            return _listening(random.choice(_PORTS))
    raise OSError(f"no free port among {_PORTS.start} to {_PORTS.stop - 1} on {LOOPBACK}")


def server_contexts(
    listeners: Mapping[str, Listener], authority: CertificateAuthority | None
) -> dict[str, ssl.SSLContext]:
    """The TLS context of each listener with TLS."""
    if authority is None:
        return {}
    return {name: _server_context(each, authority) for name, each in listeners.items() if each.has_tls}


def _server_context(listener: Listener, authority: CertificateAuthority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # ssl reads keys from files only
        file.write(listener.key_store(authority))
        file.flush()
        context.load_cert_chain(file.name)
    context.load_verify_locations(cadata=authority.certificate)
    context.verify_mode = {
        "none": ssl.CERT_NONE,
        "requested": ssl.CERT_OPTIONAL,
        "required": ssl.CERT_REQUIRED,
    }[listener.client_auth]
    return context
