"""Broker and topic settings by Kafka's names: settings that change the broker's behaviour, and settings that it only
reports."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from spark_kafka_sink.common.compression import CODECS
from spark_kafka_sink.errors import ConfigError

Setting: TypeAlias = str | int | bool

# Kafka's defaults, except for group.initial.rebalance.delay.ms: in Kafka, a new group waits three seconds for members.
BROKER_DEFAULTS: Final[Mapping[str, Setting]] = MappingProxyType(
    {
        "auto.create.topics.enable": True,
        "compression.type": "producer",
        "connections.max.reauth.ms": 0,
        "default.replication.factor": 1,
        "group.initial.rebalance.delay.ms": 0,
        "group.max.session.timeout.ms": 1_800_000,
        "group.min.session.timeout.ms": 6_000,
        "log.message.timestamp.type": "CreateTime",
        "message.max.bytes": 1_048_588,
        "min.insync.replicas": 1,
        "num.io.threads": 8,
        "num.partitions": 1,
        "offsets.commit.timeout.ms": 5_000,
        "offsets.topic.num.partitions": 50,
        "share.coordinator.state.topic.num.partitions": 50,
        "socket.request.max.bytes": 104_857_600,
        "transaction.max.timeout.ms": 900_000,
        "transaction.state.log.num.partitions": 50,
    }
)

_ANY: Final = 9_223_372_036_854_775_807

# Kafka's defaults, except for message.timestamp.after.max.ms, an hour since 4.0: here rows of any time are taken.
TOPIC_DEFAULTS: Final[Mapping[str, Setting]] = MappingProxyType(
    {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "delete.retention.ms": 86_400_000,
        "file.delete.delay.ms": 60_000,
        "flush.messages": _ANY,
        "flush.ms": _ANY,
        "max.compaction.lag.ms": _ANY,
        "max.message.bytes": 1_048_588,
        "message.timestamp.after.max.ms": _ANY,
        "message.timestamp.before.max.ms": _ANY,
        "message.timestamp.type": "CreateTime",
        "min.cleanable.dirty.ratio": "0.5",
        "min.compaction.lag.ms": 0,
        "min.insync.replicas": 1,
        "retention.bytes": -1,
        "retention.ms": 604_800_000,
        "segment.bytes": 1_073_741_824,
        "segment.ms": 604_800_000,
        "unclean.leader.election.enable": False,
    }
)

TOPIC_SETTING_OF_BROKER: Final[Mapping[str, str]] = MappingProxyType(
    {
        "compression.type": "compression.type",
        "max.message.bytes": "message.max.bytes",
        "message.timestamp.type": "log.message.timestamp.type",
        "min.insync.replicas": "min.insync.replicas",
    }
)
"""Topic setting → the broker setting that is its default."""


def broker_config(given: Mapping[str, Setting] | None) -> dict[str, Setting]:
    """The defaults overridden by the user's settings, each with the type of its default."""
    faults = []
    config = dict(BROKER_DEFAULTS)
    for name, value in (given or {}).items():
        if name not in BROKER_DEFAULTS:
            close = difflib.get_close_matches(name, BROKER_DEFAULTS, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; it knows {', '.join(BROKER_DEFAULTS)}"
            faults.append(f"{name} is not a setting of TestBroker{hint}")
        elif (parsed := _parse(value, BROKER_DEFAULTS[name])) is None:
            faults.append(f"{name}={value!r} is not {_KIND[type(BROKER_DEFAULTS[name])]}")
        elif name in _CHOICES and parsed not in _CHOICES[name]:
            faults.append(f"{name}={value!r} is none of {', '.join(_CHOICES[name])}")
        else:
            config[name] = parsed
    if faults:
        raise ConfigError(faults)
    return config


_CHOICES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        **dict.fromkeys(("message.timestamp.type", "log.message.timestamp.type"), ("CreateTime", "LogAppendTime")),
        "compression.type": ("uncompressed", *(name for name in reversed([*CODECS]) if name != "none"), "producer"),
    }
)

_KIND: Final[Mapping[type, str]] = MappingProxyType({bool: "true or false", int: "a whole number", str: "a string"})


def _parse(value: object, like: Setting) -> Setting | None:
    text = str(value).strip()
    if isinstance(like, bool):
        return {"true": True, "false": False}.get(text.lower())
    if isinstance(like, int):
        return int(text) if text.lstrip("-").isdigit() else None
    return text


def as_text(value: Setting) -> str:
    """The value as DescribeConfigs writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def topic_fault(config: Mapping[str, Setting | None]) -> str | None:
    """Why CreateTopics refuses these settings, in the broker's words; None when it takes them."""
    for name, value in config.items():
        if name not in TOPIC_DEFAULTS:
            return f"Unknown topic config name: {name}"
        if value is not None and _parse(value, TOPIC_DEFAULTS[name]) is None:
            return f"Invalid value {value} for configuration {name}"
        if value is not None and name in _CHOICES and value not in _CHOICES[name]:
            allowed = ", ".join(_CHOICES[name])
            return f"Invalid value {value} for configuration {name}: String must be one of: {allowed}"
    return None


class Settings:
    """The settings in force for one topic: its own, or else the broker's, or else Kafka's defaults.

    ``own`` must have passed ``topic_fault``.
    """

    def __init__(self, broker: Mapping[str, Setting], own: Mapping[str, Setting]) -> None:
        self._broker = broker
        parsed = {name: _parse(value, TOPIC_DEFAULTS[name]) for name, value in own.items()}
        self.own = {name: value for name, value in parsed.items() if value is not None}

    def times(self, now_ms: int) -> range | None:
        """The timestamps that records may have; None for any."""
        before, after = (self.number(f"message.timestamp.{which}.max.ms") for which in ("before", "after"))
        return None if before == after == _ANY else range(now_ms - before, now_ms + after + 1)

    def __getitem__(self, name: str) -> Setting:
        if name in self.own:
            return self.own[name]
        return self._broker.get(TOPIC_SETTING_OF_BROKER.get(name, ""), TOPIC_DEFAULTS[name])

    def number(self, name: str) -> int:
        return int(self[name])
