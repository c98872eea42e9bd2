"""``open_producer``: a producer by its type (Kafka 0.8's ``producer.type``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict, Unpack, overload

from spark_kafka_sink.common.config.old_names import PRODUCER_TYPE
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.producer.producer import KafkaProducer
from spark_kafka_sink.producer.serializers import AnySerializer
from spark_kafka_sink.producer.sync_producer import SyncProducer


class Serializers(TypedDict, total=False):
    key_serializer: AnySerializer | None
    value_serializer: AnySerializer | None


@overload
def open_producer(
    config: Mapping[str, object], producer_type: Literal["async"], **serializers: Unpack[Serializers]
) -> KafkaProducer: ...
@overload
def open_producer(
    config: Mapping[str, object], producer_type: Literal["sync"], **serializers: Unpack[Serializers]
) -> SyncProducer: ...
@overload
def open_producer(
    config: Mapping[str, object], producer_type: None = None, **serializers: Unpack[Serializers]
) -> KafkaProducer | SyncProducer: ...
def open_producer(
    config: Mapping[str, object], producer_type: str | None = None, **serializers: Unpack[Serializers]
) -> KafkaProducer | SyncProducer:
    """``async`` (the default): a ``KafkaProducer``; its ``send`` returns a future. ``sync``: a ``SyncProducer``; its
    ``send`` returns when the records are in the log. Without ``producer_type``, the option ``producer.type`` is read.
    """
    name, kind = "producer_type", producer_type
    if kind is None:
        given = config.get(PRODUCER_TYPE)
        name, kind = PRODUCER_TYPE, "async" if given is None else str(given).strip()
    options = {option: value for option, value in config.items() if option != PRODUCER_TYPE}
    if kind == "sync":
        return SyncProducer(options, **serializers)
    if kind == "async":
        return KafkaProducer(options, **serializers)
    raise ConfigError([f"{name} must be sync or async, but is {kind!r}."])
