"""``ProducerConfig``: every option of Kafka's producer (``ProducerConfig`` 4.x) and what a mapping of them means.

The documentation is generated from this file, and defaults are only here.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal

from spark_kafka_sink.common.compression import CODECS
from spark_kafka_sink.common.config.option import (
    AT_LEAST_0,
    AT_LEAST_1,
    BOOLEAN,
    CLASS,
    DOUBLE,
    INT,
    LIST,
    LONG,
    MINUS_1_OR_MORE,
    PASSWORD,
    SHORT,
    STRING,
    ConfigBuilder,
    Matching,
    OneOf,
    Option,
    Password,
    Range,
    Status,
    declared_options,
    did_you_mean,
    kafka_option,
)
from spark_kafka_sink.common.config.other_clients import in_javas_words, is_of_other_client
from spark_kafka_sink.common.config.providers import (
    ConfigProviders,
    has_placeholder,
    is_of_providers,
    take,
    take_providers,
)
from spark_kafka_sink.common.config.rules import PARTITIONERS_TEXT, RULES, SMALLEST_RECORD, old_name
from spark_kafka_sink.common.config.security_rules import DEFAULT_RETRIEVER, LOGIN, OAUTH, PROTOCOLS, RETRIEVERS
from spark_kafka_sink.common.model import text_fault
from spark_kafka_sink.errors import ConfigError

_STORE_TYPES: Final = OneOf(("JKS", "PKCS12", "PEM"))
_client_numbers = {"producer": itertools.count(1), "adminclient": itertools.count(1)}

DECIDED_BY_BROKERS: Final = frozenset({"enable.idempotence", "max.in.flight.requests.per.connection"})
"""The options whose defaults give way if brokers are too old for them."""


class ConfigWarning(UserWarning):
    """An option is accepted, but has no effect, or another effect than usual."""


def warn_of_options(texts: Iterable[str]) -> None:
    """Warns with a ``ConfigWarning`` for each text, at the line of the program that called this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("spark_kafka_sink."):
        frame, level = frame.f_back, level + 1
    for text in texts:
        warnings.warn(text, ConfigWarning, stacklevel=level)


@contextmanager
def config_warnings_to(show: Callable[[str], object]) -> Iterator[None]:
    """Passes the text of each ``ConfigWarning`` to ``show``, without a line of code, because the program is not the
    user's."""
    shown_by_python = warnings.showwarning

    def show_text(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, ConfigWarning):
            show(str(message))
        else:
            shown_by_python(message, category, *place, **more)

    warnings.showwarning = show_text
    try:
        yield
    finally:
        warnings.showwarning = shown_by_python


def _level(codec: str) -> Any:
    level = CODECS[codec].level
    assert level is not None
    valid = Range(level.lowest, level.highest, level.besides)
    return kafka_option(INT, level.default, "medium", valid)


