"""Brokers that speak older versions, or other vendors' ones: each row once and in order, read back by librdkafka.

``make test-foreign`` runs them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_sink import KafkaProducer, ProducerRecord
from tests.faults.exactly_once.reader import read_committed
from tests.foreign.brokers import MOCK, create_topic, foreign
from tests.spark.writes import fails, never_repeated, save, stream, streaming
from tests.waiting import DEADLINE_S

pytestmark = pytest.mark.slow

RECORDS = 20_000
KEYS = 97
EXACTLY_ONCE = ["kafka-2.5", "kafka-3.3", "redpanda"]
"""Of these brokers the protocol's APIs are complete; the others lack transactions, or what plans them."""
FAULTS = ["-refuse", "37", "-cut", "20", "-move", "500ms"]

_numbers = itertools.count(1)


@pytest.fixture(params=["kafka-2.1", "kafka-2.5", "kafka-3.3", "redpanda", "event-hubs", MOCK])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def servers(name: str) -> Iterator[str]:
    with foreign(name, FAULTS) as servers:
        yield servers


@pytest.fixture
def topic(name: str, servers: str) -> str:
    topic = f"topic-{next(_numbers)}"
    create_topic(name, servers, topic)
    return topic


def rows(spark: SparkSession, first: int, end: int) -> DataFrame:
    return spark.range(first, end, 1, 2).selectExpr(f"cast(id % {KEYS} as string) key", "cast(id as string) value")


def found(servers: str, topic: str) -> list[int]:
    """The committed numbers of all partitions, sorted."""
    return sorted(int(value) for values in read_committed(servers, topic).values() for value in values)


def test_send_writes_each_record_once_and_in_its_order(servers: str, topic: str) -> None:
    options = {"bootstrap.servers": servers, "batch.size": "1024", "retry.backoff.ms": "10", "compression.type": "lz4"}
    with KafkaProducer(options) as producer:
        futures = [
            producer.send(ProducerRecord(topic, str(number).encode(), key=str(number % KEYS).encode()))
            for number in range(RECORDS)
        ]
        for future in futures:
            future.result(DEADLINE_S)
    by_partition = read_committed(servers, topic)
    of_keys: dict[int, list[int]] = {key: [] for key in range(KEYS)}
    for values in by_partition.values():
        for value in values:
            of_keys[int(value) % KEYS].append(int(value))
    assert of_keys == {key: list(range(key, RECORDS, KEYS)) for key in range(KEYS)}
    assert len([values for values in by_partition.values() if values]) > 1


def test_a_batch_job_writes_each_row_once(spark: SparkSession, servers: str, topic: str) -> None:
    save(rows(spark, 0, 2_000), {"kafka.bootstrap.servers": servers, "topic": topic})
    assert found(servers, topic) == list(range(2_000))


def test_a_query_writes_each_row_once_over_a_restart(
    spark: SparkSession, servers: str, topic: str, tmp_path: Path
) -> None:
    for batch in range(2):
        frame = streaming(rows(spark, batch * 500, batch * 500 + 500), tmp_path / "in")
        assert stream(frame, {"kafka.bootstrap.servers": servers, "topic": topic}, tmp_path / "checkpoint") == [batch]
        assert found(servers, topic) == list(range(batch * 500 + 500))


def test_exactly_once_or_its_refusal(spark: SparkSession, name: str, servers: str, topic: str, tmp_path: Path) -> None:
    options = {"kafka.bootstrap.servers": servers, "topic": topic, "deliveryGuarantee": "exactly-once"}
    if name not in EXACTLY_ONCE:
        assert "exactly-once" in fails(save, rows(spark, 0, 10), never_repeated(options))
        assert found(servers, topic) == []
        return
    save(rows(spark, 0, 1_000), never_repeated(options))
    assert found(servers, topic) == list(range(1_000))
    for batch in range(2, 4):
        frame = streaming(rows(spark, batch * 500, batch * 500 + 500), tmp_path / "in")
        assert stream(frame, options, tmp_path / "checkpoint") == [batch - 2]
        assert found(servers, topic) == list(range(batch * 500 + 500))
