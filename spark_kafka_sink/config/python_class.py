"""Classes of the user that options name: ``package.module:Class``, or one of Kafka's Java classes that is built in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from spark_kafka_sink.errors import ConfigError

PYTHON_CLASS = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")

_SERIALIZATION = "org.apache.kafka.common.serialization"
_CONFLUENT = "io.confluent.kafka.serializers"
_CLIENT = "org.apache.kafka.clients.producer"

JAVA_SERIALIZERS: Mapping[str, str] = MappingProxyType({
    f"{_SERIALIZATION}.StringSerializer": "spark_kafka_sink.producer.serializers:StringSerializer",
    f"{_SERIALIZATION}.ByteArraySerializer": "spark_kafka_sink.producer.serializers:BytesSerializer",
    f"{_CONFLUENT}.KafkaAvroSerializer": "spark_kafka_sink.producer.schema_serializers:AvroSerializer",
    f"{_CONFLUENT}.protobuf.KafkaProtobufSerializer": (
        "spark_kafka_sink.producer.schema_serializers:ProtobufSerializer"
    ),
    "kafka.serializer.StringEncoder": "spark_kafka_sink.producer.serializers:StringSerializer",
    "kafka.serializer.DefaultEncoder": "spark_kafka_sink.producer.serializers:BytesSerializer",
})  # fmt: skip

JAVA_PARTITIONERS: Mapping[str, str] = MappingProxyType({
    f"{_CLIENT}.internals.DefaultPartitioner": "default",
    f"{_CLIENT}.RoundRobinPartitioner": "round_robin",
    f"{_CLIENT}.UniformStickyPartitioner": "uniform_sticky",
})  # fmt: skip


def of_java_name(name: str, classes: Mapping[str, str]) -> str:
    """What ``classes`` has for a Java name, with or without its package; other names as they are."""
    for java_name, ours in classes.items():
        if name in (java_name, java_name.rpartition(".")[2]):
            return ours
    return name


def imported(option: str, name: str) -> Any:
    """The class of ``package.module:Class``. Raises ``ConfigError`` that names ``option``."""
    module, _, path = name.partition(":")
    try:
        return getattr(import_module(module), path)
    except Exception as error:  # the user's module may raise anything
        raise ConfigError([f"{option} {name} cannot be loaded: {error!r}."]) from error


def instance(option: str, name: str, methods: tuple[str, ...], base: str) -> Any:
    """Import ``package.module:Class`` and call it without arguments.

    Raises ``ConfigError`` that names ``option``, also where a method is missing; ``base`` is the class to inherit from.
    """
    cls = imported(option, name)
    try:
        made = cls()
    except Exception as error:  # the user's constructor may raise anything
        raise ConfigError([f"{option} {name} cannot be loaded: {error!r}."]) from error
    missing = [method for method in methods if not callable(getattr(made, method, None))]
    if missing:
        raise ConfigError([f"{option} {name} has no method {', '.join(missing)}; inherit from {base}."])
    return made