_SERIALIZER: Final = (
    "A Python class, package.module:Class, with the methods of Serializer; or Java's name of its serializer of String, "
    "ByteArray, Integer, Long, Double or Void. Without one, bytes only. Refused by the Spark sink."
)


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """A producer's options: each field is the option of that name, with underscores for dots.

    Times are in milliseconds, sizes in bytes. Defaults are those of ``ProducerConfig`` in Kafka 4.x, except for
    ``batch_size``, ``send_buffer_bytes`` and the timeouts of ``sasl_login``. ``acks`` is -1 for all; ``RULES`` adjust
    ``enable_idempotence``, ``delivery_timeout_ms``, ``batch_size`` and backoffs. Credentials (``Password``) keep their
    placeholders of config providers, see ``with_credentials``. A configuration is hashable, because equal ones may
    share a producer.
    """

    # fmt: off
    bootstrap_servers: tuple[tuple[str, int], ...] = kafka_option(LIST, None, "high")
    bootstrap_resolve_timeout_ms: int = kafka_option(LONG, 0, "high", AT_LEAST_0,
        doc="How long the driver of a Spark write waits for host names that do not exist (KIP-909). A producer's calls "
        "try for max.block.ms.")
    acks: int = kafka_option(STRING, "all", "low", OneOf(("all", "-1", "0", "1")))
    enable_idempotence: bool = kafka_option(BOOLEAN, True, "low")
    retries: int = kafka_option(INT, 2147483647, "high", AT_LEAST_0)
    delivery_timeout_ms: int = kafka_option(INT, 120000, "medium", AT_LEAST_0)
    request_timeout_ms: int = kafka_option(INT, 30000, "medium", AT_LEAST_1)
    max_block_ms: int = kafka_option(LONG, 60000, "medium", AT_LEAST_0,
        doc="For columns (`send_columns`, `append_columns`), the time starts again whenever memory is granted.")
    max_in_flight_requests_per_connection: int = kafka_option(INT, 5, "low", AT_LEAST_1)
    retry_backoff_ms: int = kafka_option(LONG, 100, "low", AT_LEAST_0)
    retry_backoff_max_ms: int = kafka_option(LONG, 1000, "low", AT_LEAST_0)
    batch_size: int = kafka_option(INT, 262144, "medium", AT_LEAST_0,
        doc="Java: 16384. The default adapts to other options, see above.")
    linger_ms: int = kafka_option(LONG, 5, "medium", AT_LEAST_0)
    buffer_memory: int = kafka_option(LONG, 33554432, "high", AT_LEAST_0)
    max_request_size: int = kafka_option(INT, 1048576, "medium", Range(SMALLEST_RECORD))
    compression_type: str = kafka_option(STRING, "none", "high", OneOf(tuple(CODECS)))
    compression_gzip_level: int = _level("gzip")
    compression_lz4_level: int = _level("lz4")
    compression_zstd_level: int = _level("zstd")
    partitioner_class: str = kafka_option(CLASS, None, "medium", doc=PARTITIONERS_TEXT)
    partitioner_ignore_keys: bool = kafka_option(BOOLEAN, False, "medium")
    partitioner_adaptive_partitioning_enable: bool = kafka_option(BOOLEAN, True, "low")
    partitioner_availability_timeout_ms: int = kafka_option(LONG, 0, "low", AT_LEAST_0)
    partitioner_rack_aware: bool = kafka_option(BOOLEAN, False, "low",
        doc="Needs client.rack. With a partitioner.class that is not rack aware, ignored with a warning.")
    client_rack: str = kafka_option(STRING, "", "low")
    client_id: str = kafka_option(STRING, "", "medium",
        doc="Connections that look up or create topics, or commit, are `adminclient-1`, …")
    client_dns_lookup: str = kafka_option(STRING, "use_all_dns_ips", "medium",
        OneOf(("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")))
    send_buffer_bytes: int = kafka_option(INT, -1, "medium", MINUS_1_OR_MORE,
        doc="Java: 131072. -1: the system's default, which Linux adapts to the connection.")
    receive_buffer_bytes: int = kafka_option(INT, 32768, "medium", MINUS_1_OR_MORE)
    connections_max_idle_ms: int = kafka_option(LONG, 540000, "medium", MINUS_1_OR_MORE)
    reconnect_backoff_ms: int = kafka_option(LONG, 50, "low", AT_LEAST_0)
    reconnect_backoff_max_ms: int = kafka_option(LONG, 1000, "low", AT_LEAST_0)
    socket_connection_setup_timeout_ms: int = kafka_option(LONG, 10000, "medium", AT_LEAST_1)
    socket_connection_setup_timeout_max_ms: int = kafka_option(LONG, 30000, "medium", AT_LEAST_1)
    metadata_max_age_ms: int = kafka_option(LONG, 300000, "low", AT_LEAST_0)
    metadata_max_idle_ms: int = kafka_option(LONG, 300000, "low", Range(5000))
    metadata_recovery_strategy: str = kafka_option(STRING, "rebootstrap", "low", OneOf(("rebootstrap", "none")))
    metadata_recovery_rebootstrap_trigger_ms: int = kafka_option(LONG, 300000, "low", AT_LEAST_0)
    security_protocol: str = kafka_option(STRING, "PLAINTEXT", "medium", OneOf(PROTOCOLS))
    transaction_timeout_ms: int = kafka_option(INT, 60000, "low", AT_LEAST_1,
        doc="With deliveryGuarantee=exactly-once: 900000, the brokers' default of transaction.max.timeout.ms.")
    transactional_id: str | None = kafka_option(STRING, None, "low",
        doc="Refused by the Spark sink: its tasks would fence each other.")
    key_serializer: str | None = kafka_option(CLASS, None, "high", doc=_SERIALIZER)
    value_serializer: str | None = kafka_option(CLASS, None, "high", doc=_SERIALIZER)
    interceptor_classes: tuple[str, ...] = kafka_option(LIST, "", "low",
        doc="Python classes, package.module:Class, with the methods of ProducerInterceptor. Refused by the Spark sink: "
        "change the columns.")
    config_providers: ConfigProviders = kafka_option(LIST, "", "low",
        doc="FileConfigProvider, DirectoryConfigProvider, EnvVarConfigProvider. Without this option, their aliases are "
        "file, dir and env.")
    ssl_truststore_location: str | None = kafka_option(STRING, None, "high",
        doc="PEM, PKCS12 or JKS, detected from the content. Without a truststore: the system's certificates.")
    ssl_truststore_password: Password | None = kafka_option(PASSWORD, None, "high")
    ssl_truststore_certificates: Password | None = kafka_option(PASSWORD, None, "high")
    ssl_truststore_type: str = kafka_option(STRING, "JKS", "medium", _STORE_TYPES, doc="Not needed.")
    ssl_keystore_location: str | None = kafka_option(STRING, None, "high",
        doc="PEM, PKCS12 or JKS, detected from the content.")
    ssl_keystore_password: Password | None = kafka_option(PASSWORD, None, "high")
    ssl_keystore_key: Password | None = kafka_option(PASSWORD, None, "high")
    ssl_keystore_certificate_chain: Password | None = kafka_option(PASSWORD, None, "high")
    ssl_keystore_type: str = kafka_option(STRING, "JKS", "medium", _STORE_TYPES, doc="Not needed.")
    ssl_key_password: Password | None = kafka_option(PASSWORD, None, "high",
        doc="Default for a JKS file: ssl.keystore.password.")
    ssl_enabled_protocols: tuple[str, ...] = kafka_option(LIST, "TLSv1.2,TLSv1.3", "medium",
        doc="TLSv1 and TLSv1.1 are ignored with a warning.")
    ssl_protocol: str = kafka_option(STRING, "TLSv1.3", "medium", OneOf(("TLSv1.3", "TLSv1.2", "TLS", "SSL")),
        doc="TLSv1.2: as ssl.enabled.protocols=TLSv1.2. Others: no effect.")
    ssl_cipher_suites: tuple[str, ...] = kafka_option(LIST, "", "low",
        doc="Java's names. Without a suite of TLS 1.3, TLS 1.2 is the highest version. Empty: those of Python's ssl.")
    ssl_endpoint_identification_algorithm: str = kafka_option(STRING, "https", "low",
        Matching("(?i:https)?", "https or empty"))
    sasl_mechanism: str = kafka_option(STRING, "GSSAPI", "medium",
        doc="Also the name of an entry point of the group spark_kafka_sink.sasl.")
    sasl_jaas_config: Password | None = kafka_option(PASSWORD, None, "medium",
        doc="Java's four login modules, read as Java reads them.")
    sasl_token_provider: str | None = kafka_option(STRING, None, "medium", doc="Only here: as saslTokenProvider.")
    allow_auto_create_topics: bool = kafka_option(BOOLEAN, True, "low",
        doc="Only here: Java's producer always allows it. In Spark, see topicCreation.")
    sasl_login_callback_handler_class: str | None = kafka_option(CLASS, None, "medium",
        doc="OAUTHBEARER: OAuthBearerLoginCallbackHandler by its name of Kafka 3 or 4, required; or Amazon's or "
        "Google's, which select their saslTokenProvider.")
    sasl_login_connect_timeout_ms: int = kafka_option(INT, 10000, "low", AT_LEAST_1, doc="Java: no limit.")
    sasl_login_read_timeout_ms: int = kafka_option(INT, 10000, "low", AT_LEAST_1, doc="Java: no limit.")
    sasl_login_refresh_buffer_seconds: int = kafka_option(SHORT, 300, "low", Range(0, 3600))
    sasl_login_refresh_min_period_seconds: int = kafka_option(SHORT, 60, "low", Range(0, 900))
    sasl_login_refresh_window_factor: float = kafka_option(DOUBLE, 0.8, "low", Range(0.5, 1.0))
    sasl_login_refresh_window_jitter: float = kafka_option(DOUBLE, 0.05, "low", Range(0.0, 0.25))
    sasl_login_retry_backoff_ms: int = kafka_option(LONG, 100, "low", AT_LEAST_0)
    sasl_login_retry_backoff_max_ms: int = kafka_option(LONG, 10000, "low", AT_LEAST_0)
    sasl_oauthbearer_token_endpoint_url: str | None = kafka_option(STRING, None, "medium")
    sasl_oauthbearer_jwt_retriever_class: str = kafka_option(CLASS, DEFAULT_RETRIEVER, "medium", OneOf(RETRIEVERS),
        doc="Kafka's four classes.")
    sasl_oauthbearer_client_credentials_client_id: str | None = kafka_option(STRING, None, "medium")
    sasl_oauthbearer_client_credentials_client_secret: Password | None = kafka_option(PASSWORD, None, "medium")
    sasl_oauthbearer_scope: str | None = kafka_option(STRING, None, "medium")
    sasl_oauthbearer_header_urlencode: bool = kafka_option(BOOLEAN, False, "low")
    sasl_oauthbearer_assertion_file: str | None = kafka_option(STRING, None, "medium")
    sasl_oauthbearer_assertion_private_key_file: str | None = kafka_option(STRING, None, "medium")
    sasl_oauthbearer_assertion_private_key_passphrase: Password | None = kafka_option(PASSWORD, None, "medium")
    sasl_oauthbearer_assertion_algorithm: str = kafka_option(STRING, "RS256", "medium", OneOf(("RS256", "ES256")))
    sasl_oauthbearer_assertion_template_file: str | None = kafka_option(STRING, None, "medium")
    sasl_oauthbearer_assertion_claim_aud: str | None = kafka_option(STRING, None, "medium")
    sasl_oauthbearer_assertion_claim_iss: str | None = kafka_option(STRING, None, "medium")
    sasl_oauthbearer_assertion_claim_sub: str | None = kafka_option(STRING, None, "medium")
    sasl_oauthbearer_assertion_claim_exp_seconds: int = kafka_option(INT, 300, "low", Range(0, 86400))
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = kafka_option(INT, 60, "low", Range(0, 3600))
    sasl_oauthbearer_assertion_claim_jti_include: bool = kafka_option(BOOLEAN, False, "medium")
    sasl_kerberos_service_name: str | None = kafka_option(STRING, None, "medium")
    sasl_kerberos_ticket_renew_window_factor: float = kafka_option(DOUBLE, 0.8, "low",
        doc="Also when the ticket cache is read again.")
    sasl_kerberos_ticket_renew_jitter: float = kafka_option(DOUBLE, 0.05, "low")
    sasl_kerberos_min_time_before_relogin: int = kafka_option(LONG, 60000, "low")
    # fmt: on
    asked: frozenset[str] = frozenset()
    """The options of ``DECIDED_BY_BROKERS`` that were given, so that old brokers are an error instead."""

    @property
    def asks_for_idempotence(self) -> bool:
        """Whether ``enable.idempotence=true`` was given. Otherwise a producer does without idempotence where brokers
        lack it."""
        return self.enable_idempotence and "enable.idempotence" in self.asked

    @classmethod
    def parse(
        cls, mapping: Mapping[str, object], prefix: str = "", old_names: Mapping[str, str] = MappingProxyType({})
    ) -> ProducerConfig:
        """The configuration of ``mapping``, which has native values or strings by Kafka's names. None means that an
        option is not given.

        Errors show option names with ``prefix`` (``kafka.`` for Spark's options), or by the old name in ``old_names``.
        Without a prefix, options of other clients are ignored. Raises ``ConfigError`` with all faults. Warns with
        ``ConfigWarning``, which Python shows once per process and text.
        """
        refuse_other_than_mapping(mapping)
        defaults = {o.name: () if o.kind is LIST else o.default for o in PRODUCER_OPTIONS}
        draft = ConfigBuilder(prefix, defaults, names=old_names)
        given = {OWN_NAMES.get(name, name): value for name, value in mapping.items() if value is not None}
        others: list[str] = []
        for name, value in take_providers(draft, given).items():
            if name in OPTIONS_BY_NAME:
                take(draft, OPTIONS_BY_NAME[name], value)
            elif not prefix and is_of_other_client(name):
                others.append(name)
            else:
                draft.faults.append(_unknown(name, prefix))
                draft.faulty |= {"sasl.mechanism"} if name.startswith("sasl.") else set()
        if others:
            whose = "they belong to Kafka's other clients or to a schema registry"
            draft.warnings.append(f"{', '.join(sorted(others))}: without effect here, because {whose}.")
        for draft.concerned, apply in _RULES:
            if not draft.concerned & draft.faulty:
                apply(draft)
        if draft.faults:
            raise ConfigError(draft.faults)
        warn_of_options(draft.warnings)
        values = {field: draft.values[name] for field, name in _NAMES.items()}
        return cls(**values, asked=DECIDED_BY_BROKERS & draft.given)

    def by_name(self) -> dict[str, object]:
        """The values by Kafka's option names, which ``configure`` of the user's classes gets."""
        return {name: getattr(self, field) for field, name in _NAMES.items()}

    def with_client_id(self, client: Literal["producer", "adminclient"] = "producer") -> ProducerConfig:
        """This configuration, with a generated client.id if it has none: ``producer-<transactional.id>``, or
        ``producer-<n>`` with the next number of this process (Java: ``ProducerConfig.maybeOverrideClientId``,
        ``KafkaAdminClient``). A transactional id is not used if the protocol has no room for ``producer-`` and the id.
        """
        if self.client_id:
            return self
        of_id = f"{client}-{self.transactional_id}"
        if self.transactional_id is None or text_fault(of_id) is not None:
            return replace(self, client_id=f"{client}-{next(_client_numbers[client])}")
        return replace(self, client_id=of_id)

    def with_credentials(self, prefix: str) -> ProducerConfig:
        """This configuration with values for the placeholders in its credentials whose field begins with ``prefix``.

        Use the copy for one login, in the process that logs in, and do not keep it. Raises ``ConfigError``.
        """
        found: dict[str, Any] = {
            field: Password(self.config_providers.credential(name, value.value))
            for field, name in _NAMES.items()
            if field.startswith(prefix)
            and isinstance(value := getattr(self, field), Password)
            and has_placeholder(value.value)
        }
        return replace(self, **found) if found else self

    @property
    def compression_level(self) -> int | None:
        """The level of the codec in use; None for a codec without levels."""
        level: int | None = getattr(self, f"compression_{self.compression_type}_level", None)
        return level


