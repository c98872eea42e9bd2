"""Who a connection's client is, and the log of all attempts to log in (Kafka: ``Authenticator``)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.testing.broker.request_log import Log
from spark_kafka_sink.testing.broker.sasl import SaslRefusedError, SaslServer, sasl_server
from spark_kafka_sink.testing.listener import Listener

TLS: Final = "TLS"
_BEFORE_LOGIN: Final = frozenset({"ApiVersions", "SaslHandshake", "SaslAuthenticate"})
_MIN_REAUTHENTICATION_INTERVAL_MS: Final = 1_000.0
_CLOCK: Final = SystemClock()


@dataclass(frozen=True, slots=True)
class Authentication:
    """One attempt: a TLS handshake (``step`` is ``TLS``) or a SASL login (``step`` is its mechanism).

    ``error``: None when it succeeded. ``user``: None if it is not known. ``connection``: counted from 1 over the
    broker's life.
    """

    node: int
    listener: str
    connection: int
    step: str
    user: str | None
    error: str | None


class AuthenticationLog(Log[Authentication]):
    """The log of logins, oldest first. Written by the broker's thread, read by any."""

    def add(self, attempt: Authentication) -> None:
        self._append(attempt)

    def failed(self, node: int | None = None) -> list[Authentication]:
        """The attempts that failed, at one node or all."""
        return [each for each in self if each.error is not None and node in (None, each.node)]

    def wait_for(self, count: int = 1, timeout_s: float = 60.0) -> list[Authentication]:
        """Waits until ``count`` attempts are in the log. Raises ``TimeoutError`` if they do not come."""
        return self._wait_for(lambda: list(self), count, timeout_s, "authentications")


@dataclass(frozen=True, slots=True)
class AtListener:
    """The listener of a connection and the log of its logins. ``max_reauth_ms``: 0 if sessions do not end."""

    node: int
    name: str
    listener: Listener
    log: AuthenticationLog
    max_reauth_ms: int = 0

    def note(self, connection: int, step: str, user: str | None = None, error: str | None = None) -> None:
        self.log.add(Authentication(self.node, self.name, connection, step, user, error))


class LoginSession:
    """A connection's login, in the order SaslHandshake, SaslAuthenticate; again before it ends. Loop thread only."""

    def __init__(self, at: AtListener, connection: int) -> None:
        self.listener = at.name
        self.is_authenticated = not at.listener.has_sasl
        self._at = at
        self._connection = connection
        self._mechanism = ""
        self._user: str | None = None
        self._server: SaslServer | None = None
        self._expires_at = math.inf
        self._reauthentication_began = -math.inf

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The listener's mechanisms; none without SASL."""
        return self._at.listener.mechanisms if self._at.listener.has_sasl else ()

    @property
    def expects_token(self) -> bool:
        return self._server is not None

    def allows(self, api: str) -> bool:
        """Whether the client may send this request now. A refusal is noted: the connection is about to be closed."""
        if self.is_authenticated:
            if api == "SaslHandshake" or _CLOCK.now() < self._expires_at:
                return True
            self._at.note(self._connection, self._mechanism, self._user, f"{api} after the end of the session")
            return False
        if api in _BEFORE_LOGIN and (api != "SaslAuthenticate" or self.expects_token):
            return True
        self._at.note(self._connection, self._mechanism, None, f"{api} before the login")
        return False

    def may_begin_again(self) -> bool:
        """Whether a SaslHandshake after the login begins a re-authentication. It does not if sessions have no end, or
        if it is the second one within a second (Kafka: ``KafkaChannel.maybeBeginServerReauthentication``).
        """
        now = _CLOCK.now()
        if self._expires_at == math.inf or now - self._reauthentication_began < _MIN_REAUTHENTICATION_INTERVAL_MS:
            return False
        self._reauthentication_began = now
        self.is_authenticated = False
        return True

    def begin(self, mechanism: str) -> bool:
        """SaslHandshake: whether the listener has the mechanism; if not, the attempt has failed.

        A re-authentication must name the mechanism of the login. Kafka reports that later, in SaslAuthenticate.
        """
        is_changed = self._user is not None and mechanism != self._mechanism
        if is_changed or mechanism not in self.mechanisms:
            self._at.note(self._connection, mechanism, None, "unsupported mechanism")
            return False
        self._mechanism = mechanism
        self._server = sasl_server(mechanism, self._at.listener.users)
        return True

    def respond(self, token: bytes) -> bytes:
        """SaslAuthenticate: the response to the token; raises ``SaslRefusedError``, which ends the attempt."""
        server = self._server
        assert server is not None
        try:
            response = server.respond(token)
        except SaslRefusedError as refused:
            self._at.note(self._connection, self._mechanism, refused.user, str(refused))
            raise
        if server.user is not None:
            self._authenticated(server.user)
        return response

    @property
    def lifetime_ms(self) -> int:
        """The lifetime of the session that has just begun; 0: it has no end."""
        return self._at.max_reauth_ms if self.is_authenticated else 0

    def _authenticated(self, user: str) -> None:
        if self._user not in (None, user):
            error = f"Cannot change principals during re-authentication from User.{self._user}: User.{user}"
            self._at.note(self._connection, self._mechanism, user, error)
            raise SaslRefusedError(error, user)
        self.is_authenticated = True
        self._user = user
        self._server = None
        if self._at.max_reauth_ms:
            self._expires_at = _CLOCK.now() + self._at.max_reauth_ms
        self._at.note(self._connection, self._mechanism, user)

    def refuse(self, error: str) -> None:
        """Fails the attempt, for the script."""
        self._at.note(self._connection, self._mechanism, None, error)
