"""Readers know the rows that the drivers have written, and give another name to a row with another value."""

from __future__ import annotations

import pyarrow as pa
import pytest
from confluent_kafka import IsolationLevel, Producer
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from spark_kafka_sink.spark.sink_write import SinkWrite
from spark_kafka_sink.testing import TestBroker
from tests.histories.checker import check
from tests.histories.events import read_history
from tests.histories.findings import Kind
from tests.histories.readers import Source, fresh_reader
from tests.histories.recorder import Recorder
from tests.histories.workloads import LETTERS, NIGHTLY, ROWS
from tests.schema_registry_server import SchemaRegistryServer
from tests.waiting import DEADLINE_S

TOPICS = (*NIGHTLY.topics, *LETTERS.topics)
HEAD = b"\0\0\0\0\1"
"""Of a value in Confluent's wire format."""


@pytest.fixture
def broker():
    with TestBroker() as broker:
        for topic in TOPICS:
            broker.create_topic(topic)
        yield broker


@pytest.fixture
def read(broker, tmp_path):
    """The rows of each topic as a reader records them, which has read all of them."""

    def read():
        source = Source(broker.bootstrap_servers, dict.fromkeys(TOPICS, 1), dict.fromkeys(TOPICS, ""))
        reader = fresh_reader(source, tmp_path)
        reader.start()
        try:
            reader.await_passed(source.ends(IsolationLevel.READ_UNCOMMITTED), DEADLINE_S)
        finally:
            reader.close()
        seen = [event for event in read_history(tmp_path.glob("*.jsonl")) if event.kind == "seen"]
        return {
            topic: [row for event in seen if event["topic"] == topic for _, row in event["rows"]] for topic in TOPICS
        }

    return read


@pytest.fixture
def produce(broker):
    """Writes keys with their values, without the sink."""

    def produce(topic, records):
        writer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for key, value in records:
            writer.produce(topic, value, key, partition=0)
        assert writer.flush(DEADLINE_S) == 0

    return produce


def test_readers_know_the_avro_and_the_dead_letters_of_the_sink(broker, read):
    """The fields of the rate source are nullable. Its numbers grow, and their varints with them."""
    numbers = [0, 7, 12, 63, 64, 67, 8191, 8192, 8197, 1 << 40]
    keys = [f"letters/{number // ROWS}/{number}" for number in numbers]
    (write,) = LETTERS.writes
    dead = [number % ROWS in write.dead_letters for number in numbers]
    value = StructType([StructField("number", LongType())])
    columns = [StructField("key", StringType()), StructField("value", value, nullable=False)]
    schema = StructType([*columns, StructField("partition", IntegerType())])
    partitions = pa.array([99 if each else 0 for each in dead], pa.int32())
    rows = pa.record_batch({"key": keys, "value": [{"number": each} for each in numbers], "partition": partitions})
    with SchemaRegistryServer() as registry:
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "topic": "letters",
            "deadlettertopic": write.dead_letter_topic,
            "valueformat": "avro",
            "schema.registry.url": registry.url,
        }
        sink = SinkWrite.of(schema, options)
        sink.begin()
        sink.write(iter([rows]))
    seen = read()
    assert seen["letters"] == [key for key, is_dead in zip(keys, dead, strict=True) if not is_dead]
    assert seen["letters-dead"] == [key for key, is_dead in zip(keys, dead, strict=True) if is_dead]
    assert len(seen["letters-dead"]) == 3


def test_a_row_with_another_value_has_another_name(read, produce):
    right, other = "nightly/1/12", [b"13", b"1", b"", None]
    produce("nightly", [(right, b"12"), *((right, value) for value in other)])
    produce("nightly", [(None, b"12"), (b"\xff/12", b"12")])
    assert read()["nightly"] == [
        right,
        *(f"{right} with value {value!r}" for value in other),
        " with value b'12'",
        r"\xff/12",  # which is no row of any write
    ]


def test_avro_with_another_value_has_another_name(read, produce):
    row, right = "letters/0/12", HEAD + b"\0\x18"
    other = [b"12", b"", None, HEAD, HEAD + b"\0", HEAD + b"\0\x1a", HEAD + b"\2", right + b"\0", b"\1" + right[1:]]
    produce("letters", [(row, right), *((row, value) for value in other), ("letters/0/", right)])
    seventeen = HEAD + b"\0\x22"
    produce("letters-dead", [("letters/0/17", seventeen), ("letters/0/7", seventeen)])
    seen = read()
    assert seen["letters"] == [
        row,
        *(f"{row} with value {value!r}" for value in other),
        f"letters/0/ with value {right!r}",
    ]
    assert seen["letters-dead"] == ["letters/0/17", f"letters/0/7 with value {seventeen!r}"]


def test_the_checker_finds_rows_whose_values_were_swapped(read, produce, tmp_path):
    """The rows are those of an at-least-once write, of which the history must tell less."""
    record = Recorder(tmp_path, "test")
    record("workload", name="nightly", exactly_once=False, repeats=True)
    record("handed", write="nightly/1", task=0, attempt="1-0", rows=["nightly/1/1", "nightly/1/2", "nightly/1/3"])
    produce("nightly", [("nightly/1/1", b"2"), ("nightly/1/2", b"1"), ("nightly/1/3", b"3")])
    read()
    found = check(read_history(tmp_path.glob("*.jsonl")))
    assert [(finding.kind, finding.about) for finding in found] == [
        (Kind.FOREIGN_ROW, "nightly/1/1 with value b'2'"),
        (Kind.FOREIGN_ROW, "nightly/1/2 with value b'1'"),
    ]
