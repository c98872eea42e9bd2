"""Both ends of a TLS connection in memory: our layer, and ``ssl`` as the server."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import trustme

from spark_kafka_sink.network.security.tls import TlsLayer
from tests.unit.security.tls_peers import HOST


class Certificates:
    """A CA, a certificate of the server, and contexts of both sides."""

    def __init__(self) -> None:
        self.ca = trustme.CA()
        self.server = self.ca.issue_cert(HOST, "127.0.0.1")

    def client_context(self, trusted: trustme.CA | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        (trusted or self.ca).configure_trust(context)
        return context

    def server_context(self, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        (certificate or self.server).configure_cert(context)
        return context


class Server:
    """``ssl``'s server side, on bytes."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.established = False
        self.error: ssl.SSLError | None = None

    def receive(self, data: bytes) -> bytes:
        """The plaintext in ``data``."""
        self._incoming.write(data)
        plaintext = bytearray()
        try:
            if not self.established:
                self.tls.do_handshake()
                self.established = True
            while read := self.tls.read(16 * 1024):
                plaintext += read
        except ssl.SSLWantReadError:
            return bytes(plaintext)
        except ssl.SSLError as error:
            self.error = error
        return bytes(plaintext)

    def write(self, data: bytes) -> None:
        self.tls.write(data)

    def take_output(self) -> bytes:
        return self._outgoing.read()

    def close(self) -> None:
        with suppress(ssl.SSLError):
            self.tls.unwrap()


class Pair:
    """A client's layer and a server. ``cut`` says in what parts bytes arrive."""

    def __init__(self, client: ssl.SSLContext, server: ssl.SSLContext, host: str = HOST) -> None:
        self.layer = TlsLayer(client, host, 9093)
        self.server = Server(server)
        self.at_client = bytearray()
        self.at_server = bytearray()
        self.cut: Callable[[bytes], Iterator[bytes]] = lambda data: iter([data])

    def connect(self) -> Pair:
        self.layer.shake_hands()
        self.exchange()
        return self

    def exchange(self) -> None:
        """Carries bytes until both sides are quiet."""
        while True:
            up = self.layer.take_output()
            self.at_server += self.server.receive(up)
            down = self.server.take_output()
            if not up and not down:
                return
            for part in self.cut(down):
                for plaintext in self.layer.receive(part):
                    self.at_client += plaintext


@pytest.fixture(scope="session")
def certificates() -> Certificates:
    return Certificates()


@pytest.fixture(scope="session")
def other_ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def version(request) -> ssl.TLSVersion:
    return request.param
