"""SASL/GSSAPI (RFC 4752): Kerberos without a security layer, as Kafka's brokers have it. The rules show no value.

The library that speaks to the KDC is optional: only ``gss.py`` imports it, and options parse without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.option import ConfigBuilder
from spark_kafka_sink.common.config.providers import file_fault
from spark_kafka_sink.common.config.security_rules import GSSAPI, LoginModule, check_login_module, credentials_fault
from spark_kafka_sink.errors import ConfigError, LoginError, SaslAuthenticationError
from spark_kafka_sink.network.login.sasl import Exchange, jaas_options, login_module
from spark_kafka_sink.network.login.token_login import ExpiringSource, Login, RefreshWindow, run_on_thread

if TYPE_CHECKING:
    from spark_kafka_sink.network.login.gss import GssTicket

KRB5_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
KRB5_EXAMPLE: Final = f'{KRB5_MODULE} required useKeyTab=true keyTab="/path/to/keytab" principal="name@REALM";'
_SERVICE_NAME: Final = "sasl.kerberos.service.name"
_NO_LAYER: Final = 1
_LAYERS_BYTES: Final = 4


class Kerberos:
    """Logs in with tickets that all clients of the process with the same credentials share.

    ``source`` gets the tickets; by default it is ``Krb5Tickets``. Raises ``ConfigError`` if its library is missing.
    """

    login_modules = (KRB5_MODULE,)
    example = KRB5_EXAMPLE
    sends = ""
    advice = "sasl.kerberos.service.name, the keytabs of the brokers, and the clocks of this machine and the brokers"

    def __init__(self, config: ProducerConfig, source: ExpiringSource[GssTicket] | None = None) -> None:
        self._config = config
        source = Krb5Tickets(config) if source is None else source
        self._login = Login.shared(self, config, source, renewal(config))

    @staticmethod
    def check(draft: ConfigBuilder, module: LoginModule | None) -> None:
        check_login_module(draft, module)
        if module is None or "sasl.jaas.config" in draft.faulty:
            return
        if (fault := _service_name_fault(draft.values[_SERVICE_NAME], module.options)) is not None:
            draft.fault(_SERVICE_NAME, fault)

    @staticmethod
    def module_fault(options: Mapping[str, str]) -> str | None:
        keytab = _is_on(options, "useKeyTab")
        if options.get("isInitiator", "true").lower() == "false":
            return "has isInitiator=false, which is for brokers; leave it out"
        if not keytab and not _is_on(options, "useTicketCache"):
            return (
                f"has neither a keytab nor a ticket cache; write {KRB5_EXAMPLE} or, to use the tickets of kinit, "
                f"{KRB5_MODULE} required useTicketCache=true;"
            )
        if keytab and (missing := [key for key in ("keyTab", "principal") if not options.get(key)]):
            return f"has useKeyTab=true, but no {' and no '.join(missing)}; write {KRB5_EXAMPLE}"
        if keytab and (fault := file_fault(options["keyTab"].removeprefix("FILE:"))) is not None:
            return f"has keyTab, which {fault}"
        cache = options.get("ticketCache")  # other kinds, such as KEYRING:, are refused where files are limited
        if cache and (fault := file_fault(cache.removeprefix("FILE:").removeprefix("DIR:"))) is not None:
            return f"has ticketCache, which {fault}"
        return None

    def exchange(self, host: str) -> Exchange:
        service = _service_name(self._config)
        ticket_step = self._login.token()
        yield ticket_step
        ticket = ticket_step.result()
        context = ticket.context(service, host)
        token = b""
        while not context.established:
            step = run_on_thread(context.what, context.advance, token)
            yield step
            token = yield step.result()
        yield context.wrap(_without_layer(context.unwrap(token), ticket.principal))

    def close(self) -> None:
        self._login.close(self)


class Krb5Tickets:
    """Gets tickets as Java's ``Krb5LoginModule`` does: from a ticket cache, otherwise with a keytab."""

    what = "a Kerberos ticket (sasl.jaas.config)"

    def __init__(self, config: ProducerConfig) -> None:
        try:
            from spark_kafka_sink.network.login.gss import GssTickets
        except ImportError as error:
            raise ConfigError([
                "sasl.mechanism=GSSAPI needs the package gssapi and MIT Kerberos, which cannot be loaded here "
                f"({error}): pip install gssapi, which needs a C compiler and libkrb5-dev (Debian, "
                "Ubuntu) or krb5-devel (Red Hat)."
            ]) from error  # fmt: skip
        self._config = config
        self._gss = GssTickets(SystemClock())

    def fetch(self) -> GssTicket:
        module = login_module(self._config)
        if (fault := credentials_fault(GSSAPI, module)) is not None:
            raise LoginError(f"sasl.jaas.config {fault}")
        jaas = module.options
        if _is_on(jaas, "useTicketCache"):
            try:
                return self._gss.of_ticket_cache(jaas.get("ticketCache"), jaas.get("principal"))
            except LoginError:
                if not _is_on(jaas, "useKeyTab"):
                    raise
        return self._gss.of_keytab(jaas["keyTab"].removeprefix("FILE:"), jaas["principal"])


def _is_on(jaas: Mapping[str, str], option: str) -> bool:
    """Whether a flag of the login module is on; flags are off by default."""
    return jaas.get(option, "").lower() == "true"


def _service_name_fault(option: str | None, jaas: Mapping[str, str]) -> str | None:
    """Why there is no service name, in words that follow the option's name (Java: ``KerberosLogin.getServiceName``)."""
    in_jaas = jaas.get("serviceName")
    if option and in_jaas and option != in_jaas:
        return "is not the serviceName in sasl.jaas.config; leave one of them out."
    if not option and not in_jaas:
        return "is required with GSSAPI: the first part of the brokers' principals, most often kafka."
    return None


def _service_name(config: ProducerConfig) -> str:
    """The brokers' service name. Checks it again, because the rules see placeholders and not their values."""
    jaas = jaas_options(config)
    if (fault := _service_name_fault(config.sasl_kerberos_service_name, jaas)) is not None:
        raise SaslAuthenticationError(f"{_SERVICE_NAME} {fault.rstrip('.')}")
    return config.sasl_kerberos_service_name or jaas["serviceName"]


def renewal(config: ProducerConfig) -> RefreshWindow:
    """The options that say when Java's ``KerberosLogin`` renews a ticket."""
    return RefreshWindow(
        factor=min(max(config.sasl_kerberos_ticket_renew_window_factor, 0.0), 1.0),
        jitter=max(config.sasl_kerberos_ticket_renew_jitter, 0.0),
        least=max(config.sasl_kerberos_min_time_before_relogin, 1_000.0),
        buffer=0.0,
    )


def _without_layer(offer: bytes, principal: str) -> bytes:
    """The response to an offer of layers (a bit for each, then a size): no layer, size 0, the authorization id."""
    if len(offer) != _LAYERS_BYTES or not offer[0] & _NO_LAYER:
        raise SaslAuthenticationError(
            "it does not offer authentication without a security layer, as Kafka's brokers do"
        )
    return bytes([_NO_LAYER, 0, 0, 0]) + principal.encode()
