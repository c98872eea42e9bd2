"""Stores, logins and configuration: files of users, and what identity providers send."""

from __future__ import annotations

import hashlib
import json
import socket
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch
from uuid import UUID

from asn1crypto.keys import EncryptedPrivateKeyInfo
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
from urllib3.connection import HTTPConnection

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.config_providers import ConfigProviders, has_placeholder
from spark_kafka_sink.common.config.jaas import parse_jaas
from spark_kafka_sink.common.config.properties import parse_properties
from spark_kafka_sink.errors import LoginError
from spark_kafka_sink.network.login.http import HttpLimits, HttpRequest, exchange, without_secrets
from spark_kafka_sink.network.login.token_endpoint import EndpointOptions, TimeoutOption, TokenEndpoint, _error_of
from spark_kafka_sink.network.login.token_sources import jwt
from spark_kafka_sink.network.security.stores import key_pair, trusted_certificates
from spark_kafka_sink.spark.checkpoint import query_id
from spark_kafka_sink.tools.cli.console_producer import LineReader
from tests.properties.test_hostile_security import LOGIN, contexts
from tests.unit.security.certificates import key_pem, pem
from tests.unit.security.test_stores import CA_CERTIFICATE, CERTIFICATE, CHAIN, CLIENT, PEM, SECRET, jks
from tests.unit.security.tls_peers import config

_JKS_OF_JAVA: Final = "1.3.6.1.4.1.42.2.17.1.1"
_HTTP: Final = HttpLimits(60_000, 60_000, 60_000, 1_000)
PASSWORD: Final = "pa55"
"""Of ASCII, as in headers of HTTP."""
_DIGEST: Final = hashlib.sha1().digest_size
_NAMED: Final = config(ssl_truststore_location="store", ssl_keystore_location="store")
_WITH_PASSWORD: Final = config(
    ssl_truststore_location="store", ssl_truststore_password=SECRET,
    ssl_keystore_location="store", ssl_keystore_password=SECRET, ssl_key_password=SECRET,
)  # fmt: skip


def trust(data: bytes) -> None:
    trusted_certificates(_NAMED, data)


def trust_with_password(data: bytes) -> None:
    trusted_certificates(_WITH_PASSWORD, data)


def pair(data: bytes) -> None:
    key_pair(_WITH_PASSWORD, data)


def with_digest(data: bytes) -> bytes:
    """A JKS file with the digest that it should have."""
    content = data[:-_DIGEST]
    return content + hashlib.sha1(SECRET.encode("utf-16-be") + b"Mighty Aphrodite" + content).digest()


def _trust_with_digest(data: bytes) -> None:
    trust_with_password(with_digest(data))


def _pair_with_digest(data: bytes) -> None:
    pair(with_digest(data))


JKS: Final = (_trust_with_digest, _pair_with_digest)


def protected(key: bytes) -> bytes:
    """PKCS8 bytes as Java's ``KeyProtector`` encrypts them."""
    secret, salt = SECRET.encode("utf-16-be"), bytes(range(_DIGEST))
    stream, last = b"", salt
    while len(stream) < len(key):
        last = hashlib.sha1(secret + last).digest()
        stream += last
    encrypted = bytes(one ^ other for one, other in zip(key, stream, strict=False))
    data = salt + encrypted + hashlib.sha1(secret + key).digest()
    algorithm = {"algorithm": _JKS_OF_JAVA}
    dumped: bytes = EncryptedPrivateKeyInfo({"encryption_algorithm": algorithm, "encrypted_data": data}).dump()
    return dumped


def jks_seeds() -> Sequence[bytes]:
    key = protected(CLIENT.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))
    placeholder = b"\0\0\0\x09encrypted"
    with_key = jks(keys=[CHAIN]).replace(placeholder, len(key).to_bytes(4, "big") + key)
    return [jks(CA_CERTIFICATE), jks(CA_CERTIFICATE, CERTIFICATE), with_digest(with_key), jks(magic="cececece")]


def pkcs12_seeds() -> Sequence[bytes]:
    """With one round of key derivation, so that reading is quick."""
    encryption = PrivateFormat.PKCS12.encryption_builder().kdf_rounds(1).build(SECRET.encode())
    others = [CA_CERTIFICATE, *CHAIN[1:]]
    return [
        pkcs12.serialize_key_and_certificates(b"client", CLIENT.key, CERTIFICATE, others, encryption),
        pkcs12.serialize_key_and_certificates(None, None, None, [CA_CERTIFICATE], encryption),
        pkcs12.serialize_key_and_certificates(b"client", CLIENT.key, CERTIFICATE, others, NoEncryption()),
    ]


def pem_seeds() -> Sequence[bytes]:
    together = pem(*CHAIN) + key_pem(CLIENT.key)
    return [PEM.encode(), together, together.replace(b"\n", b"\\n"), b"subject=CN = ca\n" + pem(CA_CERTIFICATE)]


def context(data: bytes) -> None:
    """TLS contexts of a truststore and a keystore, both with this content."""
    with TemporaryDirectory() as folder:
        contexts(Path(folder), PEM.encode(), data, password=True)
        contexts(Path(folder), data, None, password=True)


def context_seeds() -> Sequence[bytes]:
    return [pem(*CHAIN) + key_pem(CLIENT.key), jks_seeds()[2], pkcs12_seeds()[0]]


def jaas(data: bytes) -> None:
    parse_jaas(data.decode(errors="replace"))


