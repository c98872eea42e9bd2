"""Rules of GSSAPI's options: ``Krb5LoginModule`` and the brokers' service name. No text shows the module's values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.common.config.draft import Draft
from spark_kafka_sink.common.config.jaas import LoginModule
from spark_kafka_sink.common.config.operator_limits import file_fault

GSSAPI: Final = "GSSAPI"
KRB5_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
KRB5_EXAMPLE: Final = f'{KRB5_MODULE} required useKeyTab=true keyTab="/path/to/keytab" principal="name@REALM";'
SERVICE_NAME: Final = "sasl.kerberos.service.name"


def kerberos(draft: Draft, module: LoginModule | None) -> None:
    """The service name. ``module``: None also where placeholders hide it: then the login checks it."""
    if module is None:
        return
    if (fault := service_name_fault(draft.values[SERVICE_NAME], module.options)) is not None:
        draft.fault(SERVICE_NAME, fault)


def service_name_fault(option: str | None, jaas: Mapping[str, str]) -> str | None:
    """The text follows the option's name (Java: ``KerberosLogin.getServiceName``)."""
    in_jaas = jaas.get("serviceName")
    if option and in_jaas and option != in_jaas:
        return "is not the serviceName in sasl.jaas.config; leave one of them out."
    if not option and not in_jaas:
        return "is required with GSSAPI: the first part of the brokers' principals, most often kafka."
    return None


def is_on(jaas: Mapping[str, str], option: str) -> bool:
    """A flag of the login module; off by default."""
    return jaas.get(option, "").lower() == "true"


def krb5_fault(jaas: Mapping[str, str]) -> str | None:
    """Why the options of ``Krb5LoginModule`` cannot log in; the text follows ``sasl.jaas.config``."""
    keytab = is_on(jaas, "useKeyTab")
    if jaas.get("isInitiator", "true").lower() == "false":
        return "has isInitiator=false, which is for brokers; leave it out"
    if not keytab and not is_on(jaas, "useTicketCache"):
        return (
            f"has neither a keytab nor a ticket cache; write {KRB5_EXAMPLE} or, to use the tickets of kinit, "
            f"{KRB5_MODULE} "
            "required useTicketCache=true;"
        )
    if keytab and (missing := [key for key in ("keyTab", "principal") if not jaas.get(key)]):
        return f"has useKeyTab=true, but no {' and no '.join(missing)}; write {KRB5_EXAMPLE}"
    if keytab and (fault := file_fault(jaas["keyTab"].removeprefix("FILE:"))) is not None:
        return f"has keyTab, which {fault}"
    cache = jaas.get("ticketCache")  # other kinds, such as KEYRING:, are refused where files are limited
    if cache and (fault := file_fault(cache.removeprefix("FILE:").removeprefix("DIR:"))) is not None:
        return f"has ticketCache, which {fault}"
    return None
