"""Mechanisms with user and password: PLAIN (RFC 4616), SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677).

PLAIN sends user and password in clear text, so only SASL_SSL hides them on the way. SCRAM (Java: ``ScramSaslClient``,
``ScramFormatter``) takes both as plain UTF-8, as Java does, because SASLprep would change some passwords. It has no
channel binding.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Generator, Mapping
from typing import ClassVar, Final, NamedTuple

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.security_rules import check_login_module, credentials_fault
from spark_kafka_sink.errors import SaslAuthenticationError
from spark_kafka_sink.network.login.sasl import WITH_VALUES, login_module

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"

_HEADER: Final = "n,,"
_MIN_ITERATIONS: Final = 4_096
_MAX_ITERATIONS: Final = 1_000_000
"""The most iterations, which take a second. Without a limit, a broker could stop the sender by asking for more."""

_NONCE_BYTES: Final = 24
_MAX_ERROR_LENGTH: Final = 100


class Credentials(NamedTuple):
    """User and password of ``PlainLoginModule`` and ``ScramLoginModule``.

    With ``is_token`` they are the id and the HMAC of a delegation token (``tokenauth=true``).
    """

    username: str
    password: str
    is_token: bool = False

    def __repr__(self) -> str:
        return f"Credentials(username={self.username!r}, password=[hidden])"


class PasswordMechanism:
    """The common part of PLAIN and SCRAM: a login module with ``username`` and ``password``."""

    login_modules: ClassVar[tuple[str, ...]]
    example: ClassVar[str]
    sends: ClassVar[str]
    advice = "username and password in sasl.jaas.config"
    check = staticmethod(check_login_module)

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config

    @classmethod
    def module_fault(cls, options: Mapping[str, str]) -> str | None:
        missing = [key for key in ("username", "password") if key not in options]
        if missing:
            return f"has no {' and no '.join(missing)}; write {cls.example}"
        if any("\0" in options[key] for key in ("username", "password")):
            return "has a NUL character (\\0) in its username or password: is a backslash not doubled?"
        return None

    def close(self) -> None:
        """Does nothing, because nothing is open."""


class Plain(PasswordMechanism):
    """PLAIN: one message in UTF-8, to which the broker responds with nothing or an error."""

    login_modules = (PLAIN_MODULE, SCRAM_MODULE)  # as in Java
    example = f'{PLAIN_MODULE} required username="…" password="…";'
    sends = "password"

    def exchange(self, host: str) -> Generator[bytes, bytes, None]:
        username, password, _is_token = user_credentials(self._config)
        yield f"\0{username}\0{password}".encode()


class Scram(PasswordMechanism):
    """SCRAM with one hash. ``algorithm``: the hash's name in hashlib."""

    login_modules = (SCRAM_MODULE,)
    example = f'{SCRAM_MODULE} required username="…" password="…";'
    sends = ""
    algorithm: ClassVar[str]

    def exchange(self, host: str) -> Generator[bytes, bytes, None]:
        return scram_exchange(self.algorithm, user_credentials(self._config), secrets.token_urlsafe(_NONCE_BYTES))


class ScramSha256(Scram):
    algorithm = "sha256"


class ScramSha512(Scram):
    algorithm = "sha512"


def user_credentials(config: ProducerConfig) -> Credentials:
    """User and password of the login module. Raises ``SaslAuthenticationError``."""
    module = login_module(config)
    if (fault := credentials_fault(config.sasl_mechanism, module)) is not None:
        raise SaslAuthenticationError(f"sasl.jaas.config {fault}{WITH_VALUES}")
    is_token = module.options.get("tokenauth", "").lower() == "true"
    return Credentials(module.options["username"], module.options["password"], is_token)


def scram_exchange(algorithm: str, credentials: Credentials, nonce: str) -> Generator[bytes, bytes, None]:
    """Yields client-first and client-final, and returns when the server has proved that it knows the password.

    ``nonce``: printable, without commas. Raises ``SaslAuthenticationError``.
    """
    first_bare = f"n={_escape(credentials.username)},r={nonce}"
    if credentials.is_token:
        first_bare += ",tokenauth=true"
    server_first = _text((yield f"{_HEADER}{first_bare}".encode()))
    server_nonce, salt, iterations = _read_server_first(server_first, nonce)

    binding = base64.b64encode(_HEADER.encode()).decode()
    final_bare = f"c={binding},r={server_nonce}"
    message = f"{first_bare},{server_first},{final_bare}".encode()
    salted = hashlib.pbkdf2_hmac(algorithm, credentials.password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), message, algorithm)
    proof = bytes(key ^ sign for key, sign in zip(client_key, signature, strict=True))
    server_final = _text((yield f"{final_bare},p={base64.b64encode(proof).decode()}".encode()))

    server_key = hmac.digest(salted, b"Server Key", algorithm)
    _check_server_final(server_final, hmac.digest(server_key, message, algorithm))


def _escape(username: str) -> str:
    return username.replace("=", "=3D").replace(",", "=2C")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise _malformed_error() from None


def _read_server_first(message: str, nonce: str) -> tuple[str, bytes, int]:
    """Nonce, salt and iterations of ``r=…,s=…,i=…``; extensions after them are ignored."""
    attributes = message.split(",")
    if len(attributes) < 3 or [attribute[:2] for attribute in attributes[:3]] != ["r=", "s=", "i="]:
        raise _malformed_error()
    server_nonce, salt, iterations = (attribute[2:] for attribute in attributes[:3])
    if not server_nonce.startswith(nonce) or server_nonce == nonce:
        raise SaslAuthenticationError(
            "its SCRAM nonce does not continue the client's, so the message is replayed or of another login"
        )
    if not (iterations.isascii() and iterations.isdigit() and len(iterations) <= len(str(_MAX_ITERATIONS))):
        raise _iterations_error(iterations)
    if not _MIN_ITERATIONS <= int(iterations) <= _MAX_ITERATIONS:
        raise _iterations_error(iterations)
    return server_nonce, _decode(salt), int(iterations)


def _check_server_final(message: str, signature: bytes) -> None:
    first = message.split(",", maxsplit=1)[0]
    if first.startswith("e="):
        raise SaslAuthenticationError(
            f"it ended SCRAM with the error {first[2:][:_MAX_ERROR_LENGTH]!r}: see user and password"
        )
    if not first.startswith("v="):
        raise _malformed_error()
    if not hmac.compare_digest(_decode(first[2:]), signature):
        raise SaslAuthenticationError(
            "its SCRAM signature is wrong: it does not know the password, so it may be another server"
        )


def _decode(text: str) -> bytes:
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _malformed_error() from None
    if not decoded:
        raise _malformed_error()
    return decoded


def _malformed_error() -> SaslAuthenticationError:
    return SaslAuthenticationError("it sent a message that is not SCRAM's")


def _iterations_error(iterations: str) -> SaslAuthenticationError:
    return SaslAuthenticationError(
        f"it asks for {iterations[:20]} SCRAM iterations; {_MIN_ITERATIONS} to {_MAX_ITERATIONS} are accepted"
    )
