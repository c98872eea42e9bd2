"""``NetworkClient`` over TLS, in memory and with a manual clock: stages, deadlines, back pressure, errors."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from spark_kafka_sink.common.config.option import Password
from spark_kafka_sink.common.model import Node
from spark_kafka_sink.errors import SslAuthenticationError
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.name_lookup import AddressList
from tests.support.scripted_network import ScriptedTransport
from tests.unit.network.conftest import CONFIG, Turns
from tests.unit.security.conftest import HOST, Certificates, Server

CERTIFICATES = Certificates()
TLS_CONFIG = replace(
    CONFIG,
    security_protocol="SSL",
    ssl_truststore_certificates=Password(CERTIFICATES.ca.cert_pem.bytes().decode()),
)


class TlsTransport(ScriptedTransport):
    """Scripted brokers behind the server side of ``ssl``. ``mute``: they take bytes and send none."""

    def __init__(self, context: ssl.SSLContext, **options) -> None:
        super().__init__(**options)
        self.context = context
        self.servers: dict[int, Server] = {}
        self.mute = False

    def connect(self, connection_id: int, host: str, port: int, addresses: AddressList | None = None) -> None:
        self.servers[connection_id] = Server(self.context)
        super().connect(connection_id, host, port, addresses)

    def send(self, connection_id: int, buffers: Sequence[bytes]) -> bool:
        if self.mute:
            return True
        server = self.servers[connection_id]
        plaintext = server.receive(b"".join(buffers))
        self.pass_on(connection_id)
        return super().send(connection_id, (plaintext,))

    def receive(self, connection_id: int, data: bytes) -> None:
        self.servers[connection_id].write(data)
        self.pass_on(connection_id)

    def pass_on(self, connection_id: int) -> None:
        """The bytes that the server has for the client."""
        if output := self.servers[connection_id].take_output():
            super().receive(connection_id, output)


class TlsTurns(Turns):
    """``Turns`` over TLS."""

    def __init__(self, server: ssl.SSLContext, **config: object) -> None:
        super().__init__()
        self.transport = TlsTransport(server, answer=self._answer, accept_all=True)
        self.client = NetworkClient(replace(TLS_CONFIG, **config), self.transport, Random(3))


@pytest.fixture
def turns() -> TlsTurns:
    return TlsTurns(CERTIFICATES.server_context())


@pytest.fixture
def node() -> Node:
    return Node(1, HOST, 9093)


class Chatty:
    """A layer whose peer asks for TLS messages."""

    established = heard = True
    closed_by_peer = False

    def __init__(self, size: int) -> None:
        self.size = size

    def receive(self, data: bytes) -> list[bytes]:
        return []

    def take_output(self) -> bytes:
        return bytes(self.size)

    def close(self) -> None: ...


def test_output_of_tls_that_could_be_written_ends_a_stall(turns, node):
    connection = turns.make_ready(node)
    turns.transport.stalled.add(connection)
    turns.send(node)
    turns.transport.stalled.discard(connection)
    state = turns.client._states[node.id]
    state.connection._tls = Chatty(10)
    turns.client._received(state, state.connection, b"update")
    assert turns.ready(node)  # no Written follows a send that has written all


def test_a_peer_that_asks_for_messages_and_reads_none_is_given_up(turns, node):
    connection = turns.make_ready(node)
    turns.transport.stalled.add(connection)
    turns.send(node)
    state = turns.client._states[node.id]
    state.connection._tls = Chatty(10_000)
    for _ in range(6):
        turns.client._received(state, state.connection, b"update")
    assert connection in turns.transport.open
    turns.client._received(state, state.connection, b"update")
    assert connection not in turns.transport.open
    assert "does not read them" in str(turns.client.last_error(node.id))


def test_the_broker_hears_why_its_certificate_is_refused(turns):
    turns.ready(Node(1, "other.example", 9093))
    turns.turn()
    ((_, error),) = turns.client.drain_disconnects()
    assert isinstance(error, SslAuthenticationError)
    assert "ssl.endpoint.identification.algorithm" in str(error)
    assert turns.transport.servers[1].error.reason == "SSLV3_ALERT_BAD_CERTIFICATE"


def test_a_close_after_tls_and_before_a_response_names_the_keystore(turns, node):
    turns.reach(node)
    turns.drop("EOF", 1)
    assert "see ssl.keystore.location" in str(turns.client.last_error(node.id))


def test_a_name_that_tls_cannot_check_fails_the_connection(turns):
    turns.ready(Node(1, ".bad", 9093))
    turns.turn()
    assert "'.bad' is not a host name" in str(turns.client.last_error(1))
    assert turns.transport.open == set()


def test_the_broker_is_asked_for_by_the_name_of_its_node(node):
    names = []
    server = CERTIFICATES.server_context()
    server.sni_callback = lambda _tls, name, _context: names.append(name)
    TlsTurns(server).make_ready(node)
    assert names == [HOST]
