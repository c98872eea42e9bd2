"""Rules of the SASL options, and the table of the mechanisms that are built in. No text shows a credential.

A mechanism is a plug-in: one file in ``network/login`` has the rules of its options and its messages, and one row of
``BUILT_IN`` names it. A row is written like an entry point and loaded when it is needed, because imports only go down:
a mechanism reads the parsed options, so the options cannot import it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, Final, Protocol

from spark_kafka_sink.common.config.config_providers import has_placeholder
from spark_kafka_sink.common.config.draft import Draft, is_loopback
from spark_kafka_sink.common.config.jaas import JaasError, LoginModule, parse_jaas
from spark_kafka_sink.common.config.option import did_you_mean

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
GROUP: Final = "spark_kafka_sink.sasl"
"""Entry points of this group are mechanisms (``sasl.mechanism``) or sources of tokens (``saslTokenProvider``)."""

_LOGIN: Final = "spark_kafka_sink.network.login"
BUILT_IN: Final[Mapping[str, str]] = MappingProxyType({
    "PLAIN": f"{_LOGIN}.plain:Plain",
    "SCRAM-SHA-256": f"{_LOGIN}.scram:ScramSha256",
    "SCRAM-SHA-512": f"{_LOGIN}.scram:ScramSha512",
    "OAUTHBEARER": f"{_LOGIN}.oauthbearer:OAuthBearer",
    "GSSAPI": f"{_LOGIN}.kerberos:Kerberos",
})  # fmt: skip
OAUTHBEARER, GSSAPI = "OAUTHBEARER", "GSSAPI"
AWS_MECHANISM: Final = "AWS_MSK_IAM"
"""The name that Amazon's Java library has for logging in with tokens of AWS."""
AWS_MODULE: Final = "software.amazon.msk.auth.iam.IAMLoginModule"
PROVIDER: Final = "sasl.token.provider"
JAAS: Final = "sasl.jaas.config"
HANDLER: Final = "sasl.login.callback.handler.class"
TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"

*_OTHERS, _LAST = BUILT_IN
_BUILT: Final = f"{', '.join(_OTHERS)} or {_LAST}"
_CLASS_NAME: Final = re.compile(r"[\w$]+(\.[\w$]+)+LoginModule", re.ASCII)


class BuiltIn(Protocol):
    """The class that a row of ``BUILT_IN`` names: a mechanism, which also has the rules of its options.

    ``login_modules`` are Java's classes with its credentials, its own first. ``example`` is what errors tell users to
    write in ``sasl.jaas.config``. ``sends`` is the secret that goes to the broker as it is, "" if none does. ``advice``
    says where to look when a broker has refused the credentials.
    """

    login_modules: tuple[str, ...]
    example: str
    sends: str
    advice: str

    def check(self, draft: Draft, module: LoginModule | None) -> None:
        """Checks the options of a draft, ``check_login_module`` first unless the mechanism needs no login module.

        ``module`` is None also if placeholders hide it; then the login checks it.
        """

    def module_fault(self, options: Mapping[str, str]) -> str | None:
        """Why the options of the login module cannot log in; the text follows ``sasl.jaas.config``. Logins ask, too."""

    def __call__(self, config: Any, /) -> Any:
        """The ``SaslMechanism`` of a ``ProducerConfig``; this file can import neither."""


def built_in(mechanism: str) -> BuiltIn | None:
    """The class of a mechanism, None for one that is not built in."""
    path = BUILT_IN.get(mechanism)
    if path is None:
        return None
    loaded: BuiltIn = EntryPoint(mechanism, path, GROUP).load()
    return loaded


