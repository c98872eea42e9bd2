"""A POST to an endpoint that issues OAuth tokens (Java: ``HttpJwtRetriever``)."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.operator_limits import url_fault
from spark_kafka_sink.errors import ConfigError, LoginError, shown
from spark_kafka_sink.network.login.http import (
    HttpExchangeError,
    HttpFault,
    HttpLimits,
    HttpRequest,
    exchange,
    without_secrets,
)
from spark_kafka_sink.network.login.token_login import RefusedLoginError, RetriableLoginError
from spark_kafka_sink.network.security.tls_context import TlsContexts

_OK: Final = (200, 201)
# Java: HttpJwtRetriever.UNRETRYABLE_HTTP_CODES; a redirect would lose the request's body.
_FINAL: Final = frozenset(
    {301, 302, 303, 307, 308, 400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505}
)
_REFUSED: Final = frozenset({400, 401})
"""For wrong client credentials (RFC 6749, 5.2)."""

_MAX_BYTES: Final = 1_000_000
_LONGEST_SHOWN: Final = 300


class TimeoutOption(NamedTuple):
    name: str
    ms: int


class TokenEndpoint(NamedTuple):
    """An endpoint for tokens: its options, with their names for errors.

    ``total_ms`` limits a whole request. ``trust`` names the option that trusts the endpoint's certificates; errors of
    the ``ssl.*`` options begin with ``tls_prefix``.
    """

    url_name: str
    url: str
    connect: TimeoutOption
    read: TimeoutOption
    total_ms: int
    trust: str
    tls_prefix: str

    @property
    def name(self) -> str:
        return f"{self.url_name} {without_secrets(self.url)}"

    def post(self, tls: ProducerConfig, headers: Mapping[str, str], body: str) -> str:
        """The token in the response. ``tls`` has the endpoint's ``ssl.*`` options; without them, the system's
        certificates are trusted. Raises ``LoginError``, ``RetriableLoginError``.
        """
        if (fault := url_fault(self.url)) is not None:
            raise LoginError(f"{self.name} {fault}")
        limits = HttpLimits(self.connect.ms, self.read.ms, self.total_ms, _MAX_BYTES)
        request = HttpRequest("POST", self.url, headers, body.encode())
        try:
            response = exchange(request, self._tls_context(tls), limits, SystemClock())
        except HttpExchangeError as error:
            raise self._failed(error) from None
        if response.status not in _OK:
            kind = LoginError if response.status in _FINAL else RetriableLoginError
            kind = RefusedLoginError if response.status in _REFUSED else kind
            raise kind(f"{self.name} responded with HTTP status {response.status}{_error_of(response.content)}")
        return self._token_of(response.content)

    def _failed(self, error: HttpExchangeError) -> LoginError:
        connect, read = self.connect, self.read
        texts = {
            HttpFault.TLS: f"does not go through with TLS: {error.reason}; its certificates are trusted by "
            f"{self.trust}, or by the system",
            HttpFault.TOO_LARGE: f"responded with more than {_MAX_BYTES} bytes",
            HttpFault.ENCODED: "responded with a Content-Encoding, which was not asked for",
            HttpFault.CONNECT: f"could not be connected to: {error.reason}",
            HttpFault.CONNECT_TIMEOUT: f"could not be connected to within {connect.ms} ms ({connect.name})",
            HttpFault.READ_TIMEOUT: f"did not respond within {read.ms} ms ({read.name})",
            HttpFault.BODY_TIMEOUT: f"did not end its response within {self.total_ms} ms ({connect.name}, {read.name})",
            HttpFault.NO_RESPONSE: f"did not respond: {error.reason}",
        }
        kind = LoginError if error.fault.is_final else RetriableLoginError
        return kind(f"{self.name} {texts[error.fault]}")

    def _tls_context(self, tls: ProducerConfig) -> ssl.SSLContext | None:
        if urlsplit(self.url).scheme.lower() != "https":
            return None
        try:
            return TlsContexts(tls).context()
        except ConfigError as error:
            raise LoginError(f"{self.tls_prefix}{error}") from None

    def _token_of(self, content: bytes) -> str:
        """``access_token``, otherwise ``id_token``, as in Java."""
        parsed = _json(content)
        for name in ("access_token", "id_token"):
            value = parsed.get(name)
            if isinstance(value, str) and value.strip():
                return value.strip()
        raise LoginError(f"{self.name} responded without an access_token{_error_of(content)}")


def _json(content: bytes) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        parsed = json.loads(content)
        if isinstance(parsed, dict):
            return parsed
    return {}


def _error_of(content: bytes) -> str:
    """The error in a response (RFC 6749, 5.2), which has no secret; nothing else of the response is shown."""
    parsed = _json(content)
    texts = [text for name in ("error", "error_description") if isinstance(text := parsed.get(name), str) and text]
    return f" ({shown(', '.join(texts), _LONGEST_SHOWN)})" if texts else ""
