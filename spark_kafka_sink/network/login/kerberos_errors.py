"""What to look at when Kerberos fails, by the error codes of RFC 4120 and MIT's libkrb5."""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.errors import LoginError
from spark_kafka_sink.network.login.token_login import RetriableLoginError

# MIT's codes: a base, and the protocol's error number.
_BASE: Final = -1765328384
CLIENT_UNKNOWN: Final = _BASE + 6
SERVER_UNKNOWN: Final = _BASE + 7
CLIENT_REVOKED: Final = _BASE + 18
KEY_EXPIRED: Final = _BASE + 23
PREAUTH_FAILED: Final = _BASE + 24
BAD_INTEGRITY: Final = _BASE + 31
TICKET_EXPIRED: Final = _BASE + 32
SKEW: Final = _BASE + 37
SKEW_OF_KDC: Final = _BASE + 148
REALM_UNKNOWN: Final = _BASE + 154
KDC_UNREACHABLE: Final = _BASE + 156

_KRB5_CONF: Final = "see the realm's kdc in krb5.conf (environment variable KRB5_CONFIG, else the system's)"
_KEYS: Final = "the keys in keyTab of sasl.jaas.config are not those of the KDC: write the keytab anew"
_PRINCIPAL: Final = "see principal in sasl.jaas.config"
_CLOCKS: Final = "set the clocks of this machine, the KDC and the brokers: they may differ by 5 minutes"
_ADVICE: Final = {
    CLIENT_UNKNOWN: _PRINCIPAL,
    CLIENT_REVOKED: _PRINCIPAL,
    KEY_EXPIRED: _PRINCIPAL,
    PREAUTH_FAILED: _KEYS,
    BAD_INTEGRITY: _KEYS,
    SKEW: _CLOCKS,
    SKEW_OF_KDC: _CLOCKS,
    REALM_UNKNOWN: _KRB5_CONF,
    KDC_UNREACHABLE: _KRB5_CONF,
}


def signed(minor: int) -> int:
    """A minor status of GSS-API, which has no sign, as libkrb5's code."""
    return minor - 2**32 if minor >= 2**31 else minor


def login_error(what: str, code: int, reason: str, advice: str = "") -> LoginError:
    """``what``: what was not to be had; ``advice``: for codes that name nothing better."""
    look_at = _ADVICE.get(code, advice)
    text = f"{what}: {reason}{f'; {look_at}' if look_at else ''}"
    return RetriableLoginError(text) if code == KDC_UNREACHABLE else LoginError(text)
