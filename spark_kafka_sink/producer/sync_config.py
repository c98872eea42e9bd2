"""The options of the synchronous producer: Kafka's, and two that only it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.config.option import AT_LEAST_0, MINUS_1_OR_MORE, BadValueError, Kind, Option
from spark_kafka_sink.errors import ConfigError

SYNC_OPTIONS = (
    Option("message.send.max.retries", Kind.INT, 3, "high",
           "Times a record is sent again after an error that may pass.", AT_LEAST_0),
    Option("topic.metadata.refresh.interval.ms", Kind.LONG, 600_000, "low",
           "Metadata older than this is fetched anew before a send. -1: only after an error; 0: each time, slow.",
           MINUS_1_OR_MORE),
)  # fmt: skip
"""As in Kafka 0.8's ``ProducerConfig``."""

_ASYNC_ONLY = {
    "enable.idempotence": (None, "false", False),
    "transactional.id": (None,),
}
"""Options that need sequence numbers, and the values that ask for none."""


@dataclass(frozen=True, slots=True)
class SyncConfig:
    """``kafka``: what both producers have; times in ms."""

    kafka: ProducerConfig
    message_send_max_retries: int
    topic_metadata_refresh_interval_ms: int

    @classmethod
    def parse(cls, mapping: Mapping[str, object]) -> SyncConfig:
        """Raises ``ConfigError`` with all faults at once."""
        faults = [
            f"{name} needs the asynchronous producer: leave it out."
            for name, harmless in _ASYNC_ONLY.items()
            if mapping.get(name) not in harmless
        ]
        own = {}
        for option in SYNC_OPTIONS:
            given = mapping.get(option.name)
            try:
                own[option.name] = option.parse(option.default if given is None else given)
            except BadValueError as error:
                faults.append(f"{option.name} {error}")
        not_kafkas = {option.name for option in SYNC_OPTIONS}.union(_ASYNC_ONLY)
        rest = {name: value for name, value in mapping.items() if name not in not_kafkas}
        try:
            kafka = ProducerConfig.parse({**rest, "enable.idempotence": False})
        except ConfigError as error:
            faults += error.faults
        if faults:
            raise ConfigError(faults)
        return cls(kafka, **{name.replace(".", "_"): value for name, value in own.items()})  # type: ignore[arg-type]
