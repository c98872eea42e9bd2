"""Rules of the SASL options. No text shows a credential."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Final

from spark_kafka_sink.common.config.config_providers import has_placeholder
from spark_kafka_sink.common.config.draft import Draft
from spark_kafka_sink.common.config.jaas import JaasError, LoginModule, parse_jaas
from spark_kafka_sink.common.config.kerberos_rules import GSSAPI, KRB5_EXAMPLE, KRB5_MODULE, kerberos, krb5_fault
from spark_kafka_sink.common.config.oauth_rules import OAUTH_MODULE, OAUTHBEARER, oauthbearer
from spark_kafka_sink.common.config.option import did_you_mean
from spark_kafka_sink.common.config.token_providers import AWS_MECHANISM, AWS_MODULE, token_provider
from spark_kafka_sink.common.config.token_providers import OPTION as PROVIDER

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS_GROUP: Final = "spark_kafka_sink.sasl"
"""Entry points of this group are mechanisms; their names are values of ``sasl.mechanism``."""

_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
# A module outside of this table is not shown: it may be a password in the wrong place.
_MECHANISMS_OF_MODULES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        _PLAIN: ("PLAIN",),
        _SCRAM: ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        OAUTH_MODULE: (OAUTHBEARER,),
        KRB5_MODULE: (GSSAPI,),
        AWS_MODULE: (AWS_MECHANISM,),
    }
)
# As in Java, PLAIN takes user and password of either module; SCRAM needs its own.
_MODULES_OF_MECHANISMS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "PLAIN": (_PLAIN, _SCRAM),
        "SCRAM-SHA-256": (_SCRAM,),
        "SCRAM-SHA-512": (_SCRAM,),
        OAUTHBEARER: (OAUTH_MODULE,),
        GSSAPI: (KRB5_MODULE,),
    }
)
_BUILT: Final = "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI"
_CLASS_NAME: Final = re.compile(r"[\w$]+(\.[\w$]+)+LoginModule", re.ASCII)


def sasl(draft: Draft) -> None:
    """SASL_PLAINTEXT and SASL_SSL need a known mechanism, in upper or lower case, and credentials for it."""
    protocol, mechanism = draft.values["security.protocol"], draft.values["sasl.mechanism"]
    if mechanism.upper() in _MODULES_OF_MECHANISMS:
        draft.values["sasl.mechanism"] = mechanism = mechanism.upper()
    if not protocol.startswith("SASL_"):
        if given := [name for name in ("sasl.mechanism", "sasl.jaas.config", PROVIDER) if name in draft.given]:
            draft.warn(
                given[0], f"has no effect, as {draft.prefix}security.protocol is {protocol}; SASL needs SASL_SSL."
            )
        return
    module = _login_module(draft)
    if token_provider(draft, module):
        return
    if "sasl.mechanism" not in draft.given and not _means_kerberos(draft, module):
        suited = _suited(module)
        draft.fault(
            "sasl.mechanism", f"is not set, and its default is GSSAPI (Kerberos); set it to {suited or _BUILT}."
        )
    elif mechanism in _MODULES_OF_MECHANISMS:
        if "sasl.jaas.config" not in draft.faulty:
            _check_credentials(draft, mechanism, module)
    elif not entry_points(group=MECHANISMS_GROUP, name=mechanism):
        guess = did_you_mean(mechanism, _MODULES_OF_MECHANISMS)
        draft.fault(
            "sasl.mechanism",
            f"must be {_BUILT}, or the name of an entry point of the group {MECHANISMS_GROUP}, but is "
            f"{mechanism!r}{guess or '.'}",
        )


def _means_kerberos(draft: Draft, module: LoginModule | None) -> bool:
    """Java's default mechanism is meant where the login module is Kerberos' or placeholders hide it."""
    if module is not None:
        return module.name == KRB5_MODULE
    return draft.values["sasl.jaas.config"] is not None


def _suited(module: LoginModule | None) -> str:
    """The mechanisms of a login module, "" if it is not known."""
    return " or ".join(_MECHANISMS_OF_MODULES.get(module.name, ())) if module is not None else ""


def _login_module(draft: Draft) -> LoginModule | None:
    """None without a login module; also where placeholders stand for parts of it: then the login checks it."""
    config = draft.values["sasl.jaas.config"]
    try:
        return None if config is None else parse_jaas(config.value)
    except JaasError as error:
        if has_placeholder(config.value):
            return None
        draft.fault("sasl.jaas.config", f"{error}.")
        return None


def _check_credentials(draft: Draft, mechanism: str, module: LoginModule | None) -> None:
    """OAUTHBEARER needs no login module: its credentials have options of their own."""
    name = "sasl.jaas.config"
    if module is not None:
        if (fault := credentials_fault(mechanism, module, draft.prefix)) is not None:
            draft.fault(name, fault)
            return
    elif draft.values[name] is None and mechanism != OAUTHBEARER:
        tokens = " Delegation tokens that Spark fetches cannot be used: they are not available in Python workers."
        draft.fault(name, f"is required with {mechanism}: {_example(mechanism)}{tokens if draft.prefix else ''}")
    if mechanism == OAUTHBEARER:
        oauthbearer(draft, module)
    elif mechanism == GSSAPI:
        kerberos(draft, module)


def _example(mechanism: str) -> str:
    if mechanism == GSSAPI:
        return KRB5_EXAMPLE
    credentials = 'clientId="…" clientSecret="…"' if mechanism == OAUTHBEARER else 'username="…" password="…"'
    return f"{_MODULES_OF_MECHANISMS[mechanism][0]} required {credentials};"


def credentials_fault(mechanism: str, module: LoginModule, prefix: str = "") -> str | None:
    """Why ``module`` has no credentials of ``mechanism``; the text follows the option's name."""
    needed = _MODULES_OF_MECHANISMS.get(mechanism)
    if needed is None or (mechanism == OAUTHBEARER and module.name in needed):
        return None
    example = _example(mechanism)
    if module.name not in needed:
        shown = module.name if _CLASS_NAME.fullmatch(module.name) else "a class that is not a known login module"
        suited = _suited(module)
        can_set = suited and (suited in _BUILT or suited == AWS_MECHANISM)
        other = f", or set {prefix}sasl.mechanism={suited}" if can_set else ""
        return f"has {shown}, which does not log in with {mechanism}; write {example}{other}"
    if mechanism == GSSAPI:
        return krb5_fault(module.options)
    missing = [key for key in ("username", "password") if key not in module.options]
    if missing:
        return f"has no {' and no '.join(missing)}; write {example}"
    if any("\0" in module.options[key] for key in ("username", "password")):
        return "has a NUL character (\\0) in its username or password: is a backslash not doubled?"
    return None
