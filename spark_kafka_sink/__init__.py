"""A Kafka sink for PySpark, ``format("pykafka")``, on a Kafka producer engine of its own.

The producer engine is public too: ``from spark_kafka_sink import KafkaProducer, ProducerRecord``. Names are imported on
first use: a Spark driver that looks up the format imports nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_kafka_sink.common.model import PartitionInfo
    from spark_kafka_sink.errors import (
        AuthenticationError,
        ConfigError,
        KafkaError,
        KafkaTimeoutError,
        ProducerFencedError,
    )
    from spark_kafka_sink.exactly_once.committer import resume
    from spark_kafka_sink.kafka08.message import KeyedMessage
    from spark_kafka_sink.kafka08.sync_producer import SyncProducer, open_producer
    from spark_kafka_sink.producer.producer import KafkaProducer
    from spark_kafka_sink.producer.receipt import Delivery, SendReceipt
    from spark_kafka_sink.producer.record import ProducerRecord, RecordMetadata
    from spark_kafka_sink.producer.transaction_requests import (
        ConsumerGroupMetadata,
        OffsetAndMetadata,
        PreparedTransaction,
    )
    from spark_kafka_sink.schemas.encoding.avro import encode_avro
    from spark_kafka_sink.schemas.encoding.protobuf import encode_protobuf
    from spark_kafka_sink.tools.self_test import selftest

__version__ = "0.3.0"

__all__ = [
    "AuthenticationError",
    "ConfigError",
    "ConsumerGroupMetadata",
    "Delivery",
    "KafkaError",
    "KafkaProducer",
    "KafkaTimeoutError",
    "KeyedMessage",
    "OffsetAndMetadata",
    "PartitionInfo",
    "PreparedTransaction",
    "ProducerFencedError",
    "ProducerRecord",
    "RecordMetadata",
    "SendReceipt",
    "SyncProducer",
    "encode_avro",
    "encode_protobuf",
    "open_producer",
    "resume",
    "selftest",
]

_HOMES = {
    "AuthenticationError": "errors",
    "ConfigError": "errors",
    "KafkaError": "errors",
    "KafkaTimeoutError": "errors",
    "ProducerFencedError": "errors",
    "ConsumerGroupMetadata": "producer.transaction_requests",
    "Delivery": "producer.receipt",
    "KafkaProducer": "producer.producer",
    "KeyedMessage": "kafka08.message",
    "OffsetAndMetadata": "producer.transaction_requests",
    "PartitionInfo": "common.model",
    "PreparedTransaction": "producer.transaction_requests",
    "ProducerRecord": "producer.record",
    "RecordMetadata": "producer.record",
    "SendReceipt": "producer.receipt",
    "SyncProducer": "kafka08.sync_producer",
    "encode_avro": "schemas.encoding.avro",
    "encode_protobuf": "schemas.encoding.protobuf",
    "open_producer": "kafka08.sync_producer",
    "resume": "exactly_once.committer",
    "selftest": "tools.self_test",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_public(f"{__name__}.{_HOMES[name]}", name)


def __dir__() -> list[str]:
    """The public names only, which ``dir``, ``help`` and tab completion show."""
    return sorted((*__all__, "__version__"))


def import_public(module: str, name: str) -> Any:
    """``name`` of ``module``. If that needs pyspark, which is not installed: a class that says so when it is called."""
    from importlib import import_module

    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise

    def refuse(*_arguments: object, **_named: object) -> None:
        raise ImportError(f'{name} needs PySpark: pip install "pyspark>=3.5"')

    return type(name, (), {"__new__": refuse})
