"""A line through the proxy carries bytes until it is cut, at the byte asked for, or silenced."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.support.proxy import Direction, Proxy
from tests.support.waiting import DEADLINE_S


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE_S)
        yield server


@pytest.fixture
def proxy(listening: socket.socket) -> Iterator[Proxy]:
    with Proxy(listening.getsockname()) as proxy:
        yield proxy


@pytest.fixture
def ends(listening: socket.socket, proxy: Proxy) -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_connection(proxy.address, DEADLINE_S) as client, listening.accept()[0] as broker:
        broker.settimeout(DEADLINE_S)
        yield client, broker


def everything(end: socket.socket) -> bytes:
    """What comes until the other end is gone."""
    received = b""
    try:
        while data := end.recv(100):
            received += data
    except ConnectionResetError:
        pass
    return received


@pytest.mark.parametrize("direction", Direction)
def test_a_line_is_cut_at_the_byte_asked_for_and_both_ends_learn_it(proxy, ends, direction):
    client, broker = ends
    sender, receiver = (client, broker) if direction is Direction.TO_BROKER else (broker, client)
    proxy.cut(direction, 10)
    sender.sendall(b"0123")
    assert receiver.recv(100) == b"0123"
    assert not proxy.is_cut
    sender.sendall(b"456789ab")
    assert everything(receiver) == b"456789"
    assert everything(sender) == b""
    assert proxy.is_cut


PRODUCE, METADATA, END_TXN = 0, 3, 26


def request(api_key: int, correlation_id: int) -> bytes:
    return struct.pack(">ihhi", 12, api_key, 5, correlation_id) + b"body"


def answer(correlation_id: int) -> bytes:
    return struct.pack(">ii", 8, correlation_id) + b"body"


def test_a_line_is_cut_within_the_request_asked_for(proxy, ends):
    client, broker = ends
    proxy.cut_request(END_TXN, Direction.TO_BROKER)
    client.sendall(request(METADATA, 1) + request(END_TXN, 2))
    assert everything(broker) == request(METADATA, 1) + request(END_TXN, 2)[:12]
    assert everything(client) == b""
    assert proxy.is_cut


def test_a_line_is_cut_before_the_answer_to_the_request_asked_for(proxy, ends):
    client, broker = ends
    proxy.cut_request(END_TXN, Direction.TO_CLIENT)
    sent = request(METADATA, 1) + request(END_TXN, 2)
    for byte in sent:  # however the stream is cut into pieces
        client.sendall(bytes([byte]))
    received = b""
    while len(received) < len(sent):
        received += broker.recv(100)
    assert received == sent
    assert not proxy.is_cut
    broker.sendall(answer(1) + answer(2))
    assert everything(client) == answer(1)
    assert proxy.is_cut
    assert [proxy.versions(api_key) for api_key in (METADATA, END_TXN, 0)] == [{5}, {5}, set()]


def expect_delivery(listening, proxy):
    """The request that is held back arrives on a line of its own, and its response comes back."""
    with ThreadPoolExecutor(1) as pool:
        delivered = pool.submit(proxy.deliver)
        late, _ = listening.accept()
        with late:
            late.settimeout(DEADLINE_S)
            assert late.recv(100) == request(END_TXN, 2)
            late.sendall(answer(2))
            assert delivered.result(DEADLINE_S) == answer(2)[4:]


def test_a_request_that_is_held_back_is_delivered_late_on_a_line_of_its_own(listening, proxy, ends):
    client, broker = ends
    proxy.hold_request(END_TXN)
    client.sendall(request(METADATA, 1) + request(END_TXN, 2) + request(METADATA, 3))
    assert broker.recv(100) == request(METADATA, 1)
    assert proxy.holds
    broker.settimeout(0.1)
    with pytest.raises(TimeoutError):
        broker.recv(100)
    expect_delivery(listening, proxy)
    assert not proxy.holds
    with pytest.raises(ValueError, match="no request is held back"):
        proxy.deliver()


def test_a_network_that_is_parted_at_a_request_has_no_line_until_it_heals(listening, proxy, ends):
    client, _ = ends
    with socket.create_connection(proxy.address, DEADLINE_S) as other, listening.accept()[0] as others:
        other.sendall(b"heard")
        assert others.recv(100) == b"heard"
        proxy.cut_request(END_TXN, Direction.TO_BROKER, parted=True)
        client.sendall(request(END_TXN, 1))
        assert everything(client) == everything(other) == b""
    with socket.create_connection(proxy.address, DEADLINE_S) as early:
        assert everything(early) == b""
    proxy.heal()
    with socket.create_connection(proxy.address, DEADLINE_S) as later, listening.accept()[0] as accepted:
        later.sendall(b"heard")
        assert accepted.recv(100) == b"heard"


def test_after_a_silence_neither_end_hears_of_the_other_and_new_lines_work(listening, proxy, ends):
    client, broker = ends
    client.sendall(b"heard")
    assert broker.recv(100) == b"heard"
    assert proxy.silence() == 1
    client.sendall(b"lost")
    broker.settimeout(0.1)
    with pytest.raises(TimeoutError):
        broker.recv(100)
    client.close()
    with pytest.raises(TimeoutError):
        broker.recv(100)
    with socket.create_connection(proxy.address, DEADLINE_S) as later, listening.accept()[0] as accepted:
        later.sendall(b"heard")
        assert accepted.recv(100) == b"heard"


def test_the_end_of_the_proxy_is_not_logged_as_an_error_of_its_lines(listening, caplog):
    """Incident: a traceback for each open connection at the end of a test's log, on Python 3.11."""
    with Proxy(listening.getsockname()) as proxy:
        client = socket.create_connection(proxy.address, DEADLINE_S)
        broker, _ = listening.accept()
    with client, broker:
        assert not caplog.records
