"""Options that name a Java class or, shorter, what it does."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from spark_kafka_sink.common.config.draft import Draft
from spark_kafka_sink.common.config.option import did_you_mean
from spark_kafka_sink.schemas.registry.subjects import SubjectNameStrategy


class SchemaIdPlace(Enum):
    """``key.schema.id.serializer`` and ``value.schema.id.serializer``."""

    PREFIX = "prefix"
    HEADER = "header"


_STRATEGY_PACKAGE: Final = "io.confluent.kafka.serializers.subject."
_STRATEGIES: Final[Mapping[str, SubjectNameStrategy]] = MappingProxyType({
    "TopicNameStrategy": SubjectNameStrategy.TOPIC,
    "RecordNameStrategy": SubjectNameStrategy.RECORD,
    "TopicRecordNameStrategy": SubjectNameStrategy.TOPIC_RECORD,
})  # fmt: skip
_ASSOCIATED: Final = "AssociatedNameStrategy"

_PLACE_PACKAGE: Final = "io.confluent.kafka.serializers.schema.id."
_PLACES: Final[Mapping[str, SchemaIdPlace]] = MappingProxyType({
    "PrefixSchemaIdSerializer": SchemaIdPlace.PREFIX,
    "HeaderSchemaIdSerializer": SchemaIdPlace.HEADER,
})  # fmt: skip


def subject_name_strategy(draft: Draft, name: str) -> SubjectNameStrategy:
    """The strategy that the option ``name`` says, or a fault."""
    given = draft.values[name]
    if given.removeprefix(_STRATEGY_PACKAGE) == _ASSOCIATED:
        draft.fault(
            name,
            f"is {_ASSOCIATED}, which asks the registry which subject is associated with a topic; write topic, which "
            "it falls back on for topics without an association.",
        )
        return SubjectNameStrategy.TOPIC
    short = {strategy.value: strategy for strategy in SubjectNameStrategy}
    found = short.get(given.lower()) or _STRATEGIES.get(given.removeprefix(_STRATEGY_PACKAGE))
    if found is None and name not in draft.faulty:
        _unknown(draft, name, [*short], [*_STRATEGIES])
    return found or SubjectNameStrategy.TOPIC


def schema_id_place(draft: Draft, name: str) -> SchemaIdPlace:
    """The place that the option ``name`` says, or a fault."""
    given = draft.values[name]
    short = {place.value: place for place in SchemaIdPlace}
    found = short.get(given.lower()) or _PLACES.get(given.removeprefix(_PLACE_PACKAGE))
    if found is None and name not in draft.faulty:
        _unknown(draft, name, [*short], [*_PLACES])
    return found or SchemaIdPlace.PREFIX


def _unknown(draft: Draft, name: str, short: list[str], java: list[str]) -> None:
    given = draft.values[name]
    hint = did_you_mean(given.rpartition(".")[2], [*short, *java]) or "; other Java classes cannot be loaded."
    draft.fault(name, f"must be one of {', '.join(short)}, or Java's {', '.join(java)}, but is {given!r}{hint}")
