"""Options of basic and bearer authentication (Java: ``BasicAuthCredentialProvider``, ``BearerAuth…``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.operator_limits import url_fault
from spark_kafka_sink.common.config.option import (
    PASSWORD,
    STRING,
    Draft,
    Matching,
    OneOf,
    Option,
    Password,
    declared,
    option,
)
from spark_kafka_sink.common.config.providers import has_placeholder
from spark_kafka_sink.common.config.security_rules import built_in
from spark_kafka_sink.network.login.plain import PasswordMechanism

BASIC_SOURCE: Final = "basic.auth.credentials.source"
USER_INFO: Final = "basic.auth.user.info"
BEARER_SOURCE: Final = "bearer.auth.credentials.source"
TOKEN: Final = "bearer.auth.token"
ISSUER: Final = "bearer.auth.issuer.endpoint.url"
CLIENT_ID: Final = "bearer.auth.client.id"
CLIENT_SECRET: Final = "bearer.auth.client.secret"
_SCOPE: Final = "bearer.auth.scope"
_CLUSTER: Final = "bearer.auth.logical.cluster"
_POOL: Final = "bearer.auth.identity.pool.id"


class CredentialSource(Enum):
    """Where the header Authorization comes from: the values of both options of a credentials source."""

    URL = "URL"
    USER_INFO = "USER_INFO"
    SASL_INHERIT = "SASL_INHERIT"
    STATIC_TOKEN = "STATIC_TOKEN"
    OAUTHBEARER = "OAUTHBEARER"
    SASL_OAUTHBEARER_INHERIT = "SASL_OAUTHBEARER_INHERIT"

    @property
    def option(self) -> str:
        """The option that has this value."""
        return BEARER_SOURCE if self in _BEARER else BASIC_SOURCE


_BASIC: Final = (CredentialSource.URL, CredentialSource.USER_INFO, CredentialSource.SASL_INHERIT)
_BEARER: Final = (
    CredentialSource.STATIC_TOKEN,
    CredentialSource.OAUTHBEARER,
    CredentialSource.SASL_OAUTHBEARER_INHERIT,
)

_IN_A_HEADER: Final = Matching(r"[\x21-\x7E]+", "ASCII characters without spaces")


@dataclass(frozen=True, slots=True)
class RegistryLogin:
    """How requests are authorized. ``sasl``: the options of the brokers, for sources that inherit from them."""

    source: CredentialSource
    sasl: ProducerConfig | None
    # fmt: off
    user_info: Password | None = option(USER_INFO, PASSWORD, None, "medium",
        "user:password, or API key and secret of Confluent Cloud as key:secret.")
    token: Password | None = option(TOKEN, PASSWORD, None, "medium", "The bearer token, with STATIC_TOKEN.")
    issuer_url: str | None = option(ISSUER, STRING, None, "medium",
        "OAUTHBEARER: URL that issues tokens. Its TLS uses the options schema.registry.ssl.*.")
    client_id: str | None = option(CLIENT_ID, STRING, None, "medium", "OAUTHBEARER: client id.")
    client_secret: Password | None = option(CLIENT_SECRET, PASSWORD, None, "medium", "OAUTHBEARER: client secret.")
    scope: str | None = option(_SCOPE, STRING, None, "medium", "OAUTHBEARER: requested scope.")
    logical_cluster: str | None = option(_CLUSTER, STRING, None, "medium",
        "With bearer tokens: id of Confluent Cloud's registry, lsrc-… (header target-sr-cluster).", _IN_A_HEADER)
    identity_pool_id: str | None = option(_POOL, STRING, None, "medium",
        "With bearer tokens: id of the identity pool, pool-… (header Confluent-Identity-Pool-Id).", _IN_A_HEADER)
    # fmt: on


_FIELDS: Final = declared(RegistryLogin)
_USER_INFO, *_TOKENS = _FIELDS.values()

LOGIN_OPTIONS: Final[tuple[Option, ...]] = (
    Option(BASIC_SOURCE, STRING, "URL", "medium",
           "Where the user and password of HTTP basic authentication come from: URL (schema.registry.url), "
           "USER_INFO (basic.auth.user.info; setting that is enough), SASL_INHERIT (kafka.sasl.jaas.config).",
           OneOf(tuple(source.value for source in _BASIC))),
    _USER_INFO,
    Option(BEARER_SOURCE, STRING, "STATIC_TOKEN", "medium",
           "Where bearer tokens come from: STATIC_TOKEN (bearer.auth.token), OAUTHBEARER (client credentials at "
           "bearer.auth.issuer.endpoint.url), SASL_OAUTHBEARER_INHERIT (the options kafka.sasl.oauthbearer.*).",
           OneOf(tuple(source.value for source in _BEARER))),
    *_TOKENS,
)  # fmt: skip

_IMPLIED: Final[Mapping[str, CredentialSource]] = MappingProxyType({
    ISSUER: CredentialSource.OAUTHBEARER,
    TOKEN: CredentialSource.STATIC_TOKEN,
    USER_INFO: CredentialSource.USER_INFO,
})  # fmt: skip
"""The source that credentials imply which are given without one; the first found counts."""

_OF_SOURCE: Final[Mapping[str, tuple[CredentialSource, ...]]] = MappingProxyType({
    USER_INFO: (CredentialSource.USER_INFO,),
    TOKEN: (CredentialSource.STATIC_TOKEN,),
    ISSUER: (CredentialSource.OAUTHBEARER,),
    CLIENT_ID: (CredentialSource.OAUTHBEARER,),
    CLIENT_SECRET: (CredentialSource.OAUTHBEARER,),
    _SCOPE: (CredentialSource.OAUTHBEARER,),
    _CLUSTER: _BEARER,
    _POOL: _BEARER,
})  # fmt: skip
"""The sources with which each option has an effect."""


def registry_login(draft: Draft, producer: ProducerConfig | None, *, url_has_login: bool) -> RegistryLogin:
    """The login that the options describe; faults go to ``draft``. ``producer``: None if its options have faults."""
    values = draft.values
    source = _source(draft)
    misplaced = sorted(name for name, sources in _OF_SOURCE.items() if name in draft.given and source not in sources)
    for each in misplaced:
        needed = " or ".join(each.value for each in _OF_SOURCE[each])
        draft.fault(each, f"has no effect with {source.option}={source.value}; it belongs to {needed}.")
    if url_has_login and source is not CredentialSource.URL:
        problem = f"is {source.value}, but schema.registry.url has user and password; leave one of them out."
        draft.fault(source.option, problem)
    inherits = source in (CredentialSource.SASL_INHERIT, CredentialSource.SASL_OAUTHBEARER_INHERIT)
    if not {BASIC_SOURCE, BEARER_SOURCE} & draft.faulty:
        _required(draft, source)
        if inherits and producer is not None:
            _inheritable(draft, source, producer)
    given = {field: values[option.name] for field, option in _FIELDS.items()}
    return RegistryLogin(source, producer if inherits else None, **given)


def _source(draft: Draft) -> CredentialSource:
    """The given source, or the one that given credentials imply, with a warning because Java ignores them."""
    given, values = draft.given, draft.values
    if BASIC_SOURCE in given and BEARER_SOURCE in given:
        draft.fault(BASIC_SOURCE, f"and {BEARER_SOURCE} exclude each other; leave one of them out.")
    if BEARER_SOURCE in given:
        return CredentialSource(values[BEARER_SOURCE])
    if BASIC_SOURCE in given:
        return CredentialSource(values[BASIC_SOURCE])
    for name, source in _IMPLIED.items():
        if name in given:
            full = f"{source.option}={source.value}"
            draft.warn(name, f"is given without {full}: used here, ignored by Java's serializers. Give the source too.")
            return source
    return CredentialSource.URL


def _required(draft: Draft, source: CredentialSource) -> None:
    values = draft.values
    required = {
        CredentialSource.USER_INFO: (USER_INFO,),
        CredentialSource.STATIC_TOKEN: (TOKEN,),
        CredentialSource.OAUTHBEARER: (ISSUER, CLIENT_ID, CLIENT_SECRET),
    }
    for name in required.get(source, ()):
        if not getattr(values[name], "value", values[name]) and name not in draft.faulty:
            draft.fault(name, f"is required with {source.option}={source.value}.")
    pair = values[USER_INFO]
    if isinstance(pair, Password) and pair.value and ":" not in pair.value and not has_placeholder(pair.value):
        draft.fault(USER_INFO, "must be user:password.")
    issuer = values[ISSUER]
    if issuer and not _is_http(issuer):
        draft.fault(ISSUER, "must begin with https:// or http://.")
    elif issuer and (fault := url_fault(issuer)) is not None:
        draft.forbid(ISSUER, fault)
    elif issuer:
        draft.caution_clear_text(ISSUER, issuer)


def _inheritable(draft: Draft, source: CredentialSource, producer: ProducerConfig) -> None:
    if source is CredentialSource.SASL_INHERIT:
        mechanism: object = built_in(producer.sasl_mechanism)
        has_password = isinstance(mechanism, type) and issubclass(mechanism, PasswordMechanism)
        if producer.sasl_jaas_config is None or not has_password:
            draft.fault(
                BASIC_SOURCE,
                "is SASL_INHERIT, which needs username and password in kafka.sasl.jaas.config; or write USER_INFO and "
                f"{USER_INFO}.",
            )
    elif producer.sasl_mechanism != "OAUTHBEARER" or producer.sasl_token_provider is not None:
        draft.fault(
            BEARER_SOURCE,
            "is SASL_OAUTHBEARER_INHERIT, which needs kafka.sasl.mechanism=OAUTHBEARER with "
            f"kafka.sasl.oauthbearer.token.endpoint.url; or write OAUTHBEARER and {ISSUER}.",
        )


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme.lower() in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False
