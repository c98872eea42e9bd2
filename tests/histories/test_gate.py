from __future__ import annotations

import socket
import threading
from contextlib import suppress

import pytest

from spark_kafka_sink.testing.proxy import LOOPBACK, Direction
from tests.histories.gate import Gate
from tests.waiting import DEADLINE_S, eventually, lasts


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
        with line:
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


def test_what_is_sent_through_an_open_gate_arrives(echo, client):
    client.sendall(b"a")
    assert client.recv(10) == b"a"
    assert echo.got == b"a"


def test_requests_wait_for_a_gate_that_is_closed_for_them(echo, gate, client):
    gate.close(Direction.TO_BROKER)
    client.sendall(b"a")
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(10)
    assert echo.got == b""
    client.settimeout(DEADLINE_S)
    gate.heal()
    assert client.recv(10) == b"a"


def test_responses_wait_for_a_gate_that_is_closed_for_them_and_requests_do_not(echo, gate, client):
    gate.close(Direction.TO_CLIENT)
    client.sendall(b"a")
    eventually(lambda: echo.got == b"a")
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(10)
    client.settimeout(DEADLINE_S)
    gate.heal()
    assert client.recv(10) == b"a"


def test_what_a_client_sent_before_it_gave_up_arrives_late(echo, gate, client):
    gate.close(Direction.TO_BROKER)
    client.sendall(b"a")
    client.close()
    gate.heal()
    eventually(lambda: echo.got == b"a")


def test_a_slow_gate_delays_both_directions(gate, client):
    gate.delay(0.1)
    with lasts(0.2):
        client.sendall(b"a")
        assert client.recv(10) == b"a"


def test_a_gate_before_nothing_closes_its_connections(echo, gate, client):
    echo.close()
    with socket.create_connection(gate.address, DEADLINE_S) as late:
        assert late.recv(10) == b""