def jaas_option(data: bytes) -> None:
    options = {"bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    ProducerConfig.parse({**options, "sasl.jaas.config": data.decode(errors="replace")})


def jaas_seeds() -> Sequence[bytes]:
    scram = (
        'org.apache.kafka.common.security.scram.ScramLoginModule required\n username=u // name\n password="p\\"\\141";'
    )
    return [LOGIN.encode(), scram.encode(), b"a.B optional x=\"1\" /* y */ z='2';"]


def properties(data: bytes) -> None:
    text = data.decode(errors="replace")
    for name, value in parse_properties(text).items():
        assert len(name) + len(value) <= len(text)


def placeholders(data: bytes) -> None:
    text = data.decode(errors="replace")
    providers = ConfigProviders(())
    assert providers.resolve(text).text == text
    assert has_placeholder(text) == (providers.fault(text) is not None)


def properties_seeds() -> Sequence[bytes]:
    return [
        b"# comment\nacks=all\nlinger.ms : 5\nkey\\ with\\ blanks=a\\\n   b\n! other\nname = ${file:/a:b}\n",
        "é=\\u00e9\r\n\\:\\==\\t\\n\r${env:NAME}".encode(),
    ]


def token(data: bytes) -> None:
    jwt("url", data.decode(errors="replace"))


def claims(data: bytes) -> None:
    """As the claims of a JWT."""
    encoded = urlsafe_b64encode(data).rstrip(b"=").decode()
    jwt("url", f"e30.{encoded}.c2ln")


def claims_seeds() -> Sequence[bytes]:
    claims: dict[str, Any] = {"exp": 1_700_000_000, "iat": 1_600_000_000.5, "sub": "alice", "aud": ["kafka"]}
    return [json.dumps(claims).encode(), b'{"exp":1e12}']


def token_seeds() -> Sequence[bytes]:
    return [b"e30." + urlsafe_b64encode(each).rstrip(b"=") + b".c2ln" for each in claims_seeds()]


class _NoTls:
    def tls_config(self) -> ProducerConfig:
        raise AssertionError("nothing is requested")


@cache
def _endpoint() -> TokenEndpoint:
    timeout = TimeoutOption("timeout", 1)
    return TokenEndpoint(EndpointOptions("url", "http://idp:1/token", timeout, timeout, 1, "trust", ""), _NoTls())


def _token_of(data: bytes) -> None:
    try:
        _endpoint()._token_of(data)
    except LoginError as error:
        _assert_no_secret(str(error), data)
        raise


def _shown_error(data: bytes) -> None:
    shown = _error_of(data)
    assert shown.isprintable()
    assert len(shown) < 1000
    _assert_no_secret(shown, data)


def _assert_no_secret(text: str, data: bytes) -> None:
    """The fields of errors, which are shown, may have come to hold the secret of another one."""
    if SECRET in text:
        response = json.loads(data)
        assert any(SECRET in str(response.get(name)) for name in ("error", "error_description"))


TOKEN_RESPONSES: Final = (_token_of, _shown_error)


def token_response_seeds() -> Sequence[bytes]:
    return [
        f'{{"access_token":"{SECRET}","refresh_token":"{SECRET}","expires_in":300}}'.encode(),
        b'{"id_token":" a.b.c "}',
        b'{"error":"invalid_client","error_description":"no such client"}',
    ]


def http(data: bytes) -> None:
    """What an HTTP server sends before it closes the connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs, patch.object(HTTPConnection, "_new_conn", lambda _: ours):
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        request = HttpRequest("GET", f"http://idp:1/token?password={PASSWORD}", {"Authorization": PASSWORD})
        response = exchange(request, None, _HTTP, SystemClock())
    assert len(response.content) <= _HTTP.content_bytes


def http_seeds() -> Sequence[bytes]:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    chunks = b'5\r\n{"a":\r\n3;x=y\r\n 1}\r\n0\r\nTrailer: t\r\n\r\n'
    return [
        head + b'Content-Length: 8\r\n\r\n{"a": 1}',
        head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks,
        head + b'\r\n{"a": 1}',
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 302 Found\r\nLocation: http://other\r\n\r\n",
        head + f"Set-Cookie: {PASSWORD}\r\nContent-Length: 4\r\n\r\n{PASSWORD}".encode(),
    ]


def location(data: bytes) -> None:
    """A header ``Location``, which http.client reads as latin-1."""
    shown = without_secrets(data.decode("latin-1"))
    assert not {"?", "#"}.intersection(shown)
    assert data not in location_seeds() or PASSWORD not in shown


def location_seeds() -> Sequence[bytes]:
    full = f"https://user:{PASSWORD}@host:8081/path?token={PASSWORD}#{PASSWORD}"
    return [full.encode(), b"/relative", b"http://[::1]:8081/"]


def checkpoint(data: bytes) -> None:
    """The file in which Spark keeps the id of a query."""
    with TemporaryDirectory() as folder:
        Path(folder, "metadata").write_bytes(data)
        found = query_id(folder)
    assert found is None or str(UUID(found)) == found


def checkpoint_seeds() -> Sequence[bytes]:
    return [b'{"id":"6b1f3d5c-2d4e-4f7a-9a51-0a6f6d5c4b3a"}']


def _line_of(*properties: tuple[str, str]) -> Callable[[bytes], None]:
    reader = LineReader.parse("t", properties)

    def read(data: bytes) -> None:
        record = reader.record(data, 1)
        assert len(record.key or b"") + len(record.value or b"") <= len(data)

    return read


LINES: Final = (
    _line_of(), _line_of(("parse.key", "true"), ("parse.headers", "true"), ("null.marker", "NULL")),
)  # fmt: skip


def line_seeds() -> Sequence[bytes]:
    """Lines of ``spark-kafka-sink console-producer``."""
    return ["name:value,trace:é\tkey\tvalue\r\n".encode(), b"NULL\tNULL\tNULL\n"]
