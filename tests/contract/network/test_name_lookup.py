"""``client.dns.lookup``, and name servers that take their time or do not know."""

from __future__ import annotations

import socket
import threading

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.network.name_lookup import bootstrap_servers
from spark_kafka_sink.network.selector import Connected, Received, Selector
from spark_kafka_sink.testing import TestBroker
from tests.contract.network.test_selector import until
from tests.support.waiting import DEADLINE_S, eventually

NAME = "slow.example"


class NameServer:
    """``getaddrinfo`` of the name: answers when it is told to, with these addresses or an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses: list[str] = ["127.0.0.1"]
        self.asked: list[str] = []
        self.may_answer = threading.Event()
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self.getaddrinfo)

    def getaddrinfo(self, host: str, port: int, *args: object, flags: int = 0, **options: object) -> object:
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


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(DEADLINE_S)
        yield listening


@pytest.fixture
def selector():
    each = Selector()
    yield each
    each.shutdown()


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


def servers_of(servers: str, **options: str) -> tuple[tuple[str, int], ...]:
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
    with pytest.raises(ConfigError, match=f"no server of bootstrap.servers can be resolved: {NAME}:9092"):
        servers_of(f"{NAME}:9092")
    assert len(names.asked) == 2, "once for each"


def test_by_default_nothing_is_looked_up_before_it_is_connected_to(names):
    assert bootstrap_servers(ProducerConfig.parse({"bootstrap.servers": f"{NAME}:9092"})) == ((NAME, 9092),)
    assert names.asked == []
