"""Peers that do not go through with TLS, on real sockets: one clear error within the timeouts, and nothing stays."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable

import pytest
import trustme

from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError
from spark_kafka_sink.producer.record import ProducerRecord
from tests.faults.leaks import nothing_leaks
from tests.support.peers import Serve, peer, silent

SETUP_MS = 300
MAX_BLOCK_MS = 2_500
CA = trustme.CA()


def silent_in_a_record(connection: socket.socket) -> None:
    connection.sendall(b"\x16\x03\x03\x40\x00" + bytes(100))
    silent(connection)


def closing(connection: socket.socket) -> None:
    connection.recv(4096)


def over_tls(connection: socket.socket) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert("127.0.0.1").configure_cert(context)
    return context.wrap_socket(connection, server_side=True)


def silent_after_tls(connection: socket.socket) -> None:
    with over_tls(connection) as tls:
        silent(tls)


def send(config: dict[str, object]) -> None:
    with KafkaProducer(config) as producer:
        producer.send(ProducerRecord("t", value=b"v")).result()


def init_transactions(config: dict[str, object]) -> None:
    with KafkaProducer(config | {"transactional.id": "x"}) as producer:
        producer.init_transactions()


def error_of(servers: str, call: Callable[[dict[str, object]], None] = send, **options: object) -> KafkaError:
    config: dict[str, object] = {
        "bootstrap.servers": servers,
        "security.protocol": "SSL",
        "ssl.truststore.certificates": CA.cert_pem.bytes().decode(),
        "socket.connection.setup.timeout.ms": SETUP_MS,
        "request.timeout.ms": 300,
        "delivery.timeout.ms": 1_000,
        "max.block.ms": MAX_BLOCK_MS,
        "linger.ms": 0,
        "reconnect.backoff.ms": 20,
        "retry.backoff.ms": 20,
    }
    with pytest.raises(KafkaError) as raised:
        call(config | options)
    return raised.value


@pytest.mark.parametrize("serve", [silent, silent_in_a_record])
def test_a_peer_that_stops_in_the_tls_handshake_is_given_up_by_the_setup_timeout(serve: Serve) -> None:
    with nothing_leaks(), peer(serve) as servers:
        error = error_of(servers)
    assert isinstance(error, KafkaTimeoutError)
    assert "(socket.connection.setup.timeout.ms)" in str(error)


def test_a_peer_that_is_silent_after_tls_is_given_up_by_the_request_timeout() -> None:
    with nothing_leaks(), peer(silent_after_tls) as servers:
        error = error_of(servers, **{"socket.connection.setup.timeout.ms": 10_000})
    assert "did not respond to ApiVersions v4 within" in str(error)
    assert "(request.timeout.ms)" in str(error)


@pytest.mark.parametrize("call", [send, init_transactions])
def test_a_peer_that_closes_names_the_protocol_in_every_call(call: Callable[[dict[str, object]], None]) -> None:
    with nothing_leaks(), peer(closing) as servers:
        error = error_of(servers, call)
    assert "Is it a listener without TLS? See security.protocol" in str(error)
