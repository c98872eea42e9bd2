"""One HTTP exchange, bounded in time and size: with a token endpoint or a schema registry."""

from __future__ import annotations

import io
import ssl
from collections.abc import Mapping
from contextlib import closing
from enum import Enum
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, urlsplit

from spark_kafka_sink import __version__
from spark_kafka_sink.common.clock import Clock

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_CHUNK: Final = 65_536
_USER_AGENT: Final = f"spark-kafka-sink/{__version__}"
_IN_A_TARGET: Final = "%/:?#[]@!$&'()*+,;="
"""Characters of a URL that are sent as they are, besides letters and digits (RFC 3986)."""


class HttpFault(Enum):
    """The place where an exchange failed."""

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
    """An exchange without a usable response. ``reason``: the innermost reason, without secrets; "" for timeouts."""

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
    """The limits of an exchange, in milliseconds. ``total_ms``: for the whole exchange."""

    connect_ms: float
    read_ms: float
    total_ms: float
    content_bytes: int


class HttpResponse(NamedTuple):
    status: int
    headers: HTTPMessage
    content: bytes


def exchange(request: HttpRequest, context: ssl.SSLContext | None, limits: HttpLimits, clock: Clock) -> HttpResponse:
    """Sends the request on a connection of its own. Redirects are responses. Raises ``HttpExchangeError``."""
    deadline = clock.now() + limits.total_ms
    method, url, headers, body = request
    try:
        with closing(_connect(url, context, limits)) as connection:
            connection.sock.settimeout(_seconds(min(limits.read_ms, deadline - clock.now())))
            connection.request(method, _target(url), body, {"User-Agent": _USER_AGENT, **headers})
            with HTTPResponse(connection.sock, method=method) as response:
                response.fp = io.BufferedReader(_TimedReader(response.fp.detach(), deadline, clock))
                response.begin()
                return HttpResponse(response.status, response.headers, _content(response, limits.content_bytes))
    except ssl.SSLError as error:
        raise HttpExchangeError(HttpFault.TLS, _reason(error)) from None
    except TimeoutError:
        raise HttpExchangeError(HttpFault.READ_TIMEOUT) from None
    except (HTTPException, OSError, ValueError) as error:
        raise HttpExchangeError(HttpFault.NO_RESPONSE, _reason(error)) from None


def _connect(url: str, context: ssl.SSLContext | None, limits: HttpLimits) -> HTTPConnection:
    """A connection after its TLS handshake. The context says whether the certificate must have the host's name."""
    parts = urlsplit(url)
    host, timeout = (parts.hostname or "").rstrip("."), _seconds(min(limits.connect_ms, limits.total_ms))
    if parts.scheme == "https":
        connection: HTTPConnection = HTTPSConnection(host, parts.port or 443, timeout=timeout, context=context)
    else:
        connection = HTTPConnection(host, parts.port or 80, timeout=timeout)
    try:
        connection.connect()
    except ssl.SSLError:
        raise
    except TimeoutError:
        raise HttpExchangeError(HttpFault.CONNECT_TIMEOUT) from None
    except OSError as error:
        raise HttpExchangeError(HttpFault.CONNECT, _reason(error)) from None
    return connection


def _target(url: str) -> str:
    """Path and query, with percent-encoding of characters that an HTTP request must not have."""
    parts = urlsplit(url)
    return quote(f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}", _IN_A_TARGET)


def _seconds(ms: float) -> float:
    """A timeout of a socket, which must not be 0."""
    return max(ms, 1.0) / 1000.0


class _TimedReader(io.RawIOBase):
    """A socket's bytes until ``deadline``. A socket's timeout would limit only each of its reads."""

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


def _content(response: HTTPResponse, limit: int) -> bytes:
    """The body as it was sent. Decoding has no bound: a few KB, encoded several times, expand for minutes."""
    if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        raise HttpExchangeError(HttpFault.ENCODED)
    content = bytearray()
    while chunk := response.read1(_CHUNK):  # ``read`` waits for all of it
        content += chunk
        if len(content) > limit:
            raise HttpExchangeError(HttpFault.TOO_LARGE)
    if response.length:  # the missing rest of Content-Length
        raise IncompleteRead(b"", response.length)
    return bytes(content)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return str(getattr(error, "verify_message", "") or error.reason)
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
