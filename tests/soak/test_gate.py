from __future__ import annotations

import socket
import threading
from contextlib import suppress

import pytest

from tests.faults.support.proxy import LOOPBACK, Direction
from tests.soak.gate import Gate
from tests.support.waiting import DEADLINE_S, eventually


class Echo:
    """Accepts connections, notes what it gets and sends it back."""

    def __init__(self) -> None:
        self.got = b""
        self._listening = socket.create_server((LOOPBACK, 0))
        self.address = self._listening.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        with line, suppress(OSError):  # it was parted
            while data := line.recv(100):
                self.got += data
                line.sendall(data)


@pytest.fixture
def echo():
    echo = Echo()
    yield echo
    with suppress(OSError):
        echo.close()


@pytest.fixture
def gate(echo):
    with Gate(echo.address) as gate:
        yield gate


@pytest.fixture
def client(gate):
    with socket.create_connection(gate.address, DEADLINE_S) as client:
        yield client


def expect_nothing(client):
    """No response comes yet."""
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(10)
    client.settimeout(DEADLINE_S)


@pytest.mark.parametrize("direction", Direction)
def test_what_one_side_sends_waits_until_the_gate_is_open(direction, echo, gate, client):
    gate.close(direction)
    client.sendall(b"a")
    if direction is Direction.TO_CLIENT:
        eventually(lambda: echo.got == b"a")
    expect_nothing(client)
    assert echo.got == (b"a" if direction is Direction.TO_CLIENT else b"")
    gate.heal()
    assert client.recv(10) == b"a"


def test_connections_through_a_parted_gate_break_until_it_heals(gate, client):
    client.sendall(b"a")
    assert client.recv(10) == b"a"
    assert gate.part() == 1
    assert client.recv(10) == b""
    with socket.create_connection(gate.address, DEADLINE_S) as early:
        assert _everything(early) == b""
    gate.heal()
    with socket.create_connection(gate.address, DEADLINE_S) as late:
        late.sendall(b"b")
        assert late.recv(10) == b"b"


def _everything(client):
    """What comes until the connection ends, however it does."""
    with suppress(ConnectionError):
        return client.recv(10)
    return b""
