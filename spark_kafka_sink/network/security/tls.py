"""TLS of one connection, without I/O (Java: ``SslTransportLayer``): Python's ``ssl`` over two buffers in memory."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import suppress

from spark_kafka_sink.errors import KafkaError, NetworkError
from spark_kafka_sink.network.security.tls_errors import handshake_error, lost_error, not_tls_error, refused_error

_LARGEST_RECORD = 16 * 1024
# First bytes of TLS records that a server may begin with: alert, handshake.
_FIRST_BYTES = b"\x15\x16"


class TlsLayer:
    """Between the transport's bytes and Kafka's frames, for the connection's whole life.

    After each call, send ``take_output()``: handshake messages, alerts, responses to key updates. Must not be used
    after an exception, except for ``take_output``.

    ``established``: the TLS handshake is done. ``heard``: the peer has sent bytes. ``closed_by_peer``: the peer has
    ended the connection (close_notify).
    """

    __slots__ = ("_accepted", "_incoming", "_outgoing", "_peer", "_tls", "closed_by_peer", "established", "heard")

    def __init__(self, context: ssl.SSLContext, host: str, port: int) -> None:
        self._peer = f"{host}:{port}"
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._accepted = False
        self.established = False
        self.heard = False
        self.closed_by_peer = False
        try:
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=_server_name(host))
        except ValueError as error:
            raise NetworkError(f"{host!r} is not a host name that TLS can check: {error}") from error

    def start(self) -> None:
        """Begins the handshake."""
        self._shake_hands()

    def receive(self, data: bytes) -> Iterator[bytes]:
        """The plaintext in ``data``. Exhaust it before the next call. At most one TLS record is kept."""
        self._incoming.write(data)
        if not self.established:
            if not self.heard and data[0] not in _FIRST_BYTES:
                raise not_tls_error(self._peer)
            self.heard = True
            self._shake_hands()
        if self.established:
            yield from self._read()

    def write(self, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        """Encrypts. Neighbours under 16 KiB share a record: each ``write`` of ``ssl`` makes one of its own."""
        small: list[bytes | bytearray | memoryview] = []
        size = 0
        for buffer in buffers:
            if len(buffer) < _LARGEST_RECORD:
                small.append(buffer)
                size += len(buffer)
            if small and (size >= _LARGEST_RECORD or len(buffer) >= _LARGEST_RECORD):
                self._write(b"".join(small))
                small.clear()
                size = 0
            if len(buffer) >= _LARGEST_RECORD:
                self._write(buffer)
        if small:
            self._write(b"".join(small))

    def take_output(self) -> bytes:
        """The bytes for the peer; empty if there are none."""
        return self._outgoing.read()

    def close(self) -> None:
        """Tells the peer that no more bytes come (close_notify)."""
        with suppress(ssl.SSLError):  # waits for no response; in a handshake there is nothing to end
            self._tls.unwrap()

    def version_and_cipher(self) -> tuple[str, str]:
        """Version and cipher of the established connection, such as ``TLSv1.3`` and ``TLS_AES_256_GCM_SHA384``."""
        cipher = self._tls.cipher()
        return self._tls.version() or "no version", cipher[0] if cipher is not None else "no cipher"

    def peer_certificate(self) -> bytes | None:
        """The peer's certificate in DER, also one that was refused; None before it came."""
        # Python 3.13 has made this method of the inner object public.
        chain = self._tls._sslobj.get_unverified_chain()  # type: ignore[attr-defined]
        return ssl.PEM_cert_to_DER_cert(chain[0].public_bytes()) if chain else None

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
            self.established = True
        except ssl.SSLWantReadError:
            return
        except ssl.SSLZeroReturnError:
            self.closed_by_peer = True
        except ssl.SSLError as error:
            raise handshake_error(self._peer, error) from error.with_traceback(None)

    def _read(self) -> Iterator[bytes]:
        try:
            while plaintext := self._tls.read(_LARGEST_RECORD):
                self._accepted = True
                yield plaintext
                if not self._incoming.pending and not self._tls.pending():
                    return
            self.closed_by_peer = True
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            raise self._read_error(error) from error.with_traceback(None)

    def _read_error(self, error: ssl.SSLError) -> KafkaError:
        # With TLS 1.3 the broker checks the client's certificate after the client's handshake is done.
        return lost_error(self._peer, error) if self._accepted else refused_error(self._peer, error)

    def _write(self, buffer: bytes | bytearray | memoryview) -> None:
        view = memoryview(buffer)
        try:
            while view:
                view = view[self._tls.write(view) :]
        except ssl.SSLError as error:
            raise lost_error(self._peer, error) from error.with_traceback(None)


def _server_name(host: str) -> str:
    """The name for SNI and the certificate check: without the root's dot and without an IPv6 address's zone."""
    return host.partition("%")[0] if ":" in host else host.removesuffix(".")
