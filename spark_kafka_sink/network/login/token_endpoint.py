"""A POST to an endpoint that issues OAuth tokens (Java: ``HttpJwtRetriever``)."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.operator_limits import url_fault
from spark_kafka_sink.common.foreign_text import shown
from spark_kafka_sink.errors import ConfigError, LoginError
from spark_kafka_sink.network.login.http import (
    HttpExchangeError,
    HttpFault,
    HttpLimits,
    HttpRequest,
    HttpResponse,
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


class EndpointOptions(NamedTuple):
    """The options of an endpoint, with their names for errors. ``trust`` names the option that trusts its certificates.

    ``total_ms`` limits a whole request. Errors of the ``ssl.*`` options begin with ``tls_prefix``.
    """

    url_name: str
    url: str
    connect: TimeoutOption
    read: TimeoutOption
    total_ms: int
    trust: str
    tls_prefix: str


class EndpointTls(Protocol):
    def tls_config(self) -> ProducerConfig:
        """The ``ssl.*`` options of the endpoint; read for each request. Raises ``ConfigError``, ``LoginError``."""


class TokenEndpoint:
    """An endpoint for tokens. Without ``ssl.*`` options, the system's certificates are trusted."""

    def __init__(self, options: EndpointOptions, tls: EndpointTls) -> None:
        self.name = f"{options.url_name} {without_secrets(options.url)}"
        self._options = options
        self._tls = tls
        self._clock = SystemClock()

    def post(self, headers: Mapping[str, str], body: str) -> str:
        """The token in the response. Raises ``LoginError``, ``RetriableLoginError``."""
        if (fault := url_fault(self._options.url)) is not None:
            raise LoginError(f"{self.name} {fault}")
        try:
            response = self._request(headers, body)
        except HttpExchangeError as error:
            raise self._failed(error) from None
        if response.status not in _OK:
            kind = LoginError if response.status in _FINAL else RetriableLoginError
            kind = RefusedLoginError if response.status in _REFUSED else kind
            raise kind(f"{self.name} responded with HTTP status {response.status}{_error_of(response.content)}")
        return self._token_of(response.content)

    def _request(self, headers: Mapping[str, str], body: str) -> HttpResponse:
        options = self._options
        limits = HttpLimits(options.connect.ms, options.read.ms, options.total_ms, _MAX_BYTES)
        request = HttpRequest("POST", self._options.url, headers, body.encode())
        return exchange(request, self._tls_context(), limits, self._clock)

    def _failed(self, error: HttpExchangeError) -> LoginError:
        connect, read = self._options.connect, self._options.read
        texts = {
            HttpFault.TLS: f"does not go through with TLS: {error.reason}; its certificates are trusted by "
            f"{self._options.trust}, or by the system",
            HttpFault.TOO_LARGE: f"responded with more than {_MAX_BYTES} bytes",
            HttpFault.ENCODED: "responded with a Content-Encoding, which was not asked for",
            HttpFault.CONNECT: f"could not be connected to: {error.reason}",
            HttpFault.CONNECT_TIMEOUT: f"could not be connected to within {connect.ms} ms ({connect.name})",
            HttpFault.READ_TIMEOUT: f"did not respond within {read.ms} ms ({read.name})",
            HttpFault.BODY_TIMEOUT: f"did not end its response within {self._options.total_ms} ms "
            f"({connect.name}, {read.name})",
            HttpFault.NO_RESPONSE: f"did not respond: {error.reason}",
        }
        kind = LoginError if error.fault.is_final else RetriableLoginError
        return kind(f"{self.name} {texts[error.fault]}")

    def _tls_context(self) -> ssl.SSLContext | None:
        if urlsplit(self._options.url).scheme.lower() != "https":
            return None
        try:
            return TlsContexts(self._tls.tls_config()).context()
        except ConfigError as error:
            raise LoginError(f"{self._options.tls_prefix}{error}") from None

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
