"""Tickets and security contexts of Kerberos, by the library gssapi over MIT's libgssapi_krb5.

Realms, KDCs and canonical host names are those of krb5.conf. Everything except ``wrap`` and ``unwrap`` may ask the KDC,
so it runs on a login's thread; libkrb5 gives up on a KDC after its own timeouts.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import gssapi

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.errors import LoginError, SaslAuthenticationError
from spark_kafka_sink.network.login.token_login import RetriableLoginError

_KERBEROS: Final = gssapi.MechType.kerberos
_FLAGS: Final = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity
_KINIT: Final = "run kinit as this process's user, or log in with useKeyTab=true in sasl.jaas.config"
_numbers = itertools.count(1)

# MIT's codes are this base and the error number of the protocol (RFC 4120).
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


class GssTickets:
    """Gets tickets, one by one, on one thread. Raises ``LoginError`` with advice."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._cache = _new_cache()

    def of_ticket_cache(self, cache: str | None, principal: str | None) -> GssTicket:
        """A ticket that kinit got. By default the cache is the user's own, and the principal the one of the cache."""
        what = f"There is no valid ticket in {f'ticketCache {cache}' if cache else 'the ticket cache'}"
        try:
            name = _principal(principal) if principal else None
            store = {"ccache": cache} if cache else None
            credentials = gssapi.Credentials(name=name, usage="initiate", mechs=[_KERBEROS], store=store)
            return self._ticket(credentials, None)
        except gssapi.exceptions.ExpiredCredentialsError:
            raise login_error(what, TICKET_EXPIRED, "it has expired", _KINIT) from None
        except gssapi.exceptions.GSSError as error:
            raise login_error(what, _code(error), _reason(error), _KINIT) from None

    def of_keytab(self, path: str, principal: str) -> GssTicket:
        """A new ticket from the KDC."""
        self._check_keytab(path, principal)
        store = {"client_keytab": path, "ccache": self._cache}
        now = self._clock.epoch_ms()
        try:
            name = _principal(principal)
            credentials = gssapi.Credentials(name=name, usage="initiate", mechs=[_KERBEROS], store=store)
            ticket = self._ticket(credentials, now)
        except gssapi.exceptions.GSSError as error:
            raise login_error(f"The KDC gave no ticket for {principal}", _code(error), _reason(error)) from None
        # Each ticket gets a new cache, because libkrb5 would keep the tickets of an old one for half of their life, and
        # hide why a KDC gives no new ones.
        self._cache = _new_cache()
        return ticket

    def _check_keytab(self, path: str, principal: str) -> None:
        """Raises ``LoginError`` for an unusable keytab, for which libkrb5 would only say that the ticket cache is
        empty."""
        try:
            Path(path).open("rb").close()
        except OSError as error:
            raise LoginError(f"keyTab {path} of sasl.jaas.config cannot be read: {error.strerror}") from None
        try:
            gssapi.Credentials(name=_principal(principal), usage="accept", mechs=[_KERBEROS], store={"keytab": path})
        except gssapi.exceptions.GSSError as error:
            what = f"keyTab {path} of sasl.jaas.config has no key of principal {principal}"
            raise login_error(what, _code(error), _reason(error), f"klist -k {path} lists its principals") from None

    def _ticket(self, credentials: gssapi.Credentials, issued_at: float | None) -> GssTicket:
        expires_at = self._clock.epoch_ms() + credentials.lifetime * 1000.0
        return GssTicket(credentials, str(credentials.name), expires_at, issued_at)


@dataclass(frozen=True, slots=True)
class GssTicket:
    """The tickets of one principal, in memory or in a ticket cache. Times are in ms since 1970."""

    credentials: gssapi.Credentials
    principal: str
    expires_at: float
    issued_at: float | None

    def context(self, service: str, host: str) -> GssContext:
        return GssContext(self.credentials, service, host)


