"""The broker's SASL: PLAIN and SCRAM (RFC 5802), without I/O (Kafka's ``PlainSaslServer`` and ``ScramSaslServer``)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Final, Protocol

SCRAM_ITERATIONS: Final = 4096


class SaslRefusedError(Exception):
    """The client is not let in. The message is the broker's to the client. ``user``: None if it is not known."""

    def __init__(self, message: str, user: str | None = None) -> None:
        super().__init__(message)
        self.user = user


class SaslServer(Protocol):
    """The server's side of one login. ``user``: None until it has succeeded."""

    user: str | None

    def respond(self, token: bytes) -> bytes:
        """The response to the client's token; raises ``SaslRefusedError``."""


def sasl_server(mechanism: str, users: Mapping[str, str]) -> SaslServer:
    """The server for a mechanism. ``users``: name to password."""
    return PlainServer(users) if mechanism == "PLAIN" else ScramServer(mechanism, users)


class PlainServer:
    """PLAIN (RFC 4616), without an authorization id."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self.user: str | None = None
        self._users = users

    def respond(self, token: bytes) -> bytes:
        parts = token.decode(errors="replace").split("\0")
        if len(parts) != 3:
            raise SaslRefusedError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        _, user, password = parts
        if self._users.get(user) != password:
            raise SaslRefusedError("Authentication failed: Invalid username or password", user)
        self.user = user
        return b""


class ScramServer:
    """SCRAM (RFC 5802): two tokens each way, nonces and salt, then proof and signature."""

    def __init__(self, mechanism: str, users: Mapping[str, str]) -> None:
        self.user: str | None = None
        self._mechanism = mechanism
        self._algorithm = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        self._users = users
        self._name: str | None = None
        self._salted = b""
        self._nonce = ""
        self._so_far = ""

    def respond(self, token: bytes) -> bytes:
        try:
            text = token.decode()
            return (self._first(text) if self._name is None else self._final(text)).encode()
        except (ValueError, LookupError):
            raise self._refused() from None

    def _first(self, text: str) -> str:
        bare = text.split(",", 2)[2]
        fields = _fields(bare)
        self._name = fields["n"].replace("=2C", ",").replace("=3D", "=")
        salt = secrets.token_bytes(16)
        password = self._users[self._name].encode()
        self._salted = hashlib.pbkdf2_hmac(self._algorithm, password, salt, SCRAM_ITERATIONS)
        self._nonce = fields["r"] + secrets.token_hex(16)
        response = f"r={self._nonce},s={base64.b64encode(salt).decode()},i={SCRAM_ITERATIONS}"
        self._so_far = f"{bare},{response}"
        return response

    def _final(self, text: str) -> str:
        fields = _fields(text)
        signed = f"{self._so_far},{text.rpartition(',p=')[0]}".encode()
        client_key = self._hmac(self._salted, b"Client Key")
        stored_key = hashlib.new(self._algorithm, client_key).digest()
        signature = self._hmac(stored_key, signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        if fields["r"] != self._nonce or not hmac.compare_digest(proof, base64.b64decode(fields["p"])):
            raise self._refused()
        self.user = self._name
        server_key = self._hmac(self._salted, b"Server Key")
        return f"v={base64.b64encode(self._hmac(server_key, signed)).decode()}"

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._algorithm)

    def _refused(self) -> SaslRefusedError:
        return SaslRefusedError(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{self._mechanism}",
            self._name,
        )


def _fields(text: str) -> dict[str, str]:
    return dict(field.split("=", 1) for field in text.split(","))
