"""One node's listening socket and the connections it accepted (Kafka: ``Acceptor``, ``Processor``)."""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
from contextlib import suppress
from typing import Any, Final

from spark_kafka_sink.testing.broker.connection import Connection
from spark_kafka_sink.testing.broker.handler_pool import HandlerPool

LOOPBACK: Final = "127.0.0.1"
_READ_LIMIT: Final = 1 << 20


# Below the ephemeral ports: no other process gets a killed node's port before it is started again.
_PORTS: Final = range(10_000, 15_000)
_ATTEMPTS: Final = 1_000


class Listener:
    """Opens on ``port``, 0 for a free one, then always on the same port. Loop thread only."""

    def __init__(
        self, node: int, port: int, pool: HandlerPool, numbers: itertools.count[int], max_request_bytes: int
    ) -> None:
        self.port = port
        self._node = node
        self._pool = pool
        self._numbers = numbers
        self._max_request_bytes = max_request_bytes
        self._socket: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: dict[Connection, asyncio.Task[Any]] = {}
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
        """Until nothing runs here any more; after ``close``."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut_connections(self) -> None:
        """Close the present connections; new ones are accepted."""
        for connection, task in list(self._connections.items()):
            connection.abort()
            task.cancel()

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
        """``close`` does not cancel a task whose connection is not known yet: it would leave the socket open."""
        streams = await asyncio.open_connection(sock=accepted, limit=_READ_LIMIT)
        connection = Connection(next(self._numbers), self._node, streams, self._running)
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


def _listening(port: int) -> socket.socket:
    return socket.create_server((LOOPBACK, port), backlog=128)


def _listening_anywhere() -> socket.socket:
    for _ in range(_ATTEMPTS):
        with suppress(OSError):
            return _listening(random.choice(_PORTS))
    raise OSError(f"no free port among {_PORTS.start} to {_PORTS.stop - 1} on {LOOPBACK}")
