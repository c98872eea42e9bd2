"""What OpenSSL says, as errors that name the option to look at."""

from __future__ import annotations

import re
import ssl
from typing import Final

from spark_kafka_sink.common.foreign_text import shown
from spark_kafka_sink.errors import KafkaError, NetworkError, SslAuthenticationError, WrongProtocolError

_KEYSTORE: Final = (
    "check the client's certificate and key (ssl.keystore.location, or ssl.keystore.certificate.chain and "
    "ssl.keystore.key): the broker asks for them (ssl.client.auth) and must trust who issued them"
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

# X509_V_ERR_…, from OpenSSL's x509_vfy.h.
_CERTIFICATE_ADVICE: Final = {
    9: "it is not valid yet: check the clock of this machine, or give the broker another certificate",
    10: "it has expired: give the broker a new one, and check the clock of this machine",
    23: "it was revoked: give the broker a new one",
    62: _NAME,
    63: _NAME,
    64: _NAME,
    66: _SHORT_KEY,
    67: _SHORT_KEY,
    68: _WEAK_SIGNATURE,
}
# Alerts by the end of OpenSSL's names for them.
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
    """The TLS handshake failed on either side (Java: ``SslAuthenticationException``)."""
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = _CERTIFICATE_ADVICE.get(error.verify_code, _TRUSTSTORE)
        said = shown(error.verify_message.rstrip("."))
        return SslAuthenticationError(f"The certificate of {peer} is refused ({said}): {advice}")
    reason = _reason(error)
    if reason.endswith(_NO_COMMON_VERSION):
        return SslAuthenticationError(f"The TLS handshake with {peer} failed ({_words(reason)}): {_VERSIONS}")
    if reason.endswith("UNRECOGNIZED_NAME"):
        return SslAuthenticationError(f"{peer} does not go by this name ({_words(reason)}): {_NAME}")
    if reason.endswith("HANDSHAKE_FAILURE"):  # also TLS 1.2's alert for a missing client certificate
        advice = f"{_VERSIONS}; or {_KEYSTORE}"
        return SslAuthenticationError(f"The TLS handshake with {peer} failed ({_words(reason)}): {advice}")
    if _is_alert(reason):
        return refused_error(peer, error)
    return SslAuthenticationError(f"The TLS handshake with {peer} failed ({_words(reason)}): {_VERSIONS}")


def refused_error(peer: str, error: ssl.SSLError) -> KafkaError:
    """An alert in the handshake, or after it and before the first response."""
    reason = _reason(error)
    if not _is_alert(reason):
        return lost_error(peer, error)
    what = "refused the client's certificate" if reason.endswith(_REFUSED_CERTIFICATE) else "ended the TLS handshake"
    return SslAuthenticationError(f"{peer} {what} ({_words(reason)}): {_KEYSTORE}")


def lost_error(peer: str, error: ssl.SSLError) -> NetworkError:
    """A TLS error on a connection that worked; another connection may work again."""
    return NetworkError(f"The TLS connection to {peer} was lost: {_words(_reason(error))}")


def not_tls_error(peer: str) -> WrongProtocolError:
    """The peer began with bytes that no TLS server sends."""
    return WrongProtocolError(
        f"{peer} responded without TLS: use the port of a TLS listener, or set security.protocol=PLAINTEXT or "
        "SASL_PLAINTEXT"
    )


def _reason(error: ssl.SSLError) -> str:
    return error.reason or str(error)


def _is_alert(reason: str) -> bool:
    return "_ALERT_" in reason or reason.endswith(_REFUSED_CERTIFICATE)


def _words(reason: str) -> str:
    """The reason in words, without the version of SSL that introduced the alert, which is not the one in use."""
    return shown(_INTRODUCED_WITH.sub("", reason)).lower().replace("_", " ")
