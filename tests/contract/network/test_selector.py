from __future__ import annotations

import os
import socket
import struct
import threading
import time
import tracemalloc

import pytest

from spark_kafka_sink.network import selector as selector_module
from spark_kafka_sink.network.name_lookup import AddressList
from spark_kafka_sink.network.selector import Closed, Connected, Event, Received, Selector, Written
from tests.faults.leaks import nothing_leaks
from tests.support.waiting import DEADLINE_S, eventually, lasts


def until(selector: Selector, kind: type) -> list[Event]:
    """Polls until an event of ``kind`` came; all events up to there."""
    events: list[Event] = []
    eventually(
        lambda: events.extend(selector.poll(100)) or any(isinstance(event, kind) for event in events),
        f"no {kind.__name__} came",
    )
    return events


@pytest.fixture
def selector():
    with nothing_leaks():
        each = Selector()
        yield each
        each.shutdown()


@pytest.fixture
def server(selector):  # after the selector, so that its own sockets are gone before the count
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(DEADLINE_S)
        yield listening


@pytest.fixture
def peer(selector, server):
    """The other end of connection 1."""
    selector.connect(1, *server.getsockname())
    accepted, _address = server.accept()
    accepted.settimeout(DEADLINE_S)
    assert until(selector, Connected) == [Connected(1)]
    with accepted:
        yield accepted


def read_exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = sock.recv(min(1 << 20, size - len(data)))
        assert chunk
        data += chunk
    return bytes(data)


def test_what_is_sent_while_connecting_follows_the_connection(selector, server):
    selector.connect(1, *server.getsockname())
    assert not selector.send(1, (b"early",))
    assert until(selector, Written) == [Connected(1), Written(1)]
    accepted, _address = server.accept()
    with accepted:
        assert read_exactly(accepted, 5) == b"early"


def test_the_options_of_the_socket(server):
    selector = Selector(send_buffer_bytes=40_000, receive_buffer_bytes=50_000)
    selector.connect(1, *server.getsockname())
    until(selector, Connected)
    sock = selector._connections[1].sock
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (40_000, 80_000)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (50_000, 100_000)
    selector.shutdown()


def test_a_slow_reader_gets_everything_in_order_and_written_is_told_once(selector, peer):
    payload = os.urandom(10_000_000)
    view = memoryview(payload)
    pieces = [view[i : i + 4_999] for i in range(0, len(view), 4_999)]
    assert len(pieces) > 1024
    assert not selector.send(1, pieces)
    assert not selector.send(1, (b"tail",))
    received = bytearray()

    def read_slowly():
        time.sleep(0.1)
        received.extend(read_exactly(peer, len(payload) + 4))

    reader = threading.Thread(target=read_slowly)
    reader.start()
    events = until(selector, Written)
    reader.join(DEADLINE_S)
    assert events == [Written(1)]
    assert received == payload + b"tail"
    with lasts(0.03):  # otherwise it still asks to be told when it may write
        assert selector.poll(30) == []


def test_parts_of_a_request_end_no_poll_and_a_wakeup_meanwhile_does(selector, peer):
    selector.send(1, (b"x" * (64 << 20),))
    reading = threading.Thread(target=read_exactly, args=(peer, 24 << 20))
    reading.start()
    while reading.is_alive():  # in many parts; the sockets cannot hold the rest
        with lasts(0.01):
            assert selector.poll(10) == []
    selector.wakeup()
    assert selector.poll(DEADLINE_S * 1000) == []
    reading = threading.Thread(target=read_exactly, args=(peer, 40 << 20))
    reading.start()
    assert until(selector, Written) == [Written(1)]
    reading.join()


def test_sending_copies_nothing_and_lets_go_of_what_is_written(selector, peer):
    payload = bytearray(10_000_000)
    reader = threading.Thread(target=read_exactly, args=(peer, len(payload)))
    tracemalloc.start()
    selector.send(1, (payload,))
    _current, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000
    with pytest.raises(BufferError):
        payload.append(0)
    reader.start()
    until(selector, Written)
    reader.join(DEADLINE_S)
    payload.append(0)


def test_the_end_of_the_stream_comes_after_its_last_bytes(selector, peer):
    peer.sendall(b"bye")
    peer.close()
    events = until(selector, Closed)
    assert events == [Received(1, b"bye"), Closed(1, "the broker closed the connection")]


@pytest.mark.parametrize(
    ("host", "port"), [("no-such-host.invalid", 9092), ("a" * 300, 9092), ("", -5), ("127.0.0.1", 99999)]
)
def test_an_address_that_cannot_be_is_an_event_not_an_exception(selector, host, port):
    selector.connect(1, host, port)
    (closed,) = until(selector, Closed)
    assert closed.reason


def test_each_attempt_takes_the_next_address_and_the_name_is_looked_up_after_the_last(selector, monkeypatch):
    """With three addresses, two of them silent, the third was never tried."""
    addresses = [("192.0.2.1", 9), ("192.0.2.2", 9), ("192.0.2.3", 9)]
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]
    lookups = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, flags=0, **_options: lookups.append(flags) or found)
    monkeypatch.setattr(selector_module, "numeric_address", lambda _host, _port: ())
    tried = []
    monkeypatch.setattr(Selector, "_start_connecting", lambda _self, _link, _family, address: tried.append(address))
    addresses_of_the_node = AddressList()
    for connection_id in range(1, 6):
        selector.connect(connection_id, "three", 9, addresses_of_the_node)
        while len(tried) < connection_id:
            selector.poll(100)
        selector.close(connection_id)
    assert tried == [*addresses, *addresses[:2]]
    assert len(lookups) == 2


def test_no_wakeup_is_ever_lost(selector):
    """Many hand-overs back and forth: each must end a poll that would otherwise last for ever."""
    rounds = 3000
    turn = threading.Semaphore(0)
    handed = [0]

    def waker():
        for i in range(1, rounds + 1):
            if i % 3:
                time.sleep(0)
            handed[0] = i
            selector.wakeup()
            if not turn.acquire(timeout=DEADLINE_S):
                return

    thread = threading.Thread(target=waker)
    thread.start()
    for i in range(1, rounds + 1):
        while handed[0] < i:
            selector.poll(float("inf"))
        turn.release()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def test_incident_a_write_that_failed_was_told_apart_from_a_whole_one_by_nothing(selector, peer):
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()  # by a reset
    while selector.send(1, (b"x",)):
        continue
    assert not selector.send(1, (b"x",)), "the connection has ended"
    assert [type(event) for event in until(selector, Closed)] == [Closed]
