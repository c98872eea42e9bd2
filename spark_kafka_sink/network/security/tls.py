"""TLS of one connection, without I/O: Python's ``ssl`` over two buffers in memory (Java: ``SslTransportLayer``).

OpenSSL's errors become errors that name the option to look at.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from spark_kafka_sink.errors import KafkaError, NetworkError, SslAuthenticationError, WrongProtocolError, sanitize

_LARGEST_RECORD = 16 * 1024
# A TLS server begins with one of these bytes: an alert, or a handshake message.
_FIRST_BYTES = b"\x15\x16"


class TlsLayer:
    """Encrypts and decrypts between the transport's bytes and Kafka's frames, for the connection's whole life.

    After each call, send ``take_output()``, which has handshake messages, alerts and responses to key updates. After an
    exception, call nothing but ``take_output``.

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

    def receive(self, data: bytes) -> Iterator[bytes]:
        """The plaintext in ``data``. Exhaust it before the next call. At most one TLS record is kept."""
        self._incoming.write(data)
        if not self.established:
            if not self.heard and data[0] not in _FIRST_BYTES:
                raise not_tls_error(self._peer)
            self.heard = True
            self.shake_hands()
        if self.established:
            yield from self._read()

    def write(self, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        """Encrypts. Neighbouring buffers under 16 KiB share a record, because ``ssl`` makes one of each ``write``."""
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
        """Sends close_notify: no more bytes come."""
        with suppress(ssl.SSLError):  # it does not wait for a response; during a handshake there is nothing to end
            self._tls.unwrap()

    def version_and_cipher(self) -> tuple[str, str]:
        """Version and cipher of the established connection, such as ``TLSv1.3`` and ``TLS_AES_256_GCM_SHA384``."""
        cipher = self._tls.cipher()
        return self._tls.version() or "no version", cipher[0] if cipher is not None else "no cipher"

    def peer_certificate(self) -> bytes | None:
        """The peer's certificate in DER, even if it was refused; None before the peer has sent it."""
        # This method of the inner object is public since Python 3.13.
        chain = self._tls._sslobj.get_unverified_chain()  # type: ignore[attr-defined]
        return ssl.PEM_cert_to_DER_cert(chain[0].public_bytes()) if chain else None

    def shake_hands(self) -> None:
        """Begins the handshake, or continues it with what ``receive`` took."""
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
            # With TLS 1.3 the broker checks the client's certificate after the client's handshake is done.
            explain = _lost_error if self._accepted else _refused_error
            raise explain(self._peer, error) from error.with_traceback(None)

    def _write(self, buffer: bytes | bytearray | memoryview) -> None:
        view = memoryview(buffer)
        try:
            while view:
                view = view[self._tls.write(view) :]
        except ssl.SSLError as error:
            raise _lost_error(self._peer, error) from error.with_traceback(None)


def _server_name(host: str) -> str:
    """The name for SNI and the certificate check, without the dot at the end or the zone of an IPv6 address."""
    return host.partition("%")[0] if ":" in host else host.removesuffix(".")


_KEYSTORE: Final = (
    "check the client's certificate and key (ssl.keystore.location, or ssl.keystore.certificate.chain and "
    "ssl.keystore.key): the broker requires them (ssl.client.auth) and must trust their issuer"
)
_TRUSTSTORE: Final = (
    "give the certificate that issued it, or a CA above it, in ssl.truststore.location or ssl.truststore.certificates"
)
_NAME: Final = (
    "use a host name that the certificate has in bootstrap.servers and in the broker's advertised.listeners; an empty "
    "ssl.endpoint.identification.algorithm switches this check off"
)
_VERSIONS: Final = (
    "client and broker have no TLS version or cipher suite in common: see ssl.enabled.protocols and ssl.cipher.suites"
)
_WEAK_SIGNATURE: Final = (
    "it, or the certificate of one of its issuers, is signed with SHA-1 or MD5, which OpenSSL does not accept and no "
    "option allows: have that certificate issued anew with SHA-256"
)
_SHORT_KEY: Final = (
    "its key, or that of one of its issuers, is shorter than 1024 bits (RSA) or 160 bits (elliptic curves), and no "
    "option allows that: have a certificate issued for a longer key"
)

# What to do about each X509_V_ERR_… of OpenSSL's x509_vfy.h.
_CERTIFICATE_ADVICE: Final = {
    9: "check the clock of this machine; if it is right, the broker or the truststore needs another certificate",
    10: (
        "give the broker a new certificate; if that of a CA has expired, put the CA's new one into "
        "ssl.truststore.location or ssl.truststore.certificates; and check the clock of this machine"
    ),
    23: "it was revoked: give the broker a new one",
    62: _NAME,
    63: _NAME,
    64: _NAME,
    66: _SHORT_KEY,
    67: _SHORT_KEY,
    68: _WEAK_SIGNATURE,
}
# Alerts, by the ends of OpenSSL's names.
_REFUSED_CERTIFICATE: Final = (
    "BAD_CERTIFICATE",
    "UNSUPPORTED_CERTIFICATE",
    "CERTIFICATE_REVOKED",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_UNKNOWN",
    "UNKNOWN_CA",
    "ACCESS_DENIED",
    "DECRYPT_ERROR",
    "CERTIFICATE_REQUIRED",
    "NO_CERTIFICATE",
)
_NO_COMMON_VERSION: Final = (
    "PROTOCOL_VERSION",
    "INSUFFICIENT_SECURITY",
    "UNSUPPORTED_PROTOCOL",
    "NO_PROTOCOLS_AVAILABLE",
    "INAPPROPRIATE_FALLBACK",
    "NO_CIPHERS_AVAILABLE",
    "WRONG_SSL_VERSION",
)

_INTRODUCED_WITH: Final = re.compile(r"^(SSLV3|TLSV1|TLSV13)_(?=ALERT_)")


def handshake_error(peer: str, error: ssl.SSLError) -> KafkaError:
    """The error for a TLS handshake that failed on either side (Java: ``SslAuthenticationException``)."""
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = _CERTIFICATE_ADVICE.get(error.verify_code, _TRUSTSTORE)
        said = sanitize(error.verify_message.rstrip("."))
        return SslAuthenticationError(f"The certificate of {peer} is refused ({said}): {advice}")
    reason = _reason(error)
    if reason.endswith(_NO_COMMON_VERSION):
        return SslAuthenticationError(f"The TLS handshake with {peer} failed ({_words(reason)}): {_VERSIONS}")
    if reason.endswith("UNRECOGNIZED_NAME"):
        return SslAuthenticationError(f"{peer} does not recognize this host name ({_words(reason)}): {_NAME}")
    if reason.endswith("HANDSHAKE_FAILURE"):  # also TLS 1.2's alert for a missing client certificate
        advice = f"{_VERSIONS}; or {_KEYSTORE}"
        return SslAuthenticationError(f"The TLS handshake with {peer} failed ({_words(reason)}): {advice}")
    if _is_alert(reason):
        return _refused_error(peer, error)
    return SslAuthenticationError(f"The TLS handshake with {peer} failed ({_words(reason)}): {_VERSIONS}")


def _refused_error(peer: str, error: ssl.SSLError) -> KafkaError:
    """The error for an alert in the handshake, or after it and before the first response."""
    reason = _reason(error)
    if not _is_alert(reason):
        return _lost_error(peer, error)
    what = "refused the client's certificate" if reason.endswith(_REFUSED_CERTIFICATE) else "ended the TLS handshake"
    return SslAuthenticationError(f"{peer} {what} ({_words(reason)}): {_KEYSTORE}")


def _lost_error(peer: str, error: ssl.SSLError) -> NetworkError:
    """The error for a connection that worked until now; another connection may work."""
    return NetworkError(f"The TLS connection to {peer} was lost: {_words(_reason(error))}")


def not_tls_error(peer: str) -> WrongProtocolError:
    """The error for a peer that begins with bytes no TLS server sends."""
    return WrongProtocolError(
        f"{peer} responded without TLS: use the port of a TLS listener, or set security.protocol=PLAINTEXT or "
        "SASL_PLAINTEXT"
    )


def _reason(error: ssl.SSLError) -> str:
    return error.reason or str(error)


def _is_alert(reason: str) -> bool:
    return "_ALERT_" in reason or reason.endswith(_REFUSED_CERTIFICATE)


def _words(reason: str) -> str:
    """The reason in words. The name of an alert begins with the version that introduced it, which would mislead."""
    return sanitize(_INTRODUCED_WITH.sub("", reason)).lower().replace("_", " ")
