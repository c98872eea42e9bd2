"""A POST to ``sasl.oauthbearer.token.endpoint.url``, by urllib3 (Java: ``HttpJwtRetriever``)."""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ReadTimeoutError
from urllib3.exceptions import SSLError as UrllibSslError

from spark_kafka_sink.clock import SystemClock
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import ConfigError, LoginError
from spark_kafka_sink.login.token_login import RetriableLoginError
from spark_kafka_sink.security.credentials import jaas_options
from spark_kafka_sink.security.tls_context import TlsContexts

_log = logging.getLogger("spark_kafka_sink.login")

URL_OPTION: Final = "sasl.oauthbearer.token.endpoint.url"
_OK: Final = (200, 201)
# Java: HttpJwtRetriever.UNRETRYABLE_HTTP_CODES; a redirect would lose the request's body.
_FINAL: Final = frozenset(
    {301, 302, 303, 307, 308, 400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505}
)
_MAX_BYTES: Final = 1_000_000
_LONGEST_SHOWN: Final = 300


class TokenEndpoint:
    """The endpoint of a configuration. Its TLS has the ``ssl.*`` options of ``sasl.jaas.config``, none of the brokers'.

    A system whose certificates are good for the endpoint needs no option.
    """

    def __init__(self, config: ProducerConfig) -> None:
        assert config.sasl_oauthbearer_token_endpoint_url is not None
        self.url = config.sasl_oauthbearer_token_endpoint_url
        self.name = f"{URL_OPTION} {without_secrets(self.url)}"
        self._config = config
        self._clock = SystemClock()

    def post(self, headers: Mapping[str, str], body: str) -> str:
        """The token in the response. Raises ``LoginError``, ``RetriableLoginError``."""
        try:
            status, content = self._request(headers, body)
        except UrllibSslError as error:
            raise LoginError(
                f"{self.name} does not go through with TLS: {_reason(error)}; its certificates are trusted by "
                "ssl.truststore.location in sasl.jaas.config, or by the system"
            ) from None
        except NewConnectionError as error:  # a ConnectTimeoutError too
            raise RetriableLoginError(f"{self.name} could not be connected to: {_reason(error)}") from None
        except ConnectTimeoutError:
            took = f"{self._config.sasl_login_connect_timeout_ms} ms (sasl.login.connect.timeout.ms)"
            raise RetriableLoginError(f"{self.name} could not be connected to within {took}") from None
        except ReadTimeoutError:
            took = f"{self._config.sasl_login_read_timeout_ms} ms (sasl.login.read.timeout.ms)"
            raise RetriableLoginError(f"{self.name} did not respond within {took}") from None
        except (HTTPError, OSError) as error:
            raise RetriableLoginError(f"{self.name} did not respond: {_reason(error)}") from None
        if status not in _OK:
            kind = LoginError if status in _FINAL else RetriableLoginError
            raise kind(f"{self.name} responded with HTTP status {status}{_error_of(content)}")
        return self._token_of(content)

    def _request(self, headers: Mapping[str, str], body: str) -> tuple[int, bytes]:
        timeout = urllib3.Timeout(
            connect=self._config.sasl_login_connect_timeout_ms / 1000.0,
            read=self._config.sasl_login_read_timeout_ms / 1000.0,
        )
        with urllib3.PoolManager(ssl_context=self._tls_context(), retries=False, timeout=timeout) as pool:
            response = pool.request(
                "POST", self.url, body=body.encode(), headers=dict(headers), preload_content=False, redirect=False
            )
            try:
                return response.status, self._read(response)
            finally:
                response.close()

    def _read(self, response: urllib3.BaseHTTPResponse) -> bytes:
        """The body, bounded in size and in time: each read has a timeout, but there may be many."""
        deadline = self._clock.now() + self._config.sasl_login_read_timeout_ms
        content = b""
        while chunk := response.read(65_536):
            content += chunk
            if len(content) > _MAX_BYTES:
                raise LoginError(f"{self.name} responded with more than {_MAX_BYTES} bytes")
            if self._clock.now() > deadline:
                took = f"{self._config.sasl_login_read_timeout_ms} ms (sasl.login.read.timeout.ms)"
                raise RetriableLoginError(f"{self.name} did not end its response within {took}")
        return content

    def _tls_context(self) -> ssl.SSLContext | None:
        if urlsplit(self.url).scheme.lower() != "https":
            return None
        options = {name: value for name, value in jaas_options(self._config).items() if name.startswith("ssl.")}
        server = {"bootstrap.servers": "unused:1", "security.protocol": "SSL"}
        try:
            return TlsContexts(ProducerConfig.parse(options | server)).context()
        except ConfigError as error:
            raise LoginError(f"sasl.jaas.config: {error}") from None

    def _token_of(self, content: bytes) -> str:
        """``access_token``, or else ``id_token``, as Java."""
        parsed = _json(content)
        for name in ("access_token", "id_token"):
            value = parsed.get(name)
            if isinstance(value, str) and value.strip():
                return value.strip()
        raise LoginError(f"{self.name} responded without an access_token{_error_of(content)}")


def without_secrets(url: str) -> str:
    """The URL without user, password and query."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _json(content: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        parsed = json.loads(content)
        if isinstance(parsed, dict):
            return parsed
    return {}


def _error_of(content: bytes) -> str:
    """Of RFC 6749, 5.2, which holds no secret; other contents are not shown."""
    parsed = _json(content)
    texts = [str(parsed[name]) for name in ("error", "error_description") if parsed.get(name)]
    return f" ({', '.join(texts)[:_LONGEST_SHOWN]})" if texts else ""


def _reason(error: Exception) -> str:
    """The innermost reason, without urllib3's objects."""
    inner: BaseException = error
    while (cause := inner.__cause__ or inner.__context__) is not None:
        inner = cause
    if isinstance(inner, ssl.SSLError) and inner.reason:
        return str(getattr(inner, "verify_message", "") or inner.reason)
    if isinstance(inner, OSError):
        return inner.strerror or type(inner).__name__
    return type(inner).__name__
