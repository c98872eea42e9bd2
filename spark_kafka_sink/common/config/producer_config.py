"""``ProducerConfig``: every supported option with its final value."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields, replace
from typing import Any, Final, Literal

from spark_kafka_sink.common.config.config_providers import OPTION as CONFIG_PROVIDERS
from spark_kafka_sink.common.config.config_providers import (
    ConfigProviders,
    ProviderError,
    has_placeholder,
    take_providers,
)
from spark_kafka_sink.common.config.draft import Draft
from spark_kafka_sink.common.config.old_names import old_name, renamed
from spark_kafka_sink.common.config.option import (
    BadValueError,
    OneOf,
    Option,
    OptionKind,
    Password,
    Status,
    did_you_mean,
)
from spark_kafka_sink.common.config.rules import RULES
from spark_kafka_sink.common.config.table import CONSUMER_OPTIONS, OPTIONS_BY_NAME, OWN_NAMES, PRODUCER_OPTIONS
from spark_kafka_sink.common.protocol_values import text_fault
from spark_kafka_sink.common.removed_names import removed_name
from spark_kafka_sink.errors import ConfigError

_client_numbers = {"producer": itertools.count(1), "adminclient": itertools.count(1)}


DECIDED_BY_BROKERS: Final = frozenset({"enable.idempotence", "max.in.flight.requests.per.connection"})
"""Options whose defaults give way to what old brokers cannot do."""


class ConfigWarning(UserWarning):
    """An option is accepted, but does something else than it says, or nothing."""


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """A producer's options: each field is the option of that name, with underscores for dots.

    Times are in milliseconds, sizes in bytes. Defaults are those of ``ProducerConfig`` in Kafka 4.x, except for
    ``batch_size`` and the timeouts of ``sasl_login``. ``acks`` is -1 for all; ``RULES`` adjust ``enable_idempotence``,
    ``delivery_timeout_ms``, ``batch_size`` and backoffs. Credentials (``Password``) keep their placeholders of config
    providers, see ``with_credentials``. A configuration is hashable, because equal ones may share a producer.
    """

    bootstrap_servers: tuple[tuple[str, int], ...]
    acks: int
    enable_idempotence: bool
    retries: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    max_block_ms: int
    max_in_flight_requests_per_connection: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    batch_size: int
    linger_ms: int
    buffer_memory: int
    max_request_size: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    partitioner_class: str
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    partitioner_rack_aware: bool
    client_rack: str
    client_id: str
    client_dns_lookup: str
    send_buffer_bytes: int
    receive_buffer_bytes: int
    connections_max_idle_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: int
    allow_auto_create_topics: bool
    security_protocol: str
    ssl_truststore_location: str | None
    ssl_truststore_password: Password | None
    ssl_truststore_certificates: Password | None
    ssl_truststore_type: str
    ssl_keystore_location: str | None
    ssl_keystore_password: Password | None
    ssl_keystore_key: Password | None
    ssl_keystore_certificate_chain: Password | None
    ssl_keystore_type: str
    ssl_key_password: Password | None
    ssl_enabled_protocols: tuple[str, ...]
    ssl_protocol: str
    ssl_cipher_suites: tuple[str, ...]
    ssl_endpoint_identification_algorithm: str
    sasl_mechanism: str
    sasl_jaas_config: Password | None
    sasl_token_provider: str | None
    sasl_login_callback_handler_class: str | None
    sasl_login_connect_timeout_ms: int
    sasl_login_read_timeout_ms: int
    sasl_login_refresh_buffer_seconds: int
    sasl_login_refresh_min_period_seconds: int
    sasl_login_refresh_window_factor: float
    sasl_login_refresh_window_jitter: float
    sasl_login_retry_backoff_ms: int
    sasl_login_retry_backoff_max_ms: int
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_jwt_retriever_class: str
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: Password | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_header_urlencode: bool
    sasl_oauthbearer_assertion_file: str | None
    sasl_oauthbearer_assertion_private_key_file: str | None
    sasl_oauthbearer_assertion_private_key_passphrase: Password | None
    sasl_oauthbearer_assertion_algorithm: str
    sasl_oauthbearer_assertion_template_file: str | None
    sasl_oauthbearer_assertion_claim_aud: str | None
    sasl_oauthbearer_assertion_claim_iss: str | None
    sasl_oauthbearer_assertion_claim_sub: str | None
    sasl_oauthbearer_assertion_claim_exp_seconds: int
    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    sasl_oauthbearer_assertion_claim_jti_include: bool
    sasl_kerberos_service_name: str | None
    sasl_kerberos_ticket_renew_window_factor: float
    sasl_kerberos_ticket_renew_jitter: float
    sasl_kerberos_min_time_before_relogin: int
    transactional_id: str | None
    transaction_timeout_ms: int
    key_serializer: str | None
    value_serializer: str | None
    interceptor_classes: tuple[str, ...]
    config_providers: ConfigProviders
    asked: frozenset[str] = frozenset()
    """Those of ``DECIDED_BY_BROKERS`` that were given, so that they hold whatever the brokers can do."""

    @property
    def asks_for_idempotence(self) -> bool:
        """If ``enable.idempotence=true`` was given. By default a producer does without it where brokers lack it."""
        return self.enable_idempotence and "enable.idempotence" in self.asked

    @classmethod
    def parse(cls, mapping: Mapping[str, object], prefix: str = "") -> ProducerConfig:
        """The configuration of ``mapping``, which has native values or strings by Kafka's names. None means not given.

        Errors show option names with ``prefix`` (``kafka.`` for Spark's options); without one, Kafka 0.8's names are
        accepted, too. Raises ``ConfigError`` with all faults. Warns with ``ConfigWarning``, which Python shows once per
        process and text.
        """
        refuse_other_than_mapping(mapping)
        draft = Draft(prefix, {o.name: () if o.kind is OptionKind.LIST else o.default for o in PRODUCER_OPTIONS})
        given = {OWN_NAMES.get(name, name): value for name, value in mapping.items() if value is not None}
        for name, value in take_providers(draft, given if prefix else renamed(draft, given)).items():
            _take(draft, name, value)
        for draft.concerned, rule in RULES:
            if not draft.concerned & draft.faulty:
                rule(draft)
        if draft.faults:
            raise ConfigError(draft.faults)
        for text in draft.warnings:
            warnings.warn(text, ConfigWarning, stacklevel=2)
        values = {field.name: draft.values[field.name.replace("_", ".")] for field in _option_fields()}
        return cls(**values, asked=DECIDED_BY_BROKERS & draft.given)

    def by_name(self) -> dict[str, object]:
        """The values by Kafka's option names, which ``configure`` of the user's classes gets."""
        return {field.name.replace("_", "."): getattr(self, field.name) for field in _option_fields()}

    def with_client_id(self, client: Literal["producer", "adminclient"] = "producer") -> ProducerConfig:
        """This configuration, with a generated client.id if it has none: ``producer-<transactional.id>``, or
        ``producer-<n>`` with the next number of this process (Java: ``ProducerConfig.maybeOverrideClientId``,
        ``KafkaAdminClient``). A transactional id is not used if with ``producer-`` it is too long for the protocol.
        """
        if self.client_id:
            return self
        of_id = f"{client}-{self.transactional_id}"
        if self.transactional_id is None or text_fault(of_id) is not None:
            return replace(self, client_id=f"{client}-{next(_client_numbers[client])}")
        return replace(self, client_id=of_id)

    def with_credentials(self, prefix: str) -> ProducerConfig:
        """This configuration with values for the placeholders in its credentials whose field begins with ``prefix``.

        Use it for one login, in the process that logs in, and do not keep it. Raises ``ConfigError``.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name.startswith(prefix)}
        with_placeholder = {
            name: value.value
            for name, value in values.items()
            if isinstance(value, Password) and has_placeholder(value.value)
        }
        if not with_placeholder:
            return self
        found = {
            name: Password(self.config_providers.credential(name.replace("_", "."), text))
            for name, text in with_placeholder.items()
        }
        return replace(self, **found)  # type: ignore[arg-type]

    @property
    def compression_level(self) -> int | None:
        """The level of the codec in use, None if it has none."""
        level: int | None = getattr(self, f"compression_{self.compression_type}_level", None)
        return level


