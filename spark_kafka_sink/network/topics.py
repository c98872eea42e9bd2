"""Topics by name: look-ups that create nothing, CreateTopics and DeleteTopics. The caller's thread waits for the
responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from types import MappingProxyType, ModuleType
from typing import Any, Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import BrokerError
from spark_kafka_sink.network.api_versions import (
    CREATE_TOPICS,
    CREATE_TOPICS_WITH_DEFAULTS,
    DELETE_TOPICS_FIRST_WITH_TOPIC_IDS,
    every,
)
from spark_kafka_sink.network.calls import Call, Calls, CodeAt
from spark_kafka_sink.network.error_table import FORBIDDEN
from spark_kafka_sink.network.metadata_api import MetadataEntity

MAX_MESSAGE_BYTES: Final = "max.message.bytes"
BROKER_DEFAULT: Final = -1
"""Leaves the number of partitions or the replication factor to the brokers (KIP-464)."""

_TIMEOUT: Final = timedelta(seconds=30)
_MAX_NAMES: Final = 10_000
"""The most names that are compared, which takes 10 µs each."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create (Java: ``NewTopic``). ``settings``: topic configs by Kafka's names."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    settings: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def topic_metadata(
    calls: Calls, names: Sequence[str] | None, deadline: float, allow_auto_topic_creation: bool = False
) -> Any:
    """kio's Metadata response for these topics; ``names`` None: for all topics that the principal may describe."""
    make = MetadataEntity(names, allow_auto_topic_creation)
    asked = {f"Metadata of topic {name}" for name in names or ()}
    return calls.call(Call("metadata", make.versions, None, make, _no_codes, asked=asked), deadline)


def similar_topics(calls: Calls, name: str, deadline: float) -> list[str]:
    """Up to three topics with names close to ``name``, of all that the principal may describe."""
    return closest_topics(topic_metadata(calls, None, deadline).topics, name)


def closest_topics(topics: Sequence[Any], name: str) -> list[str]:
    """Up to three of the topics of kio's Metadata response with names close to ``name``, the closest first."""
    near = [str(topic.name) for topic in topics if topic.name and abs(len(topic.name) - len(name)) <= len(name) // 2]
    return get_close_matches(name, near[:_MAX_NAMES], n=3, cutoff=0.72)


def create_topic(calls: Calls, topic: NewTopic, deadline: float) -> bool:
    """Creates one topic, as ``create_topics`` does. Returns whether this request created it."""
    return topic.name in create_topics(calls, [topic], deadline)


def create_topics(calls: Calls, topics: Sequence[NewTopic], deadline: float) -> set[str]:
    """Creates topics with one request. Returns the topics that this request created; the other topics exist already,
    perhaps with other settings. It may take a moment until they are in every broker's metadata. Raises the
    ``BrokerError`` of a topic that is refused, which ``why_not_created`` explains; other topics may have been created.
    Brokers with ZooKeeper do not forward the request to their controller.
    """

    def make(module: ModuleType, version: int) -> Any:
        entry = module.request.CreatableTopicConfig
        creatable = tuple(
            module.request.CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                assignments=(),
                configs=tuple(entry(name=name, value=value) for name, value in topic.settings.items()),
            )
            for topic in topics
        )
        return module.CreateTopicsRequest(topics=creatable, timeout=_TIMEOUT)

    def codes(body: Any) -> list[CodeAt]:
        return [CodeAt(f"CreateTopics of {each.name}", each.error_code, each.error_message) for each in body.topics]

    def call(target: int | None) -> Call:
        return Call("create_topics", versions, target, make, codes, asked=asked)

    asked = {f"CreateTopics of {topic.name}" for topic in topics}
    needs_defaults = any(BROKER_DEFAULT in (topic.partitions, topic.replication_factor) for topic in topics)
    versions = CREATE_TOPICS_WITH_DEFAULTS if needs_defaults else CREATE_TOPICS
    body = _call_controller(calls, call, deadline)
    return {str(topic.name) for topic in body.topics if topic.error_code is not ErrorCode.topic_already_exists}


def delete_topic(calls: Calls, name: str, deadline: float) -> None:
    """Deletes a topic, if it exists. Raises ``BrokerError``."""

    def make(module: ModuleType, version: int) -> Any:
        if version < DELETE_TOPICS_FIRST_WITH_TOPIC_IDS:
            return module.DeleteTopicsRequest(topic_names=(name,), timeout=_TIMEOUT)
        state = module.request.DeleteTopicState(name=name, topic_id=None)
        return module.DeleteTopicsRequest(topics=(state,), timeout=_TIMEOUT)

    def codes(body: Any) -> list[CodeAt]:
        return [
            CodeAt(f"DeleteTopics of {name}", response.error_code, getattr(response, "error_message", None))
            for response in body.responses
        ]

    def call(target: int | None) -> Call:
        return Call("delete_topics", every("delete_topics"), target, make, codes, asked={f"DeleteTopics of {name}"})

    _call_controller(calls, call, deadline)


def _call_controller(calls: Calls, call: Callable[[int | None], Call], deadline: float) -> Any:
    """The response's body. Any broker forwards the request to the controller, except those with ZooKeeper."""
    try:
        return calls.call(call(None), deadline)
    except BrokerError as error:
        if error.code != ErrorCode.not_controller:
            raise
        calls.refresh(deadline)
        return calls.call(call(calls.snapshot.controller_id), deadline)


def why_not_created(error: BrokerError) -> str:
    """The reason in words for users, with the name of a missing right."""
    if error.code in FORBIDDEN:
        return f"{str(error).partition(':')[0]}: {error.name}: the principal needs CREATE on the topic or the cluster"
    return str(error)


def _no_codes(body: Any) -> list[CodeAt]:
    """The topics as if none had an error, because the callers check those errors themselves."""
    topics = [CodeAt(f"Metadata of topic {topic.name}", ErrorCode.none) for topic in body.topics]
    return [CodeAt("Metadata", ErrorCode.none), *topics]
