"""Kafka for tests of Kafka programs.

``TestBroker``: a Kafka cluster in this process, started in a millisecond, with faults by functions. ``LocalKafka``: a
real Kafka on this machine; ``LocalSchemaRegistry``: a real schema registry. pytest fixtures: ``kafka_test_broker``,
``local_kafka``, ``local_schema_registry`` (``testing.pytest_plugin``). Names are imported at first use: the one needs
nothing of the other.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from spark_kafka_sink.testing.broker import KEPT, StoredRecord, TestBroker
    from spark_kafka_sink.testing.listener import Listener
    from spark_kafka_sink.testing.local_kafka import DEFAULT_VERSION, LocalKafka, LocalKafkaError
    from spark_kafka_sink.testing.local_schema_registry import LocalSchemaRegistry, LocalSchemaRegistryError

__all__ = [
    "DEFAULT_VERSION",
    "KEPT",
    "Listener",
    "LocalKafka",
    "LocalKafkaError",
    "LocalSchemaRegistry",
    "LocalSchemaRegistryError",
    "StoredRecord",
    "TestBroker",
]

_HOME: Final = {
    "DEFAULT_VERSION": "local_kafka",
    "KEPT": "broker",
    "Listener": "listener",
    "LocalKafka": "local_kafka",
    "LocalKafkaError": "local_kafka",
    "LocalSchemaRegistry": "local_schema_registry",
    "LocalSchemaRegistryError": "local_schema_registry",
    "StoredRecord": "broker",
    "TestBroker": "broker",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
