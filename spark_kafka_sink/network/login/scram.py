"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677; Java: ``ScramSaslClient``, ``ScramFormatter``).

As in Java, user and password are plain UTF-8, because SASLprep would change some passwords, and there is no channel
binding.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Generator
from typing import ClassVar, Final

from spark_kafka_sink.errors import SaslAuthenticationError
from spark_kafka_sink.network.login.plain import SCRAM_MODULE, Credentials, PasswordMechanism, user_credentials

_HEADER: Final = "n,,"
_FEWEST_ITERATIONS: Final = 4_096
_MOST_ITERATIONS: Final = 1_000_000
"""They take a second. Without a limit, a broker could stop the sender by asking for more."""

_NONCE_BYTES: Final = 24
_LONGEST_ERROR: Final = 100


class Scram(PasswordMechanism):
    """SCRAM over one hash. ``algorithm``: hashlib's name of it."""

    login_modules = (SCRAM_MODULE,)
    example = f'{SCRAM_MODULE} required username="…" password="…";'
    sends = ""
    algorithm: ClassVar[str]

    def exchange(self, host: str) -> Generator[bytes, bytes, None]:
        return scram_exchange(self.algorithm, user_credentials(self._config), secrets.token_urlsafe(_NONCE_BYTES))


class ScramSha256(Scram):
    """SCRAM-SHA-256."""

    algorithm = "sha256"


class ScramSha512(Scram):
    """SCRAM-SHA-512."""

    algorithm = "sha512"


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
        raise SaslAuthenticationError("its SCRAM nonce does not continue the client's: a replayed or foreign message")
    if not (iterations.isascii() and iterations.isdigit() and len(iterations) <= len(str(_MOST_ITERATIONS))):
        raise _iterations_error(iterations)
    if not _FEWEST_ITERATIONS <= int(iterations) <= _MOST_ITERATIONS:
        raise _iterations_error(iterations)
    return server_nonce, _decode(salt), int(iterations)


def _check_server_final(message: str, signature: bytes) -> None:
    first = message.split(",", maxsplit=1)[0]
    if first.startswith("e="):
        raise SaslAuthenticationError(
            f"it ended SCRAM with the error {first[2:][:_LONGEST_ERROR]!r}: see user and password"
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
        f"it asks for {iterations[:20]} SCRAM iterations; {_FEWEST_ITERATIONS} to {_MOST_ITERATIONS} are accepted"
    )
