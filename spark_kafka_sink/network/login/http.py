"""One HTTP exchange by urllib3, bounded in time and size: with a token endpoint or a schema registry."""

from __future__ import annotations

import http.client
import io
import ssl
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ReadTimeoutError
from urllib3.exceptions import SSLError as UrllibSslError

from spark_kafka_sink.common.clock import Clock

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_CHUNK: Final = 65_536


class HttpFault(Enum):
    """Where an exchange failed."""

    TLS = "TLS"
    CONNECT = "connect"
    CONNECT_TIMEOUT = "connect timeout"
    READ_TIMEOUT = "read timeout"
    BODY_TIMEOUT = "body timeout"
    TOO_LARGE = "too large"
    ENCODED = "encoded"
    NO_RESPONSE = "no response"

    @property
    def is_final(self) -> bool:
        """Whether the same request would fail again."""
        return self in (HttpFault.TLS, HttpFault.TOO_LARGE, HttpFault.ENCODED)


class HttpExchangeError(Exception):
    """No usable response. ``reason``: the innermost one, without secrets; "" for timeouts."""

    def __init__(self, fault: HttpFault, reason: str = "") -> None:
        self.fault = fault
        self.reason = reason
        super().__init__(fault, reason)


class HttpRequest(NamedTuple):
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None


class HttpLimits(NamedTuple):
    """Times in milliseconds; ``total_ms``: of the whole exchange."""

    connect_ms: float
    read_ms: float
    total_ms: float
    content_bytes: int


class HttpResponse(NamedTuple):
    status: int
    headers: Mapping[str, str]
    content: bytes


def exchange(request: HttpRequest, context: ssl.SSLContext | None, limits: HttpLimits, clock: Clock) -> HttpResponse:
    """Sends the request on a connection of its own. Redirects are responses. Raises ``HttpExchangeError``."""
    deadline = clock.now() + limits.total_ms
    timeout = urllib3.Timeout(
        total=limits.total_ms / 1000.0, connect=limits.connect_ms / 1000.0, read=limits.read_ms / 1000.0
    )
    try:
        with urllib3.PoolManager(retries=False, timeout=timeout, **_tls(request.url, context)) as pool:
            method, url, headers, body = request
            _bound(pool.connection_from_url(url), deadline, clock)
            response = pool.request(
                method,
                url,
                body=body,
                headers=dict(headers),
                preload_content=False,
                decode_content=False,
                redirect=False,
            )
            try:
                return HttpResponse(response.status, response.headers, _content(response, deadline, limits, clock))
            finally:
                response.close()
    except UrllibSslError as error:
        raise HttpExchangeError(HttpFault.TLS, _reason(error)) from None
    except NewConnectionError as error:  # a ConnectTimeoutError too
        raise HttpExchangeError(HttpFault.CONNECT, _reason(error)) from None
    except ConnectTimeoutError:
        raise HttpExchangeError(HttpFault.CONNECT_TIMEOUT) from None
    except ReadTimeoutError:
        raise HttpExchangeError(HttpFault.READ_TIMEOUT) from None
    except (HTTPError, OSError, ValueError) as error:  # http.client raises ValueErrors of its own
        raise HttpExchangeError(HttpFault.NO_RESPONSE, _reason(error)) from None


class _TimedReader(io.RawIOBase):
    """A socket's bytes until ``deadline``. The timeout of a socket is one of each read, and there may be many."""

    def __init__(self, socket_io: io.RawIOBase, deadline: float, clock: Clock) -> None:
        self._socket_io = socket_io
        self._deadline = deadline
        self._clock = clock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        if self._clock.now() > self._deadline:
            raise HttpExchangeError(HttpFault.BODY_TIMEOUT)
        return self._socket_io.readinto(buffer)

    def close(self) -> None:
        self._socket_io.close()
        super().close()


def _bound(pool: urllib3.HTTPConnectionPool, deadline: float, clock: Clock) -> None:
    """Responses of the pool's connections end by ``deadline``, their headers too."""

    class Connection(pool.ConnectionCls):  # type: ignore[name-defined,misc]
        @staticmethod
        def response_class(*args: Any, **named: Any) -> http.client.HTTPResponse:
            response = http.client.HTTPResponse(*args, **named)
            reader = _TimedReader(response.fp.detach(), deadline, clock)
            response.fp = io.BufferedReader(reader)
            return response

    pool.ConnectionCls = Connection


def without_secrets(url: str) -> str:
    """The URL without user, password and query; "" for one that cannot be parsed, as a peer may send."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _tls(url: str, context: ssl.SSLContext | None) -> dict[str, Any]:
    """urllib3's options of TLS; none for http, where urllib3 before 2.8 does not know ``assert_hostname``.

    Where the context does not check the host name, urllib3 does, after the handshake, unless that option is False.
    """
    if urlsplit(url).scheme != "https":
        return {}
    return {"ssl_context": context, "assert_hostname": None if context is None or context.check_hostname else False}


def _content(response: urllib3.BaseHTTPResponse, deadline: float, limits: HttpLimits, clock: Clock) -> bytes:
    """The body as it was sent. Decoding has no bound: a few KB, encoded several times, expand for minutes.

    Each read has a timeout, but there may be many.
    """
    if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        raise HttpExchangeError(HttpFault.ENCODED)
    content = bytearray()
    while chunk := response.read1(_CHUNK, decode_content=False):  # ``read`` waits for all of it
        content += chunk
        if len(content) > limits.content_bytes:
            raise HttpExchangeError(HttpFault.TOO_LARGE)
        if clock.now() > deadline:
            raise HttpExchangeError(HttpFault.BODY_TIMEOUT)
    return bytes(content)


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
