"""``open_producer``: a producer by its type (Kafka 0.8's ``producer.type``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict, Unpack, overload

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.producer.producer import KafkaProducer
from spark_kafka_sink.producer.serializers import AnySerializer
from spark_kafka_sink.producer.sync_producer import SyncProducer


class Serializers(TypedDict, total=False):
    key_serializer: AnySerializer | None
    value_serializer: AnySerializer | None


@overload
def open_producer(
    config: Mapping[str, object], producer_type: Literal["async"] = "async", **serializers: Unpack[Serializers]
) -> KafkaProducer: ...
@overload
def open_producer(
    config: Mapping[str, object], producer_type: Literal["sync"], **serializers: Unpack[Serializers]
) -> SyncProducer: ...
def open_producer(
    config: Mapping[str, object], producer_type: str = "async", **serializers: Unpack[Serializers]
) -> KafkaProducer | SyncProducer:
    """``async``: a ``KafkaProducer``; its ``send`` returns a future. ``sync``: a ``SyncProducer``; its ``send`` returns
    when the records are in the log.
    """
    if producer_type == "sync":
        return SyncProducer(config, **serializers)
    if producer_type == "async":
        return KafkaProducer(config, **serializers)
    raise ConfigError([f"producer_type must be sync or async, but is {producer_type!r}."])
