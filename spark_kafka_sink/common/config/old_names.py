"""The option names of Kafka 0.8's producer and their current names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spark_kafka_sink.common.config.draft import Draft
from spark_kafka_sink.common.protocol_values import LARGEST_INT64

OLD_NAMES: Mapping[str, str] = MappingProxyType({
    "metadata.broker.list": "bootstrap.servers",
    "request.required.acks": "acks",
    "compression.codec": "compression.type",
    "message.send.max.retries": "retries",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "serializer.class": "value.serializer",
    "key.serializer.class": "key.serializer",
})  # fmt: skip

PRODUCER_TYPE = "producer.type"

_OLD_VALUES: Mapping[str, Mapping[str, object]] = MappingProxyType({
    "compression.codec": {"0": "none", "1": "gzip", "2": "snappy", "3": "lz4"},
    "topic.metadata.refresh.interval.ms": {"-1": LARGEST_INT64},
})  # fmt: skip
"""Values that the current options don't have: numbers of codecs, and metadata updates only after errors."""


def renamed(draft: Draft, given: Mapping[str, object]) -> dict[str, object]:
    """``given`` by current names. Faults show an option's name as given."""
    options = {name: value for name, value in given.items() if name not in OLD_NAMES and name != PRODUCER_TYPE}
    for old, name in OLD_NAMES.items():
        if old in given and name in given:
            draft.fault(old, f"is the old name of {name}, which is given too; leave one of them out.")
        elif old in given:
            draft.names[name] = old
            options[name] = _OLD_VALUES.get(old, {}).get(str(given[old]).strip(), given[old])
    if str(given.get(PRODUCER_TYPE, "async")).strip() != "async":
        draft.fault(PRODUCER_TYPE, f"is {given[PRODUCER_TYPE]!r}, but this producer is async; use open_producer.")
    return options


def overridden(options: Mapping[str, object], by: Mapping[str, object]) -> dict[str, object]:
    """``options`` with those of ``by``, which also replace an option that is given by its other name."""
    replaced = {OLD_NAMES.get(name, name) for name in by}
    return {**{name: value for name, value in options.items() if OLD_NAMES.get(name, name) not in replaced}, **by}


def old_name(name: str, prefix: str) -> str | None:
    """The fault of an old name, for callers that take only current names; None for any other name."""
    if name == PRODUCER_TYPE:
        return f"{prefix}{name} is an option of Kafka 0.8; leave it out, the producer is always asynchronous here."
    if name not in OLD_NAMES:
        return None
    return f"{prefix}{name} is the old name of {prefix}{OLD_NAMES[name]}; use that."
