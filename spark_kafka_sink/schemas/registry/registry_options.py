"""The registry's options: the names, defaults and meanings of Confluent's Java serializers.

Java: ``AbstractKafkaSchemaSerDeConfig``, ``SchemaRegistryClientConfig``, ``BasicAuthCredentialProvider``,
``BearerAuth…``. Case does not matter in names, because Spark passes them in lower case. Options of the connection may
begin with ``schema.registry.``, as in Kafka Connect.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from spark_kafka_sink.common.config import ProducerConfig, warn_of_options
from spark_kafka_sink.common.config.option import (
    AT_LEAST_0,
    AT_LEAST_1,
    BOOLEAN,
    CLASS,
    INT,
    LIST,
    PASSWORD,
    STRING,
    ConfigBuilder,
    Matching,
    OneOf,
    Option,
    Password,
    Range,
    declared_options,
    did_you_mean,
    option,
)
from spark_kafka_sink.common.config.producer_config import PRODUCER_OPTIONS
from spark_kafka_sink.common.config.providers import DEFAULTS as DEFAULT_PROVIDERS
from spark_kafka_sink.common.config.providers import OPTION as CONFIG_PROVIDERS
from spark_kafka_sink.common.config.providers import has_placeholder, take, url_fault
from spark_kafka_sink.common.config.security_rules import built_in
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.network.login.passwords import PasswordMechanism
from spark_kafka_sink.schemas.registry.registry import SideOptions
from spark_kafka_sink.schemas.registry.schema import (
    RegisteredSchema,
    SchemaIdPlace,
    Side,
    SubjectNameStrategy,
    confluent_name,
)

if TYPE_CHECKING:
    from spark_kafka_sink.schemas.encoding.encoder import Encoder

_E = TypeVar("_E", bound=Enum)

_PREFIX: Final = "schema.registry."
URL: Final = "schema.registry.url"
AUTO_REGISTER: Final = "auto.register.schemas"
USE_LATEST: Final = "use.latest.version"
USE_ID: Final = "use.schema.id"
CONNECT_TIMEOUT: Final = "schema.registry.http.connect.timeout.ms"
READ_TIMEOUT: Final = "schema.registry.http.read.timeout.ms"
_SCHEME: Final = re.compile(r"\s*[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_PLACEHOLDER: Final = re.compile(r"\$\{[^}]*\}")
_LATE_AT: Final = re.compile(r"://[^/?#]*[/?#].*@")
_HOST: Final = re.compile(r"\[[^\]]*\]|[^/?#:]*")
_NO_ID: Final = -1
_ID = Range(0, besides=_NO_ID)

_SUBJECTS: Final = (
    "topic (<topic>-key, <topic>-value), record (the record's full name) or topic-record (<topic>-<full name>); or "
    "Java's TopicNameStrategy, RecordNameStrategy, TopicRecordNameStrategy."
)
_PLACE_OF_ID: Final = (
    "Where the schema's id is: prefix (magic byte 0 and the id, before key or value) or header (magic byte 1 and the "
    "GUID, in __key_schema_id or __value_schema_id); or Java's PrefixSchemaIdSerializer, HeaderSchemaIdSerializer."
)

SCHEMA_OPTIONS: Final[tuple[Option, ...]] = (
    Option(URL, LIST, None, "high",
           "URLs of the schema registry; after a failure the next one is used. May have user:password@, where , / ? # "
           "and % must be percent-encoded."),
    Option(AUTO_REGISTER, BOOLEAN, True, "medium",
           "true: register the schema. false: the schema must be in the registry; the default together with "
           "use.latest.version or use.schema.id."),
    Option(USE_LATEST, BOOLEAN, False, "low",
           "Write with the latest version of the subject at the start of the application."),
    Option(USE_ID, INT, _NO_ID, "low",
           "Write with the schema that has this id, if only one of key and value is encoded.", _ID),
    Option(f"key.{USE_ID}", INT, _NO_ID, "low", "The same, if both are encoded.", _ID),
    Option(f"value.{USE_ID}", INT, _NO_ID, "low", "The same, if both are encoded.", _ID),
    Option("latest.compatibility.strict", BOOLEAN, True, "low",
           "With use.latest.version, a schema that other options give must be the latest version."),
    Option("id.compatibility.strict", BOOLEAN, True, "low",
           "With use.schema.id, it must be the one with this id."),
    Option("normalize.schemas", BOOLEAN, False, "medium",
           "Let the registry normalize schemas, so that an order that means nothing creates no new version."),
    Option("key.subject.name.strategy", CLASS, "topic", "medium", f"Subject of the schema: {_SUBJECTS}"),
    Option("value.subject.name.strategy", CLASS, "topic", "medium", f"Subject of the schema: {_SUBJECTS}"),
    Option("key.schema.id.serializer", CLASS, "prefix", "medium",
           _PLACE_OF_ID),
    Option("value.schema.id.serializer", CLASS, "prefix", "medium",
           _PLACE_OF_ID),
)  # fmt: skip


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
    """The sources of the header Authorization, which are the values of both options for a credentials source."""

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
    """The login of requests. ``sasl``: the options of the brokers, for sources that inherit from them."""

    source: CredentialSource
    sasl: ProducerConfig | None
    # fmt: off
    user_info: Password | None = option(USER_INFO, PASSWORD, None, "medium",
        "user:password, or API key:secret.")
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


_LOGIN_FIELDS: Final = declared_options(RegistryLogin)
_USER_INFO, *_TOKENS = _LOGIN_FIELDS.values()

LOGIN_OPTIONS: Final[tuple[Option, ...]] = (
    Option(BASIC_SOURCE, STRING, "URL", "medium",
           "User and password of HTTP basic authentication: URL (schema.registry.url), USER_INFO "
           "(basic.auth.user.info; setting that is enough), SASL_INHERIT (kafka.sasl.jaas.config).",
           OneOf(tuple(source.value for source in _BASIC))),
    _USER_INFO,
    Option(BEARER_SOURCE, STRING, "STATIC_TOKEN", "medium",
           "Bearer tokens: STATIC_TOKEN (bearer.auth.token), OAUTHBEARER (client credentials at "
           "bearer.auth.issuer.endpoint.url), SASL_OAUTHBEARER_INHERIT (kafka.sasl.oauthbearer.*).",
           OneOf(tuple(source.value for source in _BEARER))),
    *_TOKENS,
)  # fmt: skip

_NEEDED: Final[Mapping[CredentialSource, tuple[str, ...]]] = MappingProxyType({
    CredentialSource.OAUTHBEARER: (ISSUER, CLIENT_ID, CLIENT_SECRET),
    CredentialSource.STATIC_TOKEN: (TOKEN,),
    CredentialSource.USER_INFO: (USER_INFO,),
})  # fmt: skip
"""The options that each source needs. If no source is given, the first source whose first option is given counts."""

_OF_SOURCE: Final[Mapping[str, tuple[CredentialSource, ...]]] = MappingProxyType({
    **{name: (source,) for source, names in _NEEDED.items() for name in names},
    _SCOPE: (CredentialSource.OAUTHBEARER,), _CLUSTER: _BEARER, _POOL: _BEARER,
})  # fmt: skip
"""The sources with which each option has an effect."""


_STRATEGY_PACKAGE: Final = "io.confluent.kafka.serializers.subject."
_STRATEGIES: Final[Mapping[str, SubjectNameStrategy]] = MappingProxyType({
    "TopicNameStrategy": SubjectNameStrategy.TOPIC,
    "RecordNameStrategy": SubjectNameStrategy.RECORD,
    "TopicRecordNameStrategy": SubjectNameStrategy.TOPIC_RECORD,
})  # fmt: skip

_PLACE_PACKAGE: Final = "io.confluent.kafka.serializers.schema.id."
_PLACES: Final[Mapping[str, SchemaIdPlace]] = MappingProxyType({
    "PrefixSchemaIdSerializer": SchemaIdPlace.PREFIX,
    "HeaderSchemaIdSerializer": SchemaIdPlace.HEADER,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class RegistryUrl:
    """A URL. ``address``: without user and password. ``user_info``: ``user:password``."""

    address: str
    user_info: Password | None = None


@dataclass(frozen=True, slots=True)
class ConfluentOptions:
    """The options of a registry. Implements ``RegistryOptions``; credentials keep their placeholders of config
    providers.

    Times in milliseconds. ``tls``: only its ``ssl_`` fields and its config providers count.
    """

    client: ClassVar = "spark_kafka_sink.schemas.registry.client:ConfluentRegistry"
    bare_bytes: ClassVar = True
    derives_null: ClassVar = True
    single_files: ClassVar = False

    urls: tuple[RegistryUrl, ...]
    key: SideOptions
    value: SideOptions
    normalize_schemas: bool
    login: RegistryLogin
    tls: ProducerConfig
    # fmt: off
    connect_timeout_ms: int = option(CONNECT_TIMEOUT, INT, 60000, "low",
        "Time to connect to a URL.", AT_LEAST_1)
    read_timeout_ms: int = option(READ_TIMEOUT, INT, 60000, "low",
        "Time to wait for a response. The larger of both timeouts limits a request with all URLs and retries.",
        AT_LEAST_1)
    max_retries: int = option("schema.registry.max.retries", INT, 3, "low",
        "Further rounds through all URLs, after connection failures and HTTP 408, 429, 500, 502, 503, 504.",
        AT_LEAST_0)
    retries_wait_ms: int = option("schema.registry.retries.wait.ms", INT, 1000, "low",
        "Longest wait before the second round, of which a random part is waited; doubles with each round.", AT_LEAST_0)
    retries_max_wait_ms: int = option("schema.registry.retries.max.wait.ms", INT, 20000, "low",
        "Longest wait before any round.", AT_LEAST_0)
    # fmt: on

    @classmethod
    def owns(cls, name: str) -> bool:
        return name in OPTIONS_BY_NAME or name in _OTHER_SPELLINGS

    @classmethod
    def parse(
        cls,
        options: Mapping[str, str],
        faults: list[str],
        producer: ProducerConfig | None = None,
        encoded: Collection[Side] = tuple(Side),
    ) -> ConfluentOptions | None:
        """Implements ``RegistryOptions.parse``. ``producer``: for config providers and inherited credentials."""
        draft = ConfigBuilder("", {option.name: option.default for option in REGISTRY_OPTIONS})
        draft.values[URL] = ()
        draft.values[CONFIG_PROVIDERS] = DEFAULT_PROVIDERS if producer is None else producer.config_providers
        tls = _take(draft, options)
        if not draft.given and not tls and not draft.faults:
            return None
        urls = _urls(draft, _names(options))
        key, value = (_side(draft, side, encoded) for side in Side)
        login = _login(draft, producer, url_has_login=any(url.user_info is not None for url in urls))
        for url in urls:
            if login.source is not CredentialSource.URL or url.user_info is not None:
                draft.caution_clear_text(URL, url.address)
        tls_config = _tls(draft, tls, urls)
        faults += draft.faults
        if draft.faults or tls_config is None:
            return None
        warn_of_options(dict.fromkeys(draft.warnings))  # several URLs may have the same one
        values = draft.values
        return cls(
            urls=urls,
            key=key,
            value=value,
            normalize_schemas=values["normalize.schemas"],
            login=login,
            tls=tls_config,
            **{field: values[option.name] for field, option in _FIELDS.items()},
        )

    @property
    def scope(self) -> tuple[str, ...]:
        return (*(url.address for url in self.urls), f"normalize={self.normalize_schemas}")

    def side(self, side: Side) -> SideOptions:
        return self.key if side is Side.KEY else self.value

    def encoder(self, encoder: Encoder, indexes: tuple[int, ...]) -> Encoder:
        return encoder

    def schema_name(self, found: RegisteredSchema, indexes: tuple[int, ...], side: Side) -> tuple[bytes, bytes | None]:
        return confluent_name(found, indexes, side, self.side(side).schema_id_place)


_FIELDS: Final = declared_options(ConfluentOptions)
CONNECTION_OPTIONS: Final = (*LOGIN_OPTIONS, *_FIELDS.values())
REGISTRY_TLS_OPTIONS: Final[tuple[Option, ...]] = tuple(
    replace(option, name=_PREFIX + option.name, doc=f"{option.name} of https:// URLs, as kafka.{option.name}.")
    for option in PRODUCER_OPTIONS
    if option.name.startswith("ssl.")
)

REGISTRY_OPTIONS: Final = (*SCHEMA_OPTIONS, *CONNECTION_OPTIONS, *REGISTRY_TLS_OPTIONS)
OPTIONS_BY_NAME: Final = {option.name: option for option in REGISTRY_OPTIONS}

_OTHER_SPELLINGS: Final = {
    option.name.removeprefix(_PREFIX) if option.name.startswith(_PREFIX) else _PREFIX + option.name: option.name
    for option in CONNECTION_OPTIONS
}


def _names(options: Mapping[str, str]) -> list[str]:
    """The names among ``options`` that are a registry's, as they are given."""
    return sorted(name for name in options if ConfluentOptions.owns(name.lower()))


