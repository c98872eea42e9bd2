"""A broker's certificate in words."""

from __future__ import annotations

from datetime import datetime

from cryptography import x509

from spark_kafka_sink.common.foreign_text import shown

_LONGEST = 12


def certificate_text(der: bytes, now: datetime) -> str:
    """Subject, names, issuer and dates."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        subject, issuer, names = _name(certificate.subject), _name(certificate.issuer), _names(certificate)
    except ValueError as error:
        return f"a certificate that cannot be read: {shown(str(error))}"
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    left = f"{(end - now).days} days left" if begin <= now <= end else "expired" if now > end else "not valid yet"
    return (
        f"certificate of {subject}, for {names}, issued by {issuer}, valid from {begin:%Y-%m-%d} to {end:%Y-%m-%d} "
        f"({left})"
    )


def _name(name: x509.Name) -> str:
    return shown(name.rfc4514_string()) or "an empty name"


def _names(certificate: x509.Certificate) -> str:
    """The names that a client accepts (subject alternative names)."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return "no host name"
    names = [shown(str(each.value)) for each in extension.value if isinstance(each, (x509.DNSName, x509.IPAddress))]
    more = f" and {len(names) - _LONGEST} more" if len(names) > _LONGEST else ""
    return (", ".join(names[:_LONGEST]) or "no host name") + more
