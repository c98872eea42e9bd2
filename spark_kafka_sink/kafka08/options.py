"""The options of Kafka 0.8's producer: its names for today's options, and the options that only ``SyncProducer``
has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.option import (
    AT_LEAST_0,
    INT,
    LONG,
    MINUS_1_OR_MORE,
    BadValueError,
    declared_options,
    kafka_option,
)
from spark_kafka_sink.common.config.producer_config import refuse_other_than_mapping
from spark_kafka_sink.common.config.rules import OLD_NAMES, PRODUCER_TYPE
from spark_kafka_sink.common.model import LARGEST_INT64
from spark_kafka_sink.errors import ConfigError

_ASYNC_ONLY: Final = {
    "enable.idempotence": (None, "false", False),
    "transactional.id": (None,),
    "interceptor.classes": (None, ""),
}
"""Options of sequence numbers and interceptors, and the values that turn these off."""

_OLD_VALUES: Final[Mapping[str, Mapping[str, object]]] = MappingProxyType({
    "compression.codec": {"0": "none", "1": "gzip", "2": "snappy", "3": "lz4"},
    "topic.metadata.refresh.interval.ms": {"-1": LARGEST_INT64},
})  # fmt: skip
"""Old values that the current options don't have → their values now: numbers of codecs, and metadata updates only after
errors."""


def parse_either_name(options: Mapping[str, object], faults: Collection[str] = ()) -> ProducerConfig:
    """The configuration of options by their names in Kafka 0.8 or by the current ones, without ``producer.type``.

    Raises ``ConfigError`` with ``faults`` and the faults of the options, by the names that were given.
    """
    given = {name: value for name, value in options.items() if value is not None and name != PRODUCER_TYPE}
    current = {name: value for name, value in given.items() if name not in OLD_NAMES}
    old_names: dict[str, str] = {}
    found = [*faults]
    for old, name in OLD_NAMES.items():
        if old in given and name in given:
            found.append(f"{old} is the old name of {name}, which is given too; leave one of them out.")
        elif old in given:
            old_names[name] = old
            current[name] = _OLD_VALUES.get(old, {}).get(str(given[old]).strip(), given[old])
    try:
        config = ProducerConfig.parse(current, old_names=old_names)
    except ConfigError as error:
        found += error.faults
    if found:
        raise ConfigError(found)
    if "value.serializer" in old_names and "key.serializer" not in current:  # serializer.class is for keys, too
        return replace(config, key_serializer=config.value_serializer)
    return config


def overridden(options: Mapping[str, object], by: Mapping[str, object]) -> dict[str, object]:
    """``options`` with the options of ``by``, which replace an option even if it is given by its other name."""
    replaced = {OLD_NAMES.get(name, name) for name in by}
    return {**{name: value for name, value in options.items() if OLD_NAMES.get(name, name) not in replaced}, **by}


@dataclass(frozen=True, slots=True)
class SyncConfig:
    """The options of ``SyncProducer`` as in Kafka 0.8's ``ProducerConfig``. ``kafka``: the options of both
    producers."""

    # fmt: off
    kafka: ProducerConfig
    message_send_max_retries: int = kafka_option(INT, 3, "high", AT_LEAST_0,
        doc="Retries of a record after a retriable error.")
    topic_metadata_refresh_interval_ms: int = kafka_option(LONG, 600_000, "low", MINUS_1_OR_MORE,
        doc="Metadata older than this is refreshed before a send. -1: only after an error. 0: before each send (slow).")
    # fmt: on

    @classmethod
    def parse(cls, mapping: Mapping[str, object]) -> SyncConfig:
        """The options of a mapping. Raises ``ConfigError`` with all faults at once. A client.id is generated if there
        is none."""
        refuse_other_than_mapping(mapping)
        rest = dict(mapping)
        faults = [
            f"{name} needs the asynchronous producer: leave it out."
            for name, harmless in _ASYNC_ONLY.items()
            if rest.pop(name, None) not in harmless
        ]
        own: dict[str, Any] = {}
        for field, each in declared_options(cls).items():
            given = rest.pop(each.name, None)
            try:
                own[field] = each.parse(each.default if given is None else given)
            except BadValueError as error:
                faults.append(f"{each.name} {error}")
        kind = rest.pop(PRODUCER_TYPE, None)
        if kind is not None and str(kind).strip() != "sync":
            faults.append(f"{PRODUCER_TYPE} is {kind!r}, but this producer is sync; use open_producer.")
        kafka = parse_either_name({**rest, "enable.idempotence": False}, faults)
        return cls(kafka.with_client_id(), **own)

    def by_name(self) -> dict[str, object]:
        """The values of both producers' options by their names, which ``configure`` of the user's classes gets."""
        own = {each.name: getattr(self, field) for field, each in declared_options(SyncConfig).items()}
        return own | self.kafka.by_name()