def _take(draft: ConfigBuilder, options: Mapping[str, str]) -> dict[str, object]:
    """Puts the values of all options into the draft. Returns the values of ``ssl.*`` instead."""
    tls: dict[str, object] = {}
    spelling: dict[str, str] = {}
    for given in _names(options):
        name = _OTHER_SPELLINGS.get(given.lower(), given.lower())
        if name.startswith(f"{_PREFIX}ssl."):
            tls[name.removeprefix(_PREFIX)] = options[given]
        elif name in spelling:
            draft.faults.append(f"{spelling[name]} and {given} are the same option; leave one of them out.")
        else:
            spelling[name] = given
            plain = _PLACEHOLDER.sub("", options[given])
            if name == URL and plain != options[given] and "@" in plain:
                draft.given.add(URL)
                draft.fault(URL, f"has a placeholder and an @: give user and password in {USER_INFO} instead.")
            else:
                take(draft, OPTIONS_BY_NAME[name], options[given])
    return tls


def _urls(draft: ConfigBuilder, names: list[str]) -> tuple[RegistryUrl, ...]:
    """The URLs, or faults. ``names``: the names of the given options."""
    given = [url for url in draft.values[URL] if url]
    if not given and URL not in draft.faulty:
        others = ", ".join(name for name in names if name.lower() != URL)
        draft.fault(URL, f"is required with {others}." if others else "is blank; give it a value or leave it out.")
    bare = [url for url in given if _SCHEME.match(url) is None]
    # A bare part may be the end of a password with a comma, so that other parts may show the beginning.
    return tuple(parsed for url in bare[:1] or given if (parsed := _url(draft, url)) is not None)


