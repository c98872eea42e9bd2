"""How each side writes a frame out of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.frames import TOPIC_NUMBER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

FLUSH_S = 60.0


@dataclass(frozen=True, slots=True)
class Destination:
    """``topics``: the one topic, or all, whose names end with their numbers, when the frame has a topic number."""

    bootstrap_servers: str
    topics: Sequence[str]
    options: Mapping[str, str]
    exactly_once: bool = False


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
        rows.write.format(source).mode("append").options(**options).save()

    return write


def _into(source: str) -> Callable[[DataFrame, Destination], None]:
    def write(frame: DataFrame, to: Destination) -> None:
        frame.write.format(source).mode("append").save()

    return write


def _confluent(frame: DataFrame, to: Destination) -> None:
    # Idempotent, as both sinks are; librdkafka's own default is not.
    config = {"bootstrap.servers": to.bootstrap_servers, "enable.idempotence": "true", **to.options}
    topic = to.topics[0]

    def produce(rows: Iterable[Row]) -> None:
        from confluent_kafka import Producer

        producer = Producer(config)
        for row in rows:
            try:
                producer.produce(topic, row.value, row.key)
            except BufferError:
                producer.flush(FLUSH_S)
                producer.produce(topic, row.value, row.key)
            producer.poll(0)
        if producer.flush(FLUSH_S):
            raise RuntimeError(f"rows are still in the queue after {FLUSH_S} s")

    frame.foreachPartition(produce)


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
    "jvm": _through("kafka"),
    "nothing": _into("nothing"),
    "noop": _into("noop"),
    "confluent": _confluent,
    "kafka-python": _kafka_python,
}

STREAM_FORMATS = {"pykafka": "pykafka", "jvm": "kafka", "nothing": "nothing"}

WRITES_NOTHING = frozenset({"nothing", "noop"})

WRITES_IN_JVM = frozenset({"jvm", "noop"})
