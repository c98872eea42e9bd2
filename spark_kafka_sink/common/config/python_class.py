"""Classes of the user that options name: ``package.module:Class``, or one of Kafka's Java classes that is built in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from spark_kafka_sink.common.config.operator_limits import class_fault
from spark_kafka_sink.errors import ConfigError

PYTHON_CLASS = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")

_SERIALIZATION = "org.apache.kafka.common.serialization"
_CLIENT = "org.apache.kafka.clients.producer"

JAVA_SERIALIZERS: Mapping[str, str] = MappingProxyType({
    f"{_SERIALIZATION}.StringSerializer": "spark_kafka_sink.producer.serializers:StringSerializer",
    f"{_SERIALIZATION}.ByteArraySerializer": "spark_kafka_sink.producer.serializers:BytesSerializer",
    f"{_SERIALIZATION}.IntegerSerializer": "spark_kafka_sink.producer.serializers:IntegerSerializer",
    f"{_SERIALIZATION}.LongSerializer": "spark_kafka_sink.producer.serializers:LongSerializer",
    f"{_SERIALIZATION}.DoubleSerializer": "spark_kafka_sink.producer.serializers:DoubleSerializer",
    f"{_SERIALIZATION}.VoidSerializer": "spark_kafka_sink.producer.serializers:NullSerializer",
    "kafka.serializer.StringEncoder": "spark_kafka_sink.producer.serializers:StringSerializer",
    "kafka.serializer.DefaultEncoder": "spark_kafka_sink.producer.serializers:BytesSerializer",
})  # fmt: skip

_REGISTRY_SERIALIZERS = re.compile(
    r"io\.confluent\.kafka\.serializers\..*|((spark_kafka_sink[\w.]*[.:])?(AvroSerializer|ProtobufSerializer))"
    r"|Kafka(Avro|Protobuf|JsonSchema)Serializer"
)

JAVA_PARTITIONERS: Mapping[str, str] = MappingProxyType({
    f"{_CLIENT}.internals.DefaultPartitioner": "sticky",
    f"{_CLIENT}.RoundRobinPartitioner": "round_robin",
    f"{_CLIENT}.UniformStickyPartitioner": "uniform_sticky",
})  # fmt: skip


def of_java_name(name: str, classes: Mapping[str, str]) -> str:
    """What ``classes`` has for a Java name, which may lack its package. Other names are returned as they are."""
    for java_name, ours in classes.items():
        if name in (java_name, java_name.rpartition(".")[2]):
            return ours
    return name


def serializes_for_a_registry(name: str) -> bool:
    """Whether it is one of Confluent's Java serializers, with or without its package, or its counterpart in Python."""
    return _REGISTRY_SERIALIZERS.fullmatch(name) is not None


def imported(option: str, name: str) -> type[Any]:
    """The class ``package.module:Class``, not called. Raises ``ConfigError``, which names ``option``."""
    if name not in JAVA_SERIALIZERS.values() and (fault := class_fault(name)) is not None:
        raise ConfigError([f"{option} {fault}."])
    module, _, path = name.partition(":")
    try:
        found = getattr(import_module(module), path)
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        raise ConfigError([f"{option} {name} cannot be loaded: {error!r}."]) from error
    if not isinstance(found, type):
        raise ConfigError([f"{option} {name} is not a class but a {type(found).__name__}."])
    return found


def instance(option: str, name: str, methods: tuple[str, ...], base: str) -> Any:
    """An instance of ``package.module:Class``, made without arguments.

    Raises ``ConfigError``, which names ``option``. For a class that lacks one of ``methods``, it says to inherit from
    ``base``.
    """
    cls = imported(option, name)
    missing = [method for method in methods if not callable(getattr(cls, method, None))]
    if missing:
        raise ConfigError([f"{option} {name} has no method {', '.join(missing)}; inherit from {base}."])
    try:
        return cls()
    except (Exception, SystemExit) as error:  # the user's constructor may raise anything
        raise ConfigError([f"{option} {name} cannot be loaded: {error!r}."]) from error
