"""Peers of a connection that speak as a test says: a listener on loopback with a function that serves connections."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from tests.support.waiting import DEADLINE_S

Serve = Callable[[socket.socket], None]


@contextlib.contextmanager
def peer(serve: Serve) -> Iterator[str]:
    """The address of a listener that serves one connection after the other, and then closes it."""
    stopped = threading.Event()

    def run() -> None:
        while not stopped.is_set():
            with contextlib.suppress(OSError), server.accept()[0] as connection:
                connection.settimeout(DEADLINE_S)
                serve(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            stopped.set()
            thread.join()


@contextlib.contextmanager
def nobody() -> Iterator[str]:
    """An address where nothing listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{unused.getsockname()[1]}"


def silent(connection: socket.socket) -> None:
    """Reads, and never says a word."""
    while connection.recv(4096):
        continue


def responding(response: bytes) -> Serve:
    """Sends this after the first bytes of a request, and waits until the client closes the connection or its end."""

    def respond(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(response)
        connection.shutdown(socket.SHUT_WR)
        silent(connection)  # closed before the request is read, it would be reset

    return respond
