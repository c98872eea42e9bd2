"""Stores, logins and configuration: files of users, and what identity providers send."""

from __future__ import annotations

import hashlib
import json
import socket
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from unittest.mock import patch
from uuid import UUID

from asn1crypto.keys import EncryptedPrivateKeyInfo
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.option import without_secrets
from spark_kafka_sink.common.config.providers import ConfigProviders, has_placeholder, parse_properties
from spark_kafka_sink.common.config.security_rules import JaasError, parse_jaas
from spark_kafka_sink.errors import ConfigError, LoginError
from spark_kafka_sink.kafka08.console import LineError, LineReader
from spark_kafka_sink.network.login.http import HttpExchangeError, HttpLimits, HttpRequest, TimeoutOption, exchange
from spark_kafka_sink.network.login.token_sources import TokenEndpoint, _error_of, assertion, jwt
from spark_kafka_sink.network.security.stores import key_pair, trusted_certificates
from spark_kafka_sink.spark.checkpoint import query_id
from tests.contract.login.test_token_sources import ASSERTION, KEY, OAUTH, config, pkcs8
from tests.fuzz.target import Target
from tests.unit.security.certificates import key_pem, pem
from tests.unit.security.test_stores import CA_CERTIFICATE, CERTIFICATE, CHAIN, CLIENT, PEM, SECRET, jks, with_digest
from tests.unit.security.tls_peers import client_context
from tests.unit.security.tls_peers import config as tls_config

PASSWORD: Final = "pa55"
"""Of ASCII, as in headers of HTTP."""
_JKS_OF_JAVA: Final = "1.3.6.1.4.1.42.2.17.1.1"
_DIGEST: Final = hashlib.sha1().digest_size
_HTTP: Final = HttpLimits(TimeoutOption("connect", 60_000), TimeoutOption("read", 60_000), 60_000, "trust", 1_000)


@contextmanager
def _file(data: bytes, name: str = "file") -> Iterator[str]:
    with TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        yield str(path)


# -- stores --

_NAMED: Final = tls_config(ssl_truststore_location="store", ssl_keystore_location="store")
_WITH_PASSWORD: Final = tls_config(
    ssl_truststore_location="store", ssl_truststore_password=SECRET,
    ssl_keystore_location="store", ssl_keystore_password=SECRET, ssl_key_password=SECRET,
)  # fmt: skip
_STORES: Final = (
    lambda data: trusted_certificates(_NAMED, data),
    lambda data: trusted_certificates(_WITH_PASSWORD, data),
    lambda data: key_pair(_WITH_PASSWORD, data),
)
_WITH_DIGEST: Final = (
    lambda data: trusted_certificates(_WITH_PASSWORD, with_digest(data[:-_DIGEST])),
    lambda data: key_pair(_WITH_PASSWORD, with_digest(data[:-_DIGEST])),
)


def _protected(key: bytes) -> bytes:
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


@cache
def _jks() -> Sequence[bytes]:
    """The last two announce 2 and 4 GiB."""
    key = _protected(CLIENT.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))
    with_key = jks(keys=[CHAIN]).replace(b"\0\0\0\x09encrypted", len(key).to_bytes(4, "big") + key)
    return [
        jks(CA_CERTIFICATE), jks(CA_CERTIFICATE, CERTIFICATE), with_digest(with_key[:-_DIGEST]), jks(magic="cececece"),
        bytes.fromhex("feedfeed000000027fffffff0000000200017800000000000000000005582e3530397fffffff") + bytes(20),
        bytes.fromhex("3084ffffffff020103"),
    ]  # fmt: skip


@cache
def _pkcs12() -> Sequence[bytes]:
    """With one round of key derivation, so that reading is quick."""
    encryption = PrivateFormat.PKCS12.encryption_builder().kdf_rounds(1).build(SECRET.encode())
    others = [CA_CERTIFICATE, *CHAIN[1:]]
    return [
        pkcs12.serialize_key_and_certificates(b"client", CLIENT.key, CERTIFICATE, others, encryption),
        pkcs12.serialize_key_and_certificates(None, None, None, [CA_CERTIFICATE], encryption),
        pkcs12.serialize_key_and_certificates(b"client", CLIENT.key, CERTIFICATE, others, NoEncryption()),
    ]


_TOGETHER: Final = pem(*CHAIN) + key_pem(CLIENT.key)


