"""Logins: what brokers send to OAUTHBEARER and GSSAPI, and the files that an assertion is made of."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import SaslAuthenticationError
from spark_kafka_sink.network.login.kerberos import _without_layer
from spark_kafka_sink.network.login.oauthbearer import OAuthBearer
from spark_kafka_sink.network.login.sasl import LoginStep
from spark_kafka_sink.network.login.token_login import Token
from spark_kafka_sink.network.login.token_sources import _signature, assertion
from tests.unit.security.test_stores import SECRET

_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer."
_OPTION: Final = "sasl.oauthbearer.assertion."
_NOW: Final = 1_700_000_000_000


def _configured(**assertion_options: str) -> ProducerConfig:
    """``assertion_options``: by the last part of their names, with underscores."""
    given = {f"{_OPTION}{name.replace('_', '.')}": value for name, value in assertion_options.items()}
    return ProducerConfig.parse({
        "bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{_OAUTH}OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1",
        "sasl.oauthbearer.jwt.retriever.class": f"{_OAUTH}JwtBearerJwtRetriever", **given,
    })  # fmt: skip


@cache
def _config() -> ProducerConfig:
    return _configured(file="file")


def challenge(data: bytes) -> None:
    """The broker's response to a token: empty if it accepts the token, else why not."""
    step: LoginStep[Token] = LoginStep("a token")
    step.succeed(Token("hunter2", 1e15, None))
    source: Any = None
    mechanism = OAuthBearer(_config(), source)
    login: Any = SimpleNamespace(token=lambda: step)
    mechanism._login = login
    exchange = mechanism.exchange("b")
    next(exchange)
    assert b"hunter2" in exchange.send(b"")
    try:
        assert exchange.send(data) == b"\1"
        exchange.send(b"")
    except SaslAuthenticationError as error:
        _assert_one_line(str(error))
        raise
    except StopIteration:
        return
    raise AssertionError("OAUTHBEARER goes on after the broker's reason")


def _assert_one_line(text: str) -> None:
    assert text.isprintable()


def challenge_seeds() -> Sequence[bytes]:
    return [b"", b'{"status":"invalid_token","scope":"kafka","openid-configuration":"https://idp"}']


def offer(data: bytes) -> None:
    """The layers that a broker offers, as Kerberos has unwrapped them."""
    assert _without_layer(data, "orders@REALM") == b"\1\0\0\0orders@REALM"


def offer_seeds() -> Sequence[bytes]:
    return [b"\7\0\x10\0", b"\1\0\0\0"]


def template(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        given, key = Path(folder, "given"), Path(folder, "key")
        given.write_bytes(data)
        key.write_bytes(_ec())
        made = assertion(_configured(template_file=str(given), private_key_file=str(key), algorithm="ES256"), _NOW)
    assert made.count(".") == 2


def finished(data: bytes) -> None:
    """The file has the assertion itself."""
    with TemporaryDirectory() as folder:
        given = Path(folder, "given")
        given.write_bytes(data)
        made = assertion(_configured(file=str(given)), _NOW)
    assert made == made.strip() != ""


def template_seeds() -> Sequence[bytes]:
    template = {"header": {"kid": "key-1"}, "payload": {"aud": ["idp"], "iss": "orders", "exp": 1, "scope": None}}
    return [json.dumps(template).encode(), b"{}"]


def private_key(data: bytes) -> None:
    _signed(data, "ES256", SECRET)


def private_key_of_rsa(data: bytes) -> None:
    _signed(data, "RS256", None)


def _signed(data: bytes, algorithm: str, passphrase: str | None) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "key")
        path.write_bytes(data)
        given = {} if passphrase is None else {"private_key_passphrase": passphrase}
        config = _configured(private_key_file=str(path), algorithm=algorithm, **given)
        assert len(_signature(config, b"content")) >= 64


PRIVATE_KEYS: Final = (private_key, private_key_of_rsa)


@cache
def private_key_seeds() -> Sequence[bytes]:
    key = rsa.generate_private_key(65537, 1024)
    rsa_der = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    encryption = BestAvailableEncryption(SECRET.encode())
    return [_ec(encryption), _ec(encryption, Encoding.DER), _ec(), rsa_der, b64encode(rsa_der)]


def _ec(encryption: KeySerializationEncryption | None = None, encoding: Encoding = Encoding.PEM) -> bytes:
    key = ec.derive_private_key(7, ec.SECP256R1())
    return key.private_bytes(encoding, PrivateFormat.PKCS8, encryption or NoEncryption())