def _url(draft: ConfigBuilder, url: str) -> RegistryUrl | None:
    """The URL and its login, or a fault.

    The fault shows only scheme and host, because what looks like a port or a path may be part of a password.
    """
    parts, shown = _http_url(url), _scheme_and_host(url)
    if _LATE_AT.search(url):
        draft.fault(
            URL,
            f"has / ? or # before an @, in {shown}: percent-encode / ? and # in user and password "
            "(%2F, %3F, %23), and @ after the host (%40).",
        )
        return None
    if parts is None:
        mock = "; mock:// registries exist only in a JVM" if url.lower().startswith("mock://") else ""
        draft.fault(URL, f"must have URLs such as https://host:8081, but has {shown}{mock}.")
        return None
    if parts.query or parts.fragment:
        draft.fault(URL, f"must have URLs without ? and #, but has {shown}.")
        return None
    user_info, _, host = parts.netloc.rpartition("@")
    address = parts._replace(netloc=host).geturl().rstrip("/")
    if (fault := url_fault(address)) is not None:
        draft.forbid(URL, fault)
        return None
    return RegistryUrl(address, Password(unquote(user_info)) if user_info else None)


def _scheme_and_host(url: str) -> str:
    scheme = _SCHEME.match(url)
    if scheme is None:
        return "one that does not begin with http:// or https:// (a comma in a password is %2C)"
    _, at, rest = url[scheme.end() :].rpartition("@")
    host = _HOST.match(rest)
    shown = "" if host is None else host[0]
    return repr(f"{scheme[0].strip()}{'…@' if at else ''}{shown}{'…' if shown != rest else ''}")


