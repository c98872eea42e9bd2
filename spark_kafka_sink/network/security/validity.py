"""``TlsContext``: a context that trusts no certificate outside its dates, and whose errors name the one that a peer's
chain needs.

OpenSSL takes an expired issuer of the truststore before it looks for a valid one among the certificates that the peer
sends. So the truststore's certificates outside their dates are not given to OpenSSL. A chain that needs none of them is
accepted; the error for a chain that needs one of them has its subject and date.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.x509 import Certificate, load_der_x509_certificate

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.errors import sanitize

# X509_V_ERR_… of OpenSSL's x509_vfy.h.
NOT_YET_VALID: Final = 9
EXPIRED: Final = 10
_UNKNOWN_ISSUER: Final = (2, 18, 19, 20, 21)
_CLOCK: Final = SystemClock()


class _ExplainsDates:
    """Replaces the error's ``verify_message`` and ``verify_code`` where a certificate is outside its dates."""

    def do_handshake(self, *arguments: bool) -> None:
        try:
            super().do_handshake(*arguments)  # type: ignore[misc]
        except ssl.SSLCertVerificationError as error:
            with suppress(ValueError):  # a certificate that OpenSSL reads and ``cryptography`` does not
                _explain(error, self)
            raise


class _TlsObject(_ExplainsDates, ssl.SSLObject):
    pass


class _TlsSocket(_ExplainsDates, ssl.SSLSocket):
    pass


class TlsContext(ssl.SSLContext):
    """Like ``ssl.SSLContext``, with the dates of the truststore.

    ``left_out``: the truststore's certificates outside their dates. ``usable_until``: the time at which one of its
    certificates expires or becomes valid (epoch ms), so that the context must be made again.
    """

    sslobject_class = _TlsObject
    sslsocket_class = _TlsSocket
    left_out: tuple[Certificate, ...] = ()
    usable_until: float = math.inf

    def accepts_dates(self, certificate: bytes) -> bool:
        """Whether the certificate (DER) is within its dates. If not, notes it in ``left_out``."""
        try:
            read = load_der_x509_certificate(certificate)
        except ValueError:
            return True  # OpenSSL decides
        now = _CLOCK.epoch_ms()
        dates = [date.timestamp() * 1000.0 for date in (read.not_valid_before_utc, read.not_valid_after_utc)]
        self.usable_until = min(self.usable_until, *(date for date in dates if date >= now), math.inf)
        if _fault(read) is None:
            return True
        self.left_out = (*self.left_out, read)
        return False


def _explain(error: ssl.SSLCertVerificationError, tls: Any) -> None:
    # ``get_verified_chain`` of the inner object is public since Python 3.13. After a refusal it has the chain as far as
    # it was built.
    chain = [
        load_der_x509_certificate(ssl.PEM_cert_to_DER_cert(each.public_bytes()))
        for each in tls._sslobj.get_verified_chain() or ()
    ]
    if error.verify_code in (NOT_YET_VALID, EXPIRED):
        suspects: Sequence[Certificate] = chain
    elif error.verify_code in _UNKNOWN_ISSUER:
        suspects = [lost for lost in tls.context.left_out if any(_needs(each, lost) for each in chain)]
    else:
        return
    for suspect in suspects:
        if (fault := _fault(suspect)) is not None:
            error.verify_code = fault
            error.verify_message = _described(suspect, fault, is_issuer=suspect != chain[0])
            return


def _needs(certificate: Certificate, other: Certificate) -> bool:
    """Whether ``other`` is this certificate or has signed it."""
    try:
        if certificate != other:
            certificate.verify_directly_issued_by(other)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _fault(certificate: Certificate) -> int | None:
    now = datetime.fromtimestamp(_CLOCK.epoch_ms() / 1000.0, UTC)
    if now < certificate.not_valid_before_utc:
        return NOT_YET_VALID
    return EXPIRED if now > certificate.not_valid_after_utc else None


def _described(certificate: Certificate, fault: int, *, is_issuer: bool) -> str:
    what, date = (
        ("expired on", certificate.not_valid_after_utc)
        if fault == EXPIRED
        else ("is not valid before", certificate.not_valid_before_utc)
    )
    name = sanitize(certificate.subject.rfc4514_string())
    return f"{'CA certificate' if is_issuer else 'certificate'} {name} {what} {date:%Y-%m-%d %H:%M} UTC"
