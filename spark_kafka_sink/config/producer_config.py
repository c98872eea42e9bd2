"""``ProducerConfig``: every supported option with its final value."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields

from spark_kafka_sink.config.option import Kind, Option, Status
from spark_kafka_sink.config.rules import RULES, Draft
from spark_kafka_sink.config.suggest import did_you_mean
from spark_kafka_sink.config.table import CONSUMER_OPTIONS, OPTIONS_BY_NAME, PRODUCER_OPTIONS
from spark_kafka_sink.config.values import BadValueError, convert
from spark_kafka_sink.errors import ConfigError


class ConfigWarning(UserWarning):
    """Options that work, but otherwise than they read."""


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """The options a producer runs by: each field is the option of that name with dots for underscores.

    Times are milliseconds, sizes bytes; defaults are those of ``ProducerConfig`` in Kafka 4.x. ``acks`` is -1 for all,
    ``enable_idempotence`` and ``delivery_timeout_ms`` are what the options mean together. Hashable: equal
    configurations may share a producer.
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
    security_protocol: str
    transactional_id: str | None
    transaction_timeout_ms: int

    @classmethod
    def parse(cls, mapping: Mapping[str, object], prefix: str = "") -> ProducerConfig:
        """The configuration that ``mapping`` (Kafka's dotted names, values native or text) stands for.

        An option whose value is None counts as not given. Raises ConfigError with all faults at once; ``prefix`` is
        put before the names in its sentences (``kafka.`` for Spark's options). What works otherwise than it reads is
        a ConfigWarning, which Python shows once per process and text.
        """
        draft = Draft(prefix, {option.name: _default(option) for option in PRODUCER_OPTIONS})
        for name, value in mapping.items():
            if value is not None:
                _take(draft, name, value)
        for names, rule in RULES:
            if not names & draft.faulty:
                rule(draft)
        if draft.faults:
            raise ConfigError(draft.faults)
        for text in draft.warnings:
            warnings.warn(text, ConfigWarning, stacklevel=2)
        return cls(**{field.name: draft.values[field.name.replace("_", ".")] for field in fields(cls)})

    @property
    def compression_level(self) -> int | None:
        """The level of the codec in use, None when it has none."""
        level: int | None = getattr(self, f"compression_{self.compression_type}_level", None)
        return level


def _default(option: Option) -> object:
    if option.kind is Kind.LIST:
        return ()
    return option.default


def _take(draft: Draft, name: str, value: object) -> None:
    option = OPTIONS_BY_NAME.get(name)
    if option is None:
        draft.faults.append(_unknown(name, draft.prefix))
        return
    draft.given.add(name)
    if option.status is Status.JVM_ONLY:
        draft.fault(name, f"can only be honoured by a JVM: {option.instead}.")
    elif option.status is Status.NOT_YET:
        if option.instead:  # those without are answered together by the rule for security
            draft.fault(name, f"is refused: {option.instead}.")
    else:
        try:
            draft.values[name] = convert(option, value)
        except BadValueError:
            draft.fault(name, f"must be {option.allowed}, but is {value!r}.")


def _unknown(name: str, prefix: str) -> str:
    if name in CONSUMER_OPTIONS:
        return f"{prefix}{name} is an option of Kafka's consumer, not of its producer; leave it out here."
    return f"{prefix}{name} is not an option of Kafka's producer{did_you_mean(name, OPTIONS_BY_NAME, prefix) or '.'}"