def _side(draft: ConfigBuilder, side: Side, sides: Collection[Side]) -> SideOptions:
    values, name = draft.values, side.value
    id_name = f"{name}.{USE_ID}"
    if side not in sides:
        for each in sorted(given for given in draft.given if given.startswith(f"{name}.")):
            draft.fault(each, f"has no effect: {name}Format is raw; leave it out.")
    elif USE_ID in draft.given and len(sides) > 1:
        if side is Side.KEY:  # once
            draft.fault(USE_ID, f"must be key.{USE_ID} or value.{USE_ID}, as key and value are encoded.")
    elif USE_ID in draft.given and id_name in draft.given:
        draft.fault(id_name, f"and {USE_ID} are both given; leave one of them out.")
    elif USE_ID in draft.given:
        id_name = USE_ID
    schema_id = None if values[id_name] == _NO_ID else values[id_name]
    use_latest = values[USE_LATEST]
    if use_latest and schema_id is not None:
        draft.fault(id_name, f"and {USE_LATEST}=true exclude each other, leave one of them out.")
    chosen = id_name if schema_id is not None else f"{USE_LATEST}=true" if use_latest else None
    auto_register = values[AUTO_REGISTER]
    if chosen is not None and AUTO_REGISTER not in draft.given:
        auto_register = False
    elif chosen is not None and auto_register and AUTO_REGISTER not in draft.faulty:
        draft.fault(AUTO_REGISTER, f"is true and {chosen} is given: they exclude each other, leave one of them out.")
    return SideOptions(
        auto_register=auto_register,
        use_latest_version=use_latest,
        schema_id=schema_id,
        strict=values["id.compatibility.strict" if schema_id is not None else "latest.compatibility.strict"],
        subject_name_strategy=_by_name(draft, f"{name}.subject.name.strategy", _STRATEGY_PACKAGE, _STRATEGIES),
        schema_id_place=_by_name(draft, f"{name}.schema.id.serializer", _PLACE_PACKAGE, _PLACES),
    )


