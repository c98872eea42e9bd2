"""How each side writes a frame out of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from benchmarks.frames import KEY, TOPIC_NUMBER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

FLUSH_S = 60.0

_MAGIC = b"\0"


@dataclass(frozen=True, slots=True)
class Destination:
    """``topics``: the one topic, or all, whose names end with their numbers, when the frame has a topic number."""

    bootstrap_servers: str
    topics: Sequence[str]
    options: Mapping[str, str]
    exactly_once: bool = False
    registry_url: str = ""


def routed(frame: DataFrame, to: Destination) -> tuple[DataFrame, dict[str, str]]:
    """The frame and the options of ``format("kafka")`` and ``format("pykafka")``."""
    options = {"kafka.bootstrap.servers": to.bootstrap_servers}
    options.update((f"kafka.{name}", value) for name, value in to.options.items())
    if to.exactly_once:
        options["deliveryGuarantee"] = "exactly-once"
    if TOPIC_NUMBER in frame.columns:
        prefix = to.topics[0].removesuffix("0")
        topic = f"concat('{prefix}', pmod({TOPIC_NUMBER}, {len(to.topics)})) AS topic"
        columns = [column for column in frame.columns if column != TOPIC_NUMBER]
        return frame.selectExpr(*columns, topic), options
    return frame, {**options, "topic": to.topics[0]}


def _through(source: str) -> Callable[[DataFrame, Destination], None]:
    def write(frame: DataFrame, to: Destination) -> None:
        rows, options = routed(frame, to)
        if to.exactly_once:
            options |= {"txnAppId": uuid4().hex, "txnVersion": "0"}
        rows.write.format(source).mode("append").options(**options).save()

    return write


def _write_kafka(frame: DataFrame, to: Destination) -> None:
    from spark_kafka_sink.spark import write_kafka

    rows, options = routed(frame, to)
    write_kafka(rows, options)


def _into(source: str) -> Callable[[DataFrame, Destination], None]:
    def write(frame: DataFrame, to: Destination) -> None:
        frame.write.format(source).mode("append").save()

    return write


def _avro(frame: DataFrame, to: Destination) -> None:
    rows, options = routed(frame.selectExpr(KEY, f"{_struct(frame)} AS value"), to)
    options |= {"valueFormat": "avro", "schema.registry.url": to.registry_url}
    rows.write.format("pykafka").mode("append").options(**options).save()


def _to_avro(frame: DataFrame, to: Destination) -> None:
    # Spark's function knows no registry: the registry's prefix is a constant.
    prefix = _MAGIC + _schema_id(to.registry_url, to.topics[0], _derived_schema(frame)).to_bytes(4, "big")
    value = f"concat(X'{prefix.hex()}', to_avro({_struct(frame)})) AS value"
    _through("kafka")(frame.selectExpr(KEY, value), to)


def _struct(frame: DataFrame) -> str:
    """All columns but the key."""
    return f"struct({', '.join(column for column in frame.columns if column != KEY)})"


def _derived_schema(frame: DataFrame) -> str:
    """The one that ``to_avro`` and the sink derive."""
    from spark_kafka_sink.spark.formats import derive_schema

    field = frame.selectExpr(f"{_struct(frame)} AS value").schema["value"]
    return derive_schema("value", field.dataType, field.nullable)


@cache
def _schema_id(registry_url: str, subject: str, schema: str) -> int:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

    return SchemaRegistryClient({"url": registry_url}).register_schema(subject, Schema(schema, "AVRO"))


def _confluent(frame: DataFrame, to: Destination) -> None:
    config, topic = _confluent_config(to), to.topics[0]

    def produce(rows: Iterable[Row]) -> None:
        _produce(config, topic, ((row.key, row.value) for row in rows))

    frame.foreachPartition(produce)


def _confluent_avro(frame: DataFrame, to: Destination) -> None:
    config, topic, registry_url, schema = _confluent_config(to), to.topics[0], to.registry_url, _derived_schema(frame)

    def produce(rows: Iterable[Row]) -> None:
        from confluent_kafka.schema_registry import SchemaRegistryClient
        from confluent_kafka.schema_registry.avro import AvroSerializer
        from confluent_kafka.serialization import MessageField, SerializationContext

        serialize = AvroSerializer(SchemaRegistryClient({"url": registry_url}), schema)
        context = SerializationContext(topic, MessageField.VALUE)
        _produce(config, topic, ((row.key, serialize(row.asDict(), context)) for row in rows))

    frame.foreachPartition(produce)


def _confluent_config(to: Destination) -> dict[str, str]:
    # Idempotent, as both sinks are; librdkafka's own default is not.
    return {"bootstrap.servers": to.bootstrap_servers, "enable.idempotence": "true", **to.options}


def _produce(config: dict[str, str], topic: str, records: Iterable[tuple[Any, Any]]) -> None:
    """Keys and values."""
    from confluent_kafka import Producer

    producer = Producer(config)
    for key, value in records:
        try:
            producer.produce(topic, value, key)
        except BufferError:
            producer.flush(FLUSH_S)
            producer.produce(topic, value, key)
        producer.poll(0)
    if producer.flush(FLUSH_S):
        raise RuntimeError(f"rows are still in the queue after {FLUSH_S} s")


def _kafka_python(frame: DataFrame, to: Destination) -> None:
    servers, topic = to.bootstrap_servers, to.topics[0]

    def produce(rows: Iterable[Row]) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=True)
        for row in rows:
            producer.send(topic, row.value.encode(), row.key.encode())
        producer.flush(FLUSH_S)
        producer.close()

    frame.foreachPartition(produce)


WRITERS: Mapping[str, Callable[[DataFrame, Destination], None]] = {
    "pykafka": _through("pykafka"),
    "write_kafka": _write_kafka,
    "jvm": _through("kafka"),
    "nothing": _into("nothing"),
    "noop": _into("noop"),
    "avro": _avro,
    "to_avro": _to_avro,
    "confluent": _confluent,
    "confluent-avro": _confluent_avro,
    "kafka-python": _kafka_python,
}

STREAM_FORMATS = {"pykafka": "pykafka", "jvm": "kafka", "nothing": "nothing"}

WRITES_NOTHING = frozenset({"nothing", "noop"})

WRITES_IN_JVM = frozenset({"jvm", "noop", "to_avro"})

NEEDS_REGISTRY = frozenset({"avro", "to_avro", "confluent-avro"})
