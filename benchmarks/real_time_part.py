"""How long a row takes through a query from topic to topic, with the trigger of real-time mode and without it."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.model import Part, Run, Side
from benchmarks.rounds import rounds_of
from benchmarks.topics import new_topics

if TYPE_CHECKING:
    from pyspark.sql import Row
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from benchmarks.harness import Harness

PERIOD_S = 0.1
FIRST_ROWS = 50
"""Not measured: Spark and its workers start."""
DEADLINE_S = 180.0
REAL_TIME = "1 minute"
"""How long a batch of real-time mode is."""


class SendEach:
    """The object for ``foreach`` of docs/recipes.md."""

    def __init__(self, servers: str, topic: str) -> None:
        self._servers = servers
        self._topic = topic

    def open(self, partition: int, epoch: int) -> bool:
        from spark_kafka_sink import KafkaProducer

        self._producer = KafkaProducer({"bootstrap.servers": self._servers, "linger.ms": 0})
        return True

    def process(self, row: Row) -> None:
        from spark_kafka_sink import ProducerRecord

        self._producer.send(ProducerRecord(self._topic, value=bytes(row.value)))

    def close(self, error: Exception | None) -> None:
        self._producer.close()


def run_real_time(part: Part, rounds: int, harness: Harness) -> Iterator[Run]:
    for number, side in rounds_of(part, rounds):
        with new_topics(harness.kafka, 2, 1) as (source, target), _query(side, source, target, harness):
            took_ms = sorted(_latencies_ms(harness.kafka.bootstrap_servers, source, target, part.rows))
        middle, last = (took_ms[int(len(took_ms) * share)] for share in (0.5, 0.99))
        yield Run(side.name, number, part.rows, {"p50_ms": middle, "p99_ms": last})


@contextlib.contextmanager
def _query(side: Side, source: str, target: str, harness: Harness) -> Iterator[StreamingQuery]:
    servers = harness.kafka.bootstrap_servers
    rows = harness.spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    rows = rows.option("startingOffsets", "earliest")
    writer = rows.option("subscribe", source).load().select("value").writeStream
    with tempfile.TemporaryDirectory() as checkpoint:
        query = _started(side, writer.option("checkpointLocation", checkpoint), servers, target)
        try:
            yield query
        finally:
            harness.spark.sparkContext.setLogLevel("OFF")  # of the batch that this interrupts
            query.stop()
            harness.spark.sparkContext.setLogLevel("ERROR")


def _started(side: Side, writer: DataStreamWriter, servers: str, target: str) -> StreamingQuery:
    if side.writer.endswith("real-time"):
        writer = writer.outputMode("update").trigger(realTime=REAL_TIME)  # type: ignore[call-overload]
    else:
        writer = writer.trigger(processingTime="0 seconds")
    if side.writer.startswith("foreach"):
        return writer.foreach(SendEach(servers, target)).start()
    options = {f"kafka.{name}": value for name, value in side.options.items()}
    writer = writer.format("pykafka" if side.writer == "pykafka" else "kafka").options(**options)
    return writer.option("kafka.bootstrap.servers", servers).option("topic", target).start()


def _latencies_ms(servers: str, source: str, target: str, rows: int) -> list[float]:
    """Of ``rows`` rows, whose values are when they were sent."""
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": servers, "group.id": target, "auto.offset.reset": "earliest"})
    consumer.subscribe([target])
    found: list[float] = []
    sent, wanted = 0, FIRST_ROWS + rows
    next_at, deadline = time.monotonic(), time.monotonic() + DEADLINE_S
    while len(found) < wanted:
        now = time.monotonic()
        if now > deadline:
            raise TimeoutError(f"{len(found)} of {sent} rows came through in {DEADLINE_S:.0f} s")
        if now >= next_at and sent < wanted:
            producer.produce(source, repr(time.monotonic()))
            producer.flush(DEADLINE_S)
            sent, next_at = sent + 1, now + PERIOD_S
        message = consumer.poll(0.002)
        value = None if message is None or message.error() is not None else message.value()
        if value is not None and not value.startswith(b"\0"):  # new_topics writes one to each partition
            found.append((time.monotonic() - float(value)) * 1000)
    consumer.close()
    return found[FIRST_ROWS:]