def _option_fields() -> list[Field[Any]]:
    return [field for field in fields(ProducerConfig) if field.name != "asked"]


def _take(draft: Draft, name: str, value: object) -> None:
    option = OPTIONS_BY_NAME.get(name)
    if option is None:
        draft.faults.append(_unknown(name, draft.prefix))
        return
    take(draft, option, value)


def take(draft: Draft, option: Option, value: object) -> None:
    """Puts the value of an option into the draft, or a fault. A ``Password`` keeps its placeholders."""
    name = option.name
    draft.given.add(name)
    if option.status is Status.JVM_ONLY:
        if not _is_of_java(option, value):
            draft.fault(name, f"is refused, because it needs a JVM: {option.instead}.")
    elif option.status is Status.NOT_YET:
        draft.fault(name, f"is refused: {option.instead}.")
    else:
        try:
            draft.values[name] = option.parse(
                value if option.kind is OptionKind.PASSWORD else _resolved(draft, name, value)
            )
        except (BadValueError, ProviderError) as error:
            draft.fault(name, str(error))
        if option.kind is OptionKind.PASSWORD:
            _check_placeholders(draft, name)


def _resolved(draft: Draft, name: str, value: object) -> object:
    """``value`` with its placeholders replaced, except for those without a value."""
    if not isinstance(value, str) or not has_placeholder(value):
        return value
    try:
        resolved = draft.values[CONFIG_PROVIDERS].resolve(value).text
    except ProviderError as error:
        raise ProviderError(f"has {error}.") from None
    if resolved != value:
        draft.placeholders[name] = value
    return resolved