class GssContext:
    """A security context with mutual authentication: one login at one broker. ``what`` follows "waiting for"."""

    def __init__(self, credentials: gssapi.Credentials, service: str, host: str) -> None:
        self.what = f"a Kerberos ticket for the service {service} on {host} (sasl.kerberos.service.name)"
        self.established = False
        self._credentials = credentials
        self._service = service
        self._host = host
        self._context: gssapi.SecurityContext | None = None

    def advance(self, token: bytes) -> bytes:
        """The next message for the broker, whose last one is ``token``, empty at first. Raises ``LoginError``."""
        if self._context is None:
            return self._begin()
        try:
            message: bytes | None = self._context.step(token)
        except gssapi.exceptions.GSSError as error:
            what = f"The broker at {self._host} could not prove that it is {self._service}/{self._host}"
            raise login_error(what, _code(error), _reason(error)) from None
        self.established = self._context.complete
        return message or b""

    def _begin(self) -> bytes:
        """Asks for the host that the client connected to and, if the KDC does not know it, for its canonical name."""
        try:
            *others, last = self._names()
            for name in others:
                try:
                    return self._initiate(name)
                except gssapi.exceptions.GSSError as error:
                    if _code(error) != SERVER_UNKNOWN:
                        raise
            return self._initiate(last)
        except gssapi.exceptions.ExpiredCredentialsError as error:
            raise login_error("The Kerberos ticket has expired", TICKET_EXPIRED, _reason(error), _KINIT) from None
        except gssapi.exceptions.GSSError as error:
            what = f"The KDC gave no ticket for {self._service}/{self._host}"
            advice = "see sasl.kerberos.service.name, and the host names in bootstrap.servers and advertised.listeners"
            raise login_error(what, _code(error), _reason(error), advice) from None

    def _initiate(self, name: gssapi.Name) -> bytes:
        context = gssapi.SecurityContext(
            name=name, creds=self._credentials, usage="initiate", mech=_KERBEROS, flags=_FLAGS
        )
        message: bytes = context.step()
        self._context = context
        self.established = context.complete
        return message

    def _names(self) -> list[gssapi.Name]:
        by_host = gssapi.Name(f"{self._service}@{self._host}", gssapi.NameType.hostbased_service)
        canonical = str(by_host.canonicalize(_KERBEROS))
        as_given = f"{self._service}/{self._host.lower()}@{canonical.rpartition('@')[2]}"
        return [by_host] if canonical == as_given else [_principal(as_given), by_host]

    def unwrap(self, message: bytes) -> bytes:
        """The content of the broker's message. Raises ``SaslAuthenticationError``."""
        assert self._context is not None
        try:
            content: bytes = self._context.unwrap(message).message
        except gssapi.exceptions.GSSError as error:
            raise SaslAuthenticationError(f"its offer of security layers cannot be read: {_reason(error)}") from None
        return content

    def wrap(self, content: bytes) -> bytes:
        """A message with integrity, without confidentiality."""
        assert self._context is not None
        message: bytes = self._context.wrap(content, encrypt=False).message
        return message


def signed_minor(minor: int) -> int:
    """The code of libkrb5 for a minor status of GSS-API, which has no sign."""
    return minor - 2**32 if minor >= 2**31 else minor


def login_error(what: str, code: int, reason: str, advice: str = "") -> LoginError:
    """The error of a failed step. ``what``: the beginning of the text, which says what failed. ``advice``: for codes
    without advice of their own in ``_ADVICE``."""
    look_at = _ADVICE.get(code, advice)
    text = f"{what}: {reason}{f'; {look_at}' if look_at else ''}"
    return RetriableLoginError(text) if code == KDC_UNREACHABLE else LoginError(text)


def _new_cache() -> str:
    """The name of a new cache in memory. libkrb5 keeps a cache's content (2 KiB) until the process ends."""
    return f"MEMORY:spark-kafka-sink-{next(_numbers)}"


def _principal(name: str) -> gssapi.Name:
    return gssapi.Name(name, gssapi.NameType.kerberos_principal)


def _code(error: gssapi.exceptions.GSSError) -> int:
    return signed_minor(error.min_code)


def _reason(error: gssapi.exceptions.GSSError) -> str:
    """The library's text, without its error numbers."""
    of_mechanism = error.min_code and not isinstance(error, gssapi.exceptions.ExpiredCredentialsError)
    texts = error.get_all_statuses(error.min_code if of_mechanism else error.maj_code, not of_mechanism)
    return "; ".join(texts)