def _context_of(store: str) -> Callable[[bytes], None]:
    """A TLS context with this content as one of its stores."""

    def read(data: bytes) -> None:
        with _file(data) as path, _file(PEM.encode()) as trusted:
            stores = {"ssl_truststore_location": trusted, f"ssl_{store}_location": path}
            passwords = {name.replace("location", "password"): SECRET for name in stores}
            client_context(**stores, **passwords)

    return read


# -- configuration --


_PLAIN: Final = {"bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}


def _properties(text: str) -> None:
    for name, value in parse_properties(text).items():
        assert len(name) + len(value) <= len(text)


def _placeholders(text: str) -> None:
    providers = ConfigProviders(())
    assert providers.resolve(text).text == text
    assert has_placeholder(text) == (providers.fault(text) is not None)


def _checkpoint(data: bytes) -> None:
    """The file in which Spark keeps the id of a query."""
    with _file(data, "metadata") as path:
        found = query_id(str(Path(path).parent))
    assert found is None or str(UUID(found)) == found


def _line_of(*properties: tuple[str, str]) -> Callable[[bytes], None]:
    """A line of ``spark-kafka-sink console-producer``."""
    reader = LineReader.parse("t", properties)

    def read(data: bytes) -> None:
        record = reader.record(data, 1)
        assert len(record.key or b"") + len(record.value or b"") <= len(data)

    return read


# -- tokens --

_BEARER: Final = {"sasl.oauthbearer.jwt.retriever.class": f"{OAUTH}JwtBearerJwtRetriever"}


def _assertion(**options: str) -> str:
    """``options``: by the last part of their names, with underscores."""
    given = {f"{ASSERTION}{name.replace('_', '.')}": value for name, value in options.items()}
    made = assertion(config("http://127.0.0.1:1", **_BEARER, **given), now=1_700_000_000_000)
    assert made == made.strip() != ""
    return made


def _template(data: bytes) -> None:
    with _file(data) as template, _file(pkcs8(_EC_KEY)) as key:
        assert _assertion(template_file=template, private_key_file=key, algorithm="ES256").count(".") == 2


def _finished(data: bytes) -> None:
    """The file has the assertion itself."""
    with _file(data) as path:
        _assertion(file=path)


def _signed_by(algorithm: str, **passphrase: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        with _file(data) as path:
            _assertion(private_key_file=path, algorithm=algorithm, **passphrase)

    return read


_EC_KEY: Final = ec.derive_private_key(7, ec.SECP256R1())


@cache
def _private_keys() -> Sequence[bytes]:
    password, der = SECRET.encode(), Encoding.DER
    rsa = pkcs8(KEY, encoding=der)
    return [pkcs8(_EC_KEY, password), pkcs8(_EC_KEY, password, der), pkcs8(_EC_KEY), rsa, b64encode(rsa)]


def _base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


_CLAIMS: Final = (b'{"exp":1700000000,"iat":1600000000.5,"sub":"alice","aud":["kafka"]}', b'{"exp":1e12}')


@cache
def _endpoint() -> TokenEndpoint:
    return TokenEndpoint("url", "http://idp:1/token", _HTTP, "")


def _token_response(data: bytes) -> None:
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


# -- HTTP --


def _http(data: bytes) -> None:
    """What an HTTP server sends before it closes the connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs, patch.object(HTTPConnection, "connect", lambda self: setattr(self, "sock", ours)):
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        request = HttpRequest("GET", f"http://idp:1/token?password={PASSWORD}", {"Authorization": PASSWORD})
        response = exchange(request, None, _HTTP, SystemClock())
    assert len(response.content) <= _HTTP.content_bytes


def _http_responses() -> Sequence[str]:
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    chunks = '5\r\n{"a":\r\n3;x=y\r\n 1}\r\n0\r\nTrailer: t\r\n\r\n'
    return [
        f'{head}Content-Length: 8\r\n\r\n{{"a": 1}}',
        f"{head}Transfer-Encoding: chunked\r\n\r\n{chunks}",
        f'{head}\r\n{{"a": 1}}',
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 302 Found\r\nLocation: http://other\r\n\r\n",
        f"{head}Set-Cookie: {PASSWORD}\r\nContent-Length: 4\r\n\r\n{PASSWORD}",
    ]


def _location(data: bytes) -> None:
    """A header ``Location``, which http.client reads as latin-1."""
    shown = without_secrets(data.decode("latin-1"))
    assert not {"?", "#"}.intersection(shown)
    assert data.decode("latin-1") not in _LOCATIONS or PASSWORD not in shown


_LOCATIONS: Final = (
    f"https://user:{PASSWORD}@host:8081/path?token={PASSWORD}#{PASSWORD}", "/relative", "http://[::1]:8081/",
)  # fmt: skip

TARGETS: Final = (
    Target("jks", (*_STORES, *_WITH_DIGEST), _jks, (ConfigError,), secret=SECRET),
    Target("pkcs12", _STORES, _pkcs12, (ConfigError,), secret=SECRET),
    Target(
        "pem", _STORES,
        lambda: [PEM, _TOGETHER, _TOGETHER.replace(b"\n", b"\\n"), b"subject=CN = ca\n" + pem(CA_CERTIFICATE)],
        (ConfigError,), (b"-----BEGIN ", b"-----END ", b"CERTIFICATE-----"), secret=SECRET,
    ),
    Target(
        "tls-contexts", (_context_of("truststore"), _context_of("keystore")),
        lambda: [_TOGETHER, _jks()[2], _pkcs12()[0]], (ConfigError,), secret=SECRET,
    ),
    Target(
        "jaas", (parse_jaas, lambda text: ProducerConfig.parse({**_PLAIN, "sasl.jaas.config": text})),
        lambda: [
            f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{SECRET}";',
            "org.apache.kafka.common.security.scram.ScramLoginModule required\n"
            ' username=u // name\n password="p\\"\\141";',
            "a.B optional x=\"1\" /* y */ z='2';",
        ],
        (JaasError, ConfigError), (b" required ", b"username=", b"password=", b'"', b";", b"org.apache.kafka."),
        is_text=True, secret=SECRET,
    ),
    Target(
        "properties", (_properties, _placeholders),
        lambda: [
            "# comment\nacks=all\nlinger.ms : 5\nkey\\ with\\ blanks=a\\\n   b\n! other\nname = ${file:/a:b}\n",
            "é=\\u00e9\r\n\\:\\==\\t\\n\r${env:NAME}",
        ],
        tokens=(b"\\u00e9", b"\\uD83D", b"\\\n", b"\\\r\n", b"${file:", b"${env:", b"}"), is_text=True,
    ),
    Target(
        "checkpoint-metadata", (_checkpoint,), lambda: ['{"id":"6b1f3d5c-2d4e-4f7a-9a51-0a6f6d5c4b3a"}'], is_json=True
    ),
    Target(
        "console-lines",
        (_line_of(), _line_of(("parse.key", "true"), ("parse.headers", "true"), ("null.marker", "NULL"))),
        lambda: ["name:value,trace:é\tkey\tvalue\r\n", "NULL\tNULL\tNULL\n"],
        (LineError,), (b"\t", b",", b":", b"NULL"),
    ),
    Target(
        "assertion-templates", (_template, _finished),
        lambda: ['{"header":{"kid":"key-1"},"payload":{"aud":["idp"],"iss":"orders","exp":1,"scope":null}}', "{}"],
        (LoginError,), is_json=True,
    ),
    Target(
        "private-keys", (_signed_by("ES256", private_key_passphrase=SECRET), _signed_by("RS256")), _private_keys,
        (LoginError,), (b"-----BEGIN ", b"-----END ", b"PRIVATE KEY-----", b"ENCRYPTED "), secret=SECRET,
    ),
    Target(
        "jwt", (lambda text: jwt("url", text),), lambda: [f"e30.{_base64url(each)}.c2ln" for each in _CLAIMS],
        (LoginError,), is_text=True,
    ),
    Target(
        "jwt-claims", (lambda data: jwt("url", f"e30.{_base64url(data)}.c2ln"),), lambda: _CLAIMS, (LoginError,),
        is_json=True,
    ),
    Target(
        "token-responses", (_token_response, _shown_error),
        lambda: [
            f'{{"access_token":"{SECRET}","refresh_token":"{SECRET}","expires_in":300}}', '{"id_token":" a.b.c "}',
            '{"error":"invalid_client","error_description":"no such client"}',
        ],
        (LoginError,), is_json=True,
    ),
    Target(
        "http", (_http,), _http_responses, (HttpExchangeError,),
        (b"\r\n", b"Content-Length: ", b"Transfer-Encoding: chunked\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"fff\r\n"),
        secret=PASSWORD,
    ),
    Target("locations", (_location,), lambda: _LOCATIONS, tokens=(b"http://", b"[", b"@", b"]")),
)  # fmt: skip