_FIELDS: Final = declared_options(ProducerConfig)
_NAMES: Final = {field: option.name for field, option in _FIELDS.items()}

_NO_EFFECT, _JVM_ONLY = Status.NO_EFFECT, Status.JVM_ONLY
_NO_METRICS: Final = "leave it out; see metrics() of KafkaProducer, and the receipts of the Spark sink"
_NO_JMX: Final = "leave it out; there is no JMX without a JVM"
_OPENSSL: Final = "leave it out; TLS is Python's ssl here, not the JVM's"
_NO_JVM: Final = "leave it out; TLS and SASL run without a JVM here"
_NO_BROKER: Final = "no released broker supports it; leave it out"
_VALIDATION: Final = "Brokers validate tokens."
_VALIDATORS: Final = OneOf((f"{OAUTH}DefaultJwtValidator", f"{OAUTH}ClientJwtValidator"))
_SSL_FACTORY: Final = OneOf(("org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",))
_IAM_HANDLER: Final = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"

_OTHERS: Final[tuple[Option, ...]] = (
    Option("buffer.memory.allocation.strategy", STRING, "full", "medium",
           "A batch takes the memory of its records.", OneOf(("full", "incremental")), _NO_EFFECT),
    Option("metadata.cluster.check.enable", BOOLEAN, True, "low",
           "The cluster is known by its id in metadata (KIP-1242).", None, _NO_EFFECT),
    Option("enable.metrics.push", BOOLEAN, True, "low",
           "No metrics are pushed to the cluster (KIP-714).", None, _NO_EFFECT),
    Option("metrics.num.samples", INT, 2, "low", "", AT_LEAST_1, _NO_EFFECT),
    Option("metrics.recording.level", STRING, "INFO", "low", "", OneOf(("INFO", "DEBUG", "TRACE")), _NO_EFFECT),
    Option("metrics.sample.window.ms", LONG, 30000, "low", "", AT_LEAST_0, _NO_EFFECT),
    Option("sasl.oauthbearer.allow.unverified.audience", BOOLEAN, False, "medium", _VALIDATION, None, _NO_EFFECT),
    Option("sasl.oauthbearer.allow.unverified.issuer", BOOLEAN, False, "medium", _VALIDATION, None, _NO_EFFECT),
    Option("sasl.oauthbearer.clock.skew.seconds", INT, 30, "low", _VALIDATION, None, _NO_EFFECT),
    Option("sasl.oauthbearer.expected.audience", LIST, "", "high", _VALIDATION, None, _NO_EFFECT),
    Option("sasl.oauthbearer.expected.issuer", STRING, None, "high", _VALIDATION, None, _NO_EFFECT),
    Option("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3600000, "low", _VALIDATION, None, _NO_EFFECT),
    Option("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, "low", _VALIDATION, None, _NO_EFFECT),
    Option("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10000, "low", _VALIDATION, None, _NO_EFFECT),
    Option("sasl.oauthbearer.jwks.endpoint.url", STRING, None, "medium", _VALIDATION, None, _NO_EFFECT),
    Option("sasl.oauthbearer.scope.claim.name", STRING, "scope", "low", _VALIDATION, None, _NO_EFFECT),
    Option("sasl.oauthbearer.sub.claim.name", STRING, "sub", "low", _VALIDATION, None, _NO_EFFECT),
    Option("sasl.oauthbearer.jwt.validator.class", CLASS, f"{OAUTH}DefaultJwtValidator", "medium",
           _VALIDATION, _VALIDATORS, _NO_EFFECT),
    Option("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", "low",
           "Renew the ticket cache outside of the job, or use a keytab.", None, _NO_EFFECT),
    Option("metric.reporters", LIST, "org.apache.kafka.common.metrics.JmxReporter", "low",
           "", None, _JVM_ONLY, _NO_METRICS),
    Option("auto.include.jmx.reporter", BOOLEAN, True, "low", "", None, _JVM_ONLY, _NO_JMX),
    Option("ssl.engine.factory.class", CLASS, None, "low", "", _SSL_FACTORY, _JVM_ONLY, _OPENSSL),
    Option("ssl.keymanager.algorithm", STRING, "SunX509", "low", "", OneOf(("SunX509",)), _JVM_ONLY, _OPENSSL),
    Option("ssl.provider", STRING, None, "medium", "", OneOf(("SunJSSE",)), _JVM_ONLY, _OPENSSL),
    Option("ssl.secure.random.implementation", STRING, None, "low", "", None, _JVM_ONLY, _OPENSSL),
    Option("ssl.trustmanager.algorithm", STRING, "PKIX", "low", "", OneOf(("PKIX",)), _JVM_ONLY, _OPENSSL),
    Option("sasl.client.callback.handler.class", CLASS, None, "medium",
           "IAMClientCallbackHandler of Amazon MSK may stay.",
           OneOf((_IAM_HANDLER, f"shadedmskiam.{_IAM_HANDLER}")), _JVM_ONLY, _NO_JVM),
    Option("sasl.login.class", CLASS, None, "medium", "", None, _JVM_ONLY, _NO_JVM),
    Option("security.providers", STRING, None, "low", "", None, _JVM_ONLY, _NO_JVM),
    Option("transaction.two.phase.commit.enable", BOOLEAN, False, "low", "KIP-939.", None, Status.NOT_YET, _NO_BROKER),
)  # fmt: skip
"""The options without a field, because their value changes nothing here or is refused."""

PRODUCER_OPTIONS: Final = (*_FIELDS.values(), *_OTHERS)
OPTIONS_BY_NAME: Final = {option.name: option for option in PRODUCER_OPTIONS}
LOGIN_OPTION_NAMES: Final = frozenset(name for name in _NAMES.values() if name.startswith(LOGIN))

_RULES: Final = [
    (frozenset(name for name in _NAMES.values() if name.startswith(rule.reads)), rule.apply) for rule in RULES
]

OWN_NAMES = MappingProxyType({"saslTokenProvider": "sasl.token.provider"})
"""The options that Java's client does not have, by the names that they have among the sink's own options."""


def unknown_option(name: str, prefix: str) -> str | None:
    """The error text for an unknown option name; None if the producer has the option."""
    known = name in OWN_NAMES or name in OPTIONS_BY_NAME or is_of_providers(name)
    return None if known else _unknown(name, prefix)


def _unknown(name: str, prefix: str) -> str:
    if (renaming := old_name(name, prefix)) is not None:
        return renaming
    if name.startswith("listener.name."):
        plain = next((f"write {prefix}{known}" for known in OPTIONS_BY_NAME if name.endswith(f".{known}")), "")
        return f"{prefix}{name} is an option of brokers; {plain or 'leave it out'}."
    if (fault := in_javas_words(name, f"{prefix}{name}", prefix)) is not None:
        return fault
    return f"{prefix}{name} is not an option of Kafka's producer{did_you_mean(name, OPTIONS_BY_NAME, prefix) or '.'}"


def refuse_other_than_mapping(options: object) -> None:
    """Raises ``ConfigError`` if ``options`` is not a mapping, but for example the address of a server."""
    if not isinstance(options, Mapping):
        raise ConfigError([
            'A producer takes a mapping of options, such as {"bootstrap.servers": "host:9092"}, but got a '
            f"{type(options).__name__}."
        ])  # fmt: skip