def sasl(draft: Draft) -> None:
    """SASL_PLAINTEXT and SASL_SSL need a known mechanism, in upper or lower case, and credentials for it."""
    protocol, mechanism = draft.values["security.protocol"], draft.values["sasl.mechanism"]
    if mechanism.upper() in BUILT_IN:
        draft.values["sasl.mechanism"] = mechanism = mechanism.upper()
    if not protocol.startswith("SASL_"):
        if given := [name for name in ("sasl.mechanism", JAAS, PROVIDER) if name in draft.given]:
            draft.warn(
                given[0], f"has no effect, as {draft.prefix}security.protocol is {protocol}; SASL needs SASL_SSL."
            )
        return
    module = _login_module(draft)
    asks_for_tokens = draft.values[PROVIDER] or mechanism == AWS_MECHANISM
    if not asks_for_tokens and "sasl.mechanism" not in draft.given and not _means_kerberos(draft, module):
        suited = " or ".join(_suited(module)) if module is not None else ""
        draft.fault(
            "sasl.mechanism", f"is not set, and its default is GSSAPI (Kerberos); set it to {suited or _BUILT}."
        )
    elif (found := built_in(OAUTHBEARER if asks_for_tokens else mechanism)) is not None:
        found.check(draft, module)
    elif not entry_points(group=GROUP, name=mechanism):
        guess = did_you_mean(mechanism, BUILT_IN)
        draft.fault(
            "sasl.mechanism",
            f"must be {_BUILT}, or the name of an entry point of the group {GROUP}, but is {mechanism!r}{guess or '.'}",
        )


def clear_text_login(draft: Draft) -> None:
    """Warns about a mechanism that sends its secret with SASL_PLAINTEXT, unless all brokers are on this machine."""
    of_this_machine = all(is_loopback(host) for host, _ in draft.values["bootstrap.servers"])
    if draft.values["security.protocol"] != "SASL_PLAINTEXT" or of_this_machine:
        return
    found = built_in(draft.values["sasl.mechanism"])
    if found is not None and found.sends:
        draft.caution(
            "security.protocol", f"has no TLS, so the {found.sends} crosses the network in clear text; write SASL_SSL."
        )


def check_login_module(draft: Draft, module: LoginModule | None) -> None:
    """``sasl.jaas.config`` must have a login module of the mechanism, unless placeholders hide it."""
    mechanism = draft.values["sasl.mechanism"]
    if JAAS in draft.faulty:
        return
    if module is not None:
        if (fault := credentials_fault(mechanism, module, draft.prefix)) is not None:
            draft.fault(JAAS, fault)
    elif draft.values[JAAS] is None and (found := built_in(mechanism)) is not None:
        tokens = " Delegation tokens that Spark fetches cannot be used: they are not available in Python workers."
        draft.fault(JAAS, f"is required with {mechanism}: {found.example}{tokens if draft.prefix else ''}")


def credentials_fault(mechanism: str, module: LoginModule, prefix: str = "") -> str | None:
    """Why ``module`` has no credentials of ``mechanism``; the text follows the option's name.

    A class that is not the known name of a login module is not shown: it may be a password in the wrong place.
    """
    found = built_in(mechanism)
    if found is None:
        return None
    if module.name in found.login_modules:
        return found.module_fault(module.options)
    shown = module.name if _CLASS_NAME.fullmatch(module.name) else "a class that is not a known login module"
    suited = _suited(module)
    other = f", or set {prefix}sasl.mechanism={suited[0]}" if len(suited) == 1 else ""
    return f"has {shown}, which does not log in with {mechanism}; write {found.example}{other}"


def _means_kerberos(draft: Draft, module: LoginModule | None) -> bool:
    """Whether Java's default mechanism is meant: the login module is Kerberos' or placeholders hide it."""
    if module is not None:
        return GSSAPI in _suited(module)
    return draft.values[JAAS] is not None


def _suited(module: LoginModule) -> list[str]:
    """The mechanisms whose own login module this is."""
    if module.name == AWS_MODULE:
        return [AWS_MECHANISM]
    return [name for name in BUILT_IN if (found := built_in(name)) and found.login_modules[0] == module.name]


def _login_module(draft: Draft) -> LoginModule | None:
    """The login module. None without one, and if placeholders stand for parts of it: then the login checks it."""
    config = draft.values[JAAS]
    try:
        return None if config is None else parse_jaas(config.value)
    except JaasError as error:
        if has_placeholder(config.value):
            return None
        draft.fault(JAAS, f"{error}.")
        return None
