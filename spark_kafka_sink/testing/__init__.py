"""Kafka for tests of Kafka programs.

``TestBroker`` is a Kafka cluster in this process, which starts in a millisecond and has faults by functions.
``LocalKafka`` is a real Kafka on this machine, and ``LocalSchemaRegistry`` a real schema registry. The pytest fixtures
are ``kafka_test_broker``, ``local_kafka`` and ``local_schema_registry`` (``testing.pytest_plugin``). Names are imported
on first use, because ``TestBroker`` needs nothing that a real Kafka needs.
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
    """The public names only, which ``dir``, ``help`` and tab completion show."""
    return sorted(__all__)
