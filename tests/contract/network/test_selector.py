import os
import socket
import struct
import threading
import time
import tracemalloc

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.network import selector as selector_module
from spark_kafka_sink.network.name_lookup import AddressList, bootstrap_servers
from spark_kafka_sink.network.selector import Closed, Connected, Event, Received, Selector, Written
from spark_kafka_sink.testing import TestBroker
from tests.faults.leaks import nothing_leaks
from tests.support.waiting import DEADLINE_S, eventually, lasts


def until(selector, kind):
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


def read_exactly(sock, size):
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


NAME = "slow.example"


class NameServer:
    """``getaddrinfo`` of the name: answers when it is told to, with these addresses or an error."""

    def __init__(self, monkeypatch):
        self.addresses: list[str] = ["127.0.0.1"]
        self.asked: list[str] = []
        self.may_answer = threading.Event()
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self.getaddrinfo)

    def getaddrinfo(self, host, port, *args, flags=0, **options):
        if host != NAME or flags & socket.AI_NUMERICHOST:
            return self._real(host, port, *args, flags=flags, **options)
        self.asked.append(host)
        assert self.may_answer.wait(DEADLINE_S)
        if not self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in self.addresses]


@pytest.fixture
def names(monkeypatch):
    server = NameServer(monkeypatch)
    yield server
    server.may_answer.set()


def test_a_slow_name_server_does_not_hold_up_other_connections(selector, names, server):
    port = server.getsockname()[1]
    selector.connect(1, NAME, port)
    selector.connect(2, "127.0.0.1", port)
    assert until(selector, Connected) == [Connected(2)]
    peer, _address = server.accept()
    with peer:
        peer.sendall(b"meanwhile")
        assert until(selector, Received) == [Received(2, b"meanwhile")]
    names.may_answer.set()
    assert Connected(1) in until(selector, Connected)


def test_the_end_of_a_lookup_wakes_the_poll(selector, names, server):
    selector.connect(1, NAME, server.getsockname()[1])
    threading.Timer(0.05, names.may_answer.set).start()
    assert selector.poll(8_000) == [], "the connection is only begun"
    assert selector.poll(8_000) == [Connected(1)]


def test_connections_to_one_name_share_a_lookup_and_the_next_asks_again(selector, names, server):
    port = server.getsockname()[1]
    for connection_id in range(1, 6):
        selector.connect(connection_id, NAME, port)
    selector.close(1)
    names.may_answer.set()
    connected: set[int] = set()
    while len(connected) < 4:
        connected |= {event.connection_id for event in until(selector, Connected)}
    assert (connected, len(names.asked)) == ({2, 3, 4, 5}, 1)
    selector.connect(6, NAME, port)
    assert Connected(6) in until(selector, Connected)
    assert len(names.asked) == 2


def test_a_bootstrap_server_whose_name_is_known_later_is_used(names):
    known, names.addresses = names.addresses, []
    names.may_answer.set()
    with TestBroker() as broker:
        port = broker.bootstrap_servers.rpartition(":")[2]
        with KafkaProducer({"bootstrap.servers": f"{NAME}:{port}", "reconnect.backoff.ms": 10}) as producer:
            eventually(lambda: len(names.asked) > 2)
            names.addresses = known
            producer.send(ProducerRecord("t", b"x")).result(DEADLINE_S)
        assert broker.topic("t").values() == [b"x"]


def test_use_all_dns_ips_tries_every_address_of_a_bootstrap_server(names):
    """The first address of the name is nobody's."""
    names.addresses = ["127.0.0.9", "127.0.0.1"]
    names.may_answer.set()
    with TestBroker() as broker:
        port = broker.bootstrap_servers.rpartition(":")[2]
        with KafkaProducer({"bootstrap.servers": f"{NAME}:{port}"}) as producer:
            producer.send(ProducerRecord("t", b"x")).result(DEADLINE_S)
        assert broker.topic("t").values() == [b"x"]


CANONICAL = {"client.dns.lookup": "resolve_canonical_bootstrap_servers_only"}


def servers_of(servers, **options):
    return bootstrap_servers(ProducerConfig.parse({"bootstrap.servers": servers, **CANONICAL, **options}))


def test_resolve_canonical_bootstrap_servers_only_takes_each_address_by_its_name(names, monkeypatch):
    names.addresses = ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
    names.may_answer.set()
    canonical = {"192.0.2.1": "localhost", "192.0.2.2": "leads-nowhere.invalid", "192.0.2.3": "192.0.2.3"}
    monkeypatch.setattr(socket, "getnameinfo", lambda address, _flags: (canonical[address[0]], str(address[1])))
    assert servers_of(f"{NAME}:9092") == (("localhost", 9092), ("192.0.2.2", 9092), ("192.0.2.3", 9092))


def test_a_server_that_cannot_be_resolved_is_left_out_and_none_at_all_is_refused(names, caplog):
    names.addresses = []
    names.may_answer.set()
    assert servers_of(f"{NAME}:9092,127.0.0.1:9093") != ()
    assert f"Couldn't resolve server {NAME}:9092 from bootstrap.servers" in caplog.text
    with pytest.raises(ConfigError, match=f"no host name of bootstrap.servers can be resolved: {NAME}:9092"):
        servers_of(f"{NAME}:9092")
    assert len(names.asked) == 2, "once for each"


def test_by_default_nothing_is_looked_up_before_it_is_connected_to(names):
    assert bootstrap_servers(ProducerConfig.parse({"bootstrap.servers": f"{NAME}:9092"})) == ((NAME, 9092),)
    assert names.asked == []
