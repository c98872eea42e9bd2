from __future__ import annotations

import socket

import pytest

from tests.faults.support.proxy import Direction
from tests.soak.gate import Gate
from tests.support.waiting import DEADLINE_S


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE_S)
        yield server


def everything(end):
    """What comes until the other end is gone."""
    received = b""
    try:
        while data := end.recv(100):
            received += data
    except ConnectionResetError:
        pass
    return received


@pytest.fixture
def gate(listening):
    with Gate(listening.getsockname()) as gate:
        yield gate


@pytest.fixture
def connect(listening, gate):
    """Opens a connection through the gate; gives both of its ends."""
    opened = []

    def connect():
        client = socket.create_connection(gate.address, DEADLINE_S)
        broker, _ = listening.accept()
        broker.settimeout(DEADLINE_S)
        opened.extend((client, broker))
        return client, broker

    yield connect
    for end in opened:
        end.close()


@pytest.mark.parametrize("direction", Direction)
def test_what_one_side_sends_waits_until_the_gate_is_open(direction, gate, connect):
    client, broker = connect()
    sender, receiver = (client, broker) if direction is Direction.TO_BROKER else (broker, client)
    gate.close(direction)
    sender.sendall(b"a")
    receiver.sendall(b"the other direction")
    assert sender.recv(100) == b"the other direction"
    receiver.settimeout(0.2)
    with pytest.raises(TimeoutError):
        receiver.recv(10)
    receiver.settimeout(DEADLINE_S)
    gate.heal()
    assert receiver.recv(10) == b"a"


def test_connections_through_a_parted_gate_break_until_it_heals(gate, connect):
    client, _ = connect()
    assert gate.part() == 1
    assert everything(client) == b""
    with socket.create_connection(gate.address, DEADLINE_S) as early:
        assert everything(early) == b""
    gate.heal()
    client, broker = connect()
    client.sendall(b"b")
    assert broker.recv(10) == b"b"
