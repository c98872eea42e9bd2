"""TLS handshakes in memory, for tests of contexts: our context as the client, ``ssl`` as the server."""

from __future__ import annotations

import ssl
from contextlib import suppress
from dataclasses import dataclass

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.network.security.tls_context import TlsContexts

HOST = "broker.example"


@dataclass(frozen=True)
class Session:
    """What both sides of a finished handshake see."""

    version: str | None
    cipher: str
    client_certificate: bytes | None


def config(**options: object) -> ProducerConfig:
    """``ssl_keystore_location=…``: ``ssl.keystore.location``."""
    given = {name.replace("_", "."): value for name, value in options.items()}
    return ProducerConfig.parse({"bootstrap.servers": f"{HOST}:9093", "security.protocol": "SSL", **given})


def client_context(**options: object) -> ssl.SSLContext:
    return TlsContexts(config(**options)).context()


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, host: str = HOST) -> Session:
    """Raises ``ssl.SSLError`` of the side that refuses the other."""
    upstream, downstream = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(downstream, upstream, server_hostname=host),
        server.wrap_bio(upstream, downstream, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    cipher = ends[0].cipher()
    assert cipher is not None
    return Session(ends[0].version(), cipher[0], ends[1].getpeercert(binary_form=True))
