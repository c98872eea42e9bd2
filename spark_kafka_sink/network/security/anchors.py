"""Trust anchors as Java takes them: a name and a public key (RFC 5280, 6.1.1)."""

from __future__ import annotations

from datetime import UTC, datetime

from asn1crypto import x509

_ALWAYS = x509.Validity({
    "not_before": x509.Time({"utc_time": datetime(1970, 1, 1, tzinfo=UTC)}),
    "not_after": x509.Time({"general_time": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)}),
})  # fmt: skip
_PURPOSES = "extended_key_usage"


def anchors(certificate: bytes) -> list[bytes]:
    """The certificates in DER that make OpenSSL trust what Java does for this one of a truststore.

    Java checks neither dates nor extended key usage of an anchor, OpenSSL both. So a CA is trusted without them: the
    signature does not match then, but no signature of an anchor is checked. A CA may also be a broker's own
    certificate, which must be trusted as it is.
    """
    try:
        ca = x509.Certificate.load(certificate)
        body = ca["tbs_certificate"]
        if not ca.ca and body["version"].native != "v1":
            return [certificate]
        purposes = [each["extn_id"].native for each in body["extensions"] or ()].count(_PURPOSES)
        if purposes:
            body["extensions"] = [each for each in body["extensions"] if each["extn_id"].native != _PURPOSES]
        body["validity"] = _ALWAYS
        widened = ca.dump(force=True)
    except (ValueError, TypeError, KeyError):
        return [certificate]
    return [widened] if purposes else [certificate, widened]