def _tls(draft: ConfigBuilder, tls: dict[str, object], urls: tuple[RegistryUrl, ...]) -> ProducerConfig | None:
    """The options of TLS; None after a fault."""
    others: dict[str, Any] = {CONFIG_PROVIDERS: draft.values[CONFIG_PROVIDERS], "bootstrap.servers": "unused:1"}
    try:
        config = ProducerConfig.parse({**tls, **others, "security.protocol": "SSL"}, _PREFIX)
    except ConfigError as error:
        draft.faults += error.faults
        return None
    if tls and not any(url.address.lower().startswith("https:") for url in urls):
        draft.warnings.append(f"{_PREFIX}{min(tls)} has no effect, as no URL of {URL} begins with https://.")
    return config


def _by_name(draft: ConfigBuilder, name: str, package: str, classes: Mapping[str, _E]) -> _E:
    """The member that an option names by its value or by a class of Java's; the first of ``classes`` after a fault."""
    given = draft.values[name]
    values = {class_.value: class_ for class_ in classes.values()}
    found = values.get(given.lower()) or classes.get(given.removeprefix(package))
    if found is None and name not in draft.faulty:
        hint = did_you_mean(given.rpartition(".")[2], [*values, *classes]) or "; other Java classes cannot be loaded."
        draft.fault(name, f"must be one of {', '.join(values)}, or Java's {', '.join(classes)}, but is {given!r}{hint}")
    return found or next(iter(values.values()))


def _login(draft: ConfigBuilder, producer: ProducerConfig | None, *, url_has_login: bool) -> RegistryLogin:
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
    given = {field: values[option.name] for field, option in _LOGIN_FIELDS.items()}
    return RegistryLogin(source, producer if inherits else None, **given)


def _source(draft: ConfigBuilder) -> CredentialSource:
    """The given source, or the source that given credentials imply, with a warning because Java ignores such
    credentials."""
    given, values = draft.given, draft.values
    if BASIC_SOURCE in given and BEARER_SOURCE in given:
        draft.fault(BASIC_SOURCE, f"and {BEARER_SOURCE} exclude each other; leave one of them out.")
    if BEARER_SOURCE in given:
        return CredentialSource(values[BEARER_SOURCE])
    if BASIC_SOURCE in given:
        return CredentialSource(values[BASIC_SOURCE])
    for source, (name, *_) in _NEEDED.items():
        if name in given:
            full = f"{source.option}={source.value}"
            draft.warn(name, f"is given without {full}: used here, ignored by Java's serializers. Give the source too.")
            return source
    return CredentialSource.URL


def _required(draft: ConfigBuilder, source: CredentialSource) -> None:
    values = draft.values
    for name in _NEEDED.get(source, ()):
        if not getattr(values[name], "value", values[name]) and name not in draft.faulty:
            draft.fault(name, f"is required with {source.option}={source.value}.")
    pair = values[USER_INFO]
    if isinstance(pair, Password) and pair.value and ":" not in pair.value and not has_placeholder(pair.value):
        draft.fault(USER_INFO, "must be user:password.")
    issuer = values[ISSUER]
    if issuer and _http_url(issuer) is None:
        draft.fault(ISSUER, "must begin with https:// or http://.")
    elif issuer and (fault := url_fault(issuer)) is not None:
        draft.forbid(ISSUER, fault)
    elif issuer:
        draft.caution_clear_text(ISSUER, issuer)


def _inheritable(draft: ConfigBuilder, source: CredentialSource, producer: ProducerConfig) -> None:
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


def _http_url(url: str) -> SplitResult | None:
    """The parts of a URL with http or https and a host; None for any other text."""
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme.lower() in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is not a number
        return None
    return parts if is_whole else None
