"""``topicCreation`` and the settings of new topics, under the names of Kafka Connect (KIP-158)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_kafka_sink.common.config.option import OneOf, Option, OptionKind, Range

_PREFIX: Final = "topic.creation."
_DEFAULT: Final = "topic.creation.default."
_ALLOW: Final = "allow.auto.create.topics"
_OF_GROUPS: Final = ("include", "exclude")
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")
_LONGEST: Final = 249

TOPIC_OPTIONS: Final = (
    Option("topicCreation", OptionKind.STRING, "broker", "medium",
           "What happens if a topic does not exist. broker: the brokers decide (auto.create.topics.enable), as with "
           "Spark's own sink. never: an error before the first row. create: the sink creates it. With never and "
           "create, the driver looks up the option topic, and tasks the topics of their rows: each process once, and "
           "again after metadata.max.age.ms or a failed task. Existing topics are not changed. Does not apply to "
           "receiptsTopic and commitLogTopic.",
           OneOf(("broker", "never", "create"))),
    Option("topic.creation.default.partitions", OptionKind.INT, -1, "low",
           "Number of partitions of a topic that topicCreation=create creates. -1: the brokers' num.partitions.",
           Range(1, besides=-1)),
    Option("topic.creation.default.replication.factor", OptionKind.SHORT, -1, "low",
           "Replication factor of a topic that topicCreation=create creates. -1: the brokers' "
           "default.replication.factor. Other topic settings are written the same way: "
           "topic.creation.default.cleanup.policy, topic.creation.default.retention.ms.",
           Range(1, besides=-1)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """``topicCreation`` never or create (``create``). ``settings``: of a new topic, by Kafka's names."""

    create: bool
    partitions: int = -1
    replication_factor: int = -1
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def policy(self) -> str:
        return "create" if self.create else "never"

    @classmethod
    def of(cls, own: Mapping[str, Any], settings: Mapping[str, str], faults: list[str]) -> TopicCreation | None:
        """None for ``broker``. ``own``: the values of ``TOPIC_OPTIONS`` that are given, by names in lower case.
        ``settings``: those of ``topic_settings``."""
        create = own.get("topiccreation") == "create"
        given = [name for name in own if name.startswith(_PREFIX)]
        for name in settings:
            if (fault := _fault(name)) is not None:
                faults.append(fault)
            else:
                given.append(name)
        if given and not create:
            faults.append(f"{', '.join(sorted(given))}: only with topicCreation=create.")
        if own.get("topiccreation") not in ("never", "create"):
            return None
        return cls(
            create,
            own.get("topic.creation.default.partitions") or -1,
            own.get("topic.creation.default.replication.factor") or -1,
            tuple(sorted((name.removeprefix(_DEFAULT), value.strip()) for name, value in settings.items())),
        )


def topic_settings(options: Mapping[str, str]) -> dict[str, str]:
    """The options, by names in lower case, that begin with ``topic.creation.`` and are not in ``TOPIC_OPTIONS``."""
    named = {option.name.lower() for option in TOPIC_OPTIONS}
    given = {key.lower(): value for key, value in options.items()}
    return {name: value for name, value in given.items() if name.startswith(_PREFIX) and name not in named}


def without_auto_creation(kafka: dict[str, object], policy: str | None, faults: list[str]) -> dict[str, object]:
    """The producer's options with the allow.auto.create.topics that ``topicCreation`` means; ``policy`` None: not
    given."""
    if policy is None:
        return kafka
    meant = "true" if policy == "broker" else "false"
    given = str(kafka.get(_ALLOW, meant)).strip().lower()
    if given in ("true", "false") and given != meant:
        faults.append(
            f"kafka.{_ALLOW}={given} and topicCreation={policy} contradict each other: leave out kafka.{_ALLOW}."
        )
    return {**kafka, _ALLOW: meant}


def topic_name_fault(option: str, name: str | None) -> str | None:
    """Kafka's rule for topic names (Java: ``Topic.validate``); None for a valid name, or none."""
    if not name or (len(name) <= _LONGEST and name not in (".", "..") and _LEGAL.fullmatch(name)):
        return None
    return (
        f"{option} {name!a} is not a valid topic name: at most {_LONGEST} of the characters a-z, A-Z, 0-9, '.', '_' "
        "and '-', and neither '.' nor '..'."
    )


def _fault(name: str) -> str | None:
    """Connect's options that are not the settings of a topic."""
    if not name.startswith(_DEFAULT):
        return f"{name} is refused: there is one group of settings, {_DEFAULT}<setting>, for every topic."
    setting = name.removeprefix(_DEFAULT)
    if setting in _OF_GROUPS:
        return f"{name} is refused: the settings are for every topic that is created."
    return None if setting else f"{name} lacks the name of a topic's setting."