def _check_placeholders(draft: Draft, name: str) -> None:
    value, providers = draft.values[name], draft.values[CONFIG_PROVIDERS]
    if isinstance(value, Password) and (fault := providers.fault(value.value)) is not None:
        draft.fault(name, fault)


def _is_of_java(option: Option, value: object) -> bool:
    """Whether an option for the JVM has a harmless value, which is Java's default."""
    return isinstance(option.valid, OneOf) and option.valid.find(str(value).strip()) is not None


def unknown_option(name: str, prefix: str) -> str | None:
    """The fault of an option name that the producer does not have; None for one that it has."""
    own = name in OWN_NAMES or name == CONFIG_PROVIDERS or name.startswith(f"{CONFIG_PROVIDERS}.")
    return None if own or name in OPTIONS_BY_NAME else _unknown(name, prefix)


def _unknown(name: str, prefix: str) -> str:
    if (renaming := old_name(name, prefix)) is not None:
        return renaming
    if name.startswith("listener.name."):
        plain = next((f"write {prefix}{known}" for known in OPTIONS_BY_NAME if name.endswith(f".{known}")), "")
        return f"{prefix}{name} is an option of brokers; {plain or 'leave it out'}."
    if (fault := removed_name(name, f"{prefix}{name}", prefix)) is not None:
        return fault
    if name in CONSUMER_OPTIONS:
        return f"{prefix}{name} is an option of Kafka's consumer, not of its producer; leave it out here."
    return f"{prefix}{name} is not an option of Kafka's producer{did_you_mean(name, OPTIONS_BY_NAME, prefix) or '.'}"


def refuse_other_than_mapping(options: object) -> None:
    """Raises ``ConfigError`` if ``options`` is something else, such as the address of a server."""
    if not isinstance(options, Mapping):
        raise ConfigError([
            'A producer takes a mapping of options, such as {"bootstrap.servers": "host:9092"}, but got a '
            f"{type(options).__name__}."
        ])  # fmt: skip
