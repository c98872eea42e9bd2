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
from tests.foreign.brokers import MOCK, Foreign, create_topic, kfake, mock_cluster
from tests.spark.writes import fails, one_off, save, stream, streaming
from tests.support.waiting import DEADLINE_S

pytestmark = pytest.mark.slow

RECORDS = 20_000
KEYS = 97
REFUSED = {
    "kafka-2.1": "supports InitProducerId in versions 0 to 1",
    "event-hubs": "does not support AddPartitionsToTxn",
    MOCK: "needs the API DescribeConfigs",
}
"""What these brokers lack for exactly-once."""
FAULTS = ["-refuse", "37", "-cut", "20", "-move", "500ms"]

_numbers = itertools.count(1)


@pytest.fixture(params=["kafka-2.1", "kafka-2.5", "kafka-3.3", "redpanda", "event-hubs", MOCK])
def cluster(request: pytest.FixtureRequest) -> Iterator[Foreign]:
    with mock_cluster() if request.param == MOCK else kfake(request.param, FAULTS) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Foreign) -> str:
    topic = f"topic-{next(_numbers)}"
    create_topic(cluster, topic)
    return topic


def rows(spark: SparkSession, first: int, end: int) -> DataFrame:
    return spark.range(first, end, 1, 2).selectExpr(f"cast(id % {KEYS} as string) key", "cast(id as string) value")


def found(cluster: Foreign, topic: str) -> list[int]:
    """The committed numbers of all partitions, sorted. Ends the faults."""
    cluster.calm()
    return sorted(int(value) for values in read_committed(cluster.servers, topic).values() for value in values)


def test_send_writes_each_record_once_and_in_its_order(cluster: Foreign, topic: str) -> None:
    options = {"bootstrap.servers": cluster.servers, "batch.size": "1024", "retry.backoff.ms": "10"}
    with KafkaProducer({**options, "compression.type": "lz4"}) as producer:
        futures = [
            producer.send(ProducerRecord(topic, str(number).encode(), key=str(number % KEYS).encode()))
            for number in range(RECORDS)
        ]
        for future in futures:
            future.result(DEADLINE_S)
    cluster.calm()
    by_partition = read_committed(cluster.servers, topic)
    of_keys: dict[int, list[int]] = {key: [] for key in range(KEYS)}
    for values in by_partition.values():
        for value in values:
            of_keys[int(value) % KEYS].append(int(value))
    assert of_keys == {key: list(range(key, RECORDS, KEYS)) for key in range(KEYS)}
    assert len([values for values in by_partition.values() if values]) > 1


def test_a_batch_job_writes_each_row_once(spark: SparkSession, cluster: Foreign, topic: str) -> None:
    save(rows(spark, 0, 2_000), {"kafka.bootstrap.servers": cluster.servers, "topic": topic})
    assert found(cluster, topic) == list(range(2_000))


def test_a_query_writes_each_row_once_over_a_restart(
    spark: SparkSession, cluster: Foreign, topic: str, tmp_path: Path
) -> None:
    options = {"kafka.bootstrap.servers": cluster.servers, "topic": topic}
    for batch in range(2):
        frame = streaming(rows(spark, batch * 500, batch * 500 + 500), tmp_path / "in")
        assert stream(frame, options, tmp_path / "checkpoint") == [batch]
    assert found(cluster, topic) == list(range(1_000))


def test_exactly_once_or_its_refusal(spark: SparkSession, cluster: Foreign, topic: str, tmp_path: Path) -> None:
    options = {"kafka.bootstrap.servers": cluster.servers, "topic": topic, "deliveryGuarantee": "exactly-once"}
    if cluster.name in REFUSED:
        text = fails(save, rows(spark, 0, 10), one_off(options))
        assert REFUSED[cluster.name] in text
        assert found(cluster, topic) == []
        return
    save(rows(spark, 0, 1_000), one_off(options))
    for batch in range(2, 4):
        frame = streaming(rows(spark, batch * 500, batch * 500 + 500), tmp_path / "in")
        assert stream(frame, options, tmp_path / "checkpoint") == [batch - 2]
    assert found(cluster, topic) == list(range(2_000))
