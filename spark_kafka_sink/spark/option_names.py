"""Names of options that are not the sink's own: of Spark's Kafka source and Kafka's consumer, refused, unknown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from spark_kafka_sink.common.config.old_names import OLD_NAMES
from spark_kafka_sink.common.config.option import did_you_mean
from spark_kafka_sink.common.config.table import CONSUMER_OPTIONS, OPTIONS_BY_NAME
from spark_kafka_sink.spark.dead_letters.options import CONNECT_NAMES

KAFKA_PREFIX: Final = "kafka."

ADDED_BY_SPARK = frozenset({"path", "checkpointlocation", "queryname"})
"""Options that Spark adds to a write."""

READ_SIDE = frozenset({
    "assign", "subscribe", "subscribePattern", "startingOffsets", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "startingTimestamp", "endingOffsets", "endingOffsetsByTimestamp",
    "endingTimestamp", "failOnDataLoss", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions",
    "maxRecordsPerPartition", "groupIdPrefix", *(KAFKA_PREFIX + name for name in CONSUMER_OPTIONS),
})  # fmt: skip
"""Options of Spark's Kafka source and Kafka's consumer: accepted, so one set of options serves reading and writing."""

# The texts of Spark's KafkaSourceProvider.
_SERIALIZERS: Final = {
    f"{side}.serializer": (
        f"Kafka option '{side}.serializer' is not supported as {side}s are serialized with ByteArraySerializer."
    )
    for side in ("key", "value")
}
_REFUSED: Final = {
    **_SERIALIZERS,
    "key.serializer.class": _SERIALIZERS["key.serializer"],
    "serializer.class": _SERIALIZERS["value.serializer"],
    "transactional.id": "kafka.transactional.id is refused: tasks with the same id would fence each other. Set "
    "deliveryGuarantee instead.",
    "interceptor.classes": "kafka.interceptor.classes is refused: the sink writes columns, which no interceptor sees. "
    "Change the columns before the write.",
    **CONNECT_NAMES,
}  # fmt: skip

_READ_SIDE: Final = {name.lower(): name for name in READ_SIDE}


def read_side(name: str) -> str | None:
    """An option of ``READ_SIDE`` as the table spells it; ``name`` in lower case."""
    return _READ_SIDE.get(name)


def unsupported_option(name: str) -> str | None:
    """The fault of a producer option that the sink does not take, with or without ``kafka.``."""
    return _REFUSED.get(name.removeprefix(KAFKA_PREFIX))


def unknown_name(name: str, known: Iterable[str]) -> str:
    """The fault of a name without ``kafka.`` that is not an option of the sink. ``known``: the names to suggest."""
    if name in OPTIONS_BY_NAME:
        return f"{name} is an option of Kafka's producer; write it {KAFKA_PREFIX}{name}."
    if name in OLD_NAMES:
        return f"{name} is an old option of Kafka's producer; write it {KAFKA_PREFIX}{OLD_NAMES[name]}."
    if name in CONSUMER_OPTIONS:
        return f"{name} is an option of Kafka's consumer, not of its producer; leave it out here."
    hint = did_you_mean(name, known) or f". Options of Kafka's producer are written {KAFKA_PREFIX}<name>."
    return f"{name} is not an option of pykafka{hint}"
