"""Spark's options → ``SinkOptions``, or every fault of them in one ConfigError on the driver.

Spark hands option names over in lower case, Kafka's own under ``kafka.``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_sink.config import ConfigWarning, ProducerConfig
from spark_kafka_sink.config.option import Kind, OneOf, Option
from spark_kafka_sink.config.suggest import did_you_mean
from spark_kafka_sink.config.table import OPTIONS_BY_NAME
from spark_kafka_sink.config.values import BadValueError, Value, convert
from spark_kafka_sink.errors import ConfigError

KAFKA_PREFIX = "kafka."

SINK_OPTIONS: tuple[Option, ...] = (
    Option("topic", Kind.STRING, None, "high",
           "Topic of every row; the column topic is then not looked at. Required without that column."),
    Option("timestampColumn", Kind.STRING, None, "medium",
           "Column (timestamp, or bigint in epoch ms) with the records' timestamps; null is the time of writing."),
    Option("includeHeaders", Kind.BOOLEAN, False, "low",
           "Taken for the sake of Spark's Kafka source; on write a column headers is always sent."),
    Option("deliveryGuarantee", Kind.STRING, "at-least-once", "medium",
           "What a reader may count on. A task that Spark runs again writes its rows again.",
           OneOf(("at-least-once",))),
)  # fmt: skip
"""This sink's own options, written without a prefix."""

ADDED_BY_SPARK = frozenset({"path", "checkpointlocation", "queryname"})
"""What Spark itself puts among the options of a write."""

READ_SIDE = frozenset({
    "assign", "subscribe", "subscribePattern", "startingOffsets", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "startingTimestamp", "endingOffsets", "endingOffsetsByTimestamp",
    "endingTimestamp", "failOnDataLoss", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions",
    "maxRecordsPerPartition", "groupIdPrefix", "kafka.group.id",
})  # fmt: skip
"""Options of Spark's Kafka source: they come along when one set of options serves reading and writing."""

_OWN = {option.name.lower(): option for option in SINK_OPTIONS}
_READ_SIDE = {name.lower(): name for name in READ_SIDE}
_SUGGESTIONS = (*(option.name for option in SINK_OPTIONS), *(KAFKA_PREFIX + name for name in OPTIONS_BY_NAME))

# The texts of Spark's KafkaSourceProvider.
_SERIALIZERS = {
    f"kafka.{side}.serializer": (
        f"Kafka option '{side}.serializer' is not supported as {side}s are serialized with ByteArraySerializer."
    )
    for side in ("key", "value")
}
_FENCING = (
    "kafka.transactional.id is refused: every task would write under the same id and fence the others; "
    "what a reader may count on is chosen by deliveryGuarantee."
)
_REFUSED = {**_SERIALIZERS, "kafka.transactional.id": _FENCING}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What a write was asked to do: goes to every task, so a plain value.

    ``topic`` None: each row names its own. ``timestamp_column`` None: records get the time of writing.
    """

    producer: ProducerConfig
    topic: str | None = None
    timestamp_column: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Raises ConfigError with all faults in one message, Kafka's options and the sink's own alike."""
        faults: list[str] = []
        own: dict[str, Value] = {}
        kafka: dict[str, object] = {}
        read_side: list[str] = []
        for key, value in options.items():
            name = key.lower()
            if name in _READ_SIDE:
                read_side.append(_READ_SIDE[name])
            elif name in _REFUSED:
                faults.append(_REFUSED[name])
            elif name.startswith(KAFKA_PREFIX):
                kafka[name.removeprefix(KAFKA_PREFIX)] = value
            elif name in _OWN:
                own[name] = _own_value(_OWN[name], value, faults)
            elif name not in ADDED_BY_SPARK:
                faults.append(_unknown(name))
        try:
            producer = ProducerConfig.parse(kafka, KAFKA_PREFIX)
        except ConfigError as error:
            raise ConfigError([*faults, *error.faults]) from None
        if faults:
            raise ConfigError(faults)
        if read_side:
            text = f"{', '.join(sorted(read_side))}: without effect on write; they belong to Spark's Kafka source."
            warnings.warn(text, ConfigWarning, stacklevel=2)
        return cls(producer, _text(own.get("topic")), _text(own.get("timestampcolumn")))


def _own_value(option: Option, value: str, faults: list[str]) -> Value:
    try:
        converted = convert(option, value)
    except BadValueError:
        faults.append(f"{option.name} must be {option.allowed}, but is {value!r}.")
        return None
    if converted == "":
        faults.append(f"{option.name} is blank; give it a value or leave it out.")
    return converted


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None


def _unknown(name: str) -> str:
    if name in OPTIONS_BY_NAME:
        return f"{name} is an option of Kafka's producer; write it {KAFKA_PREFIX}{name}."
    hint = did_you_mean(name, _SUGGESTIONS) or f". Options of Kafka's producer are written {KAFKA_PREFIX}<name>."
    return f"{name} is not an option of pykafka{hint}"
