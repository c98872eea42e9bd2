"""Over a client quota TestBroker answers as a real Kafka: how long to wait, a Fetch without topics, the rest in full.

The scenarios write, read or ask until they are throttled. On Kafka a quota of this client id does it, on TestBroker the
script, and for producers the same quota.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.testing import LocalKafka, TestBroker
from spark_kafka_sink.testing.broker import KEPT
from tests.contract.plain_client import PlainClient, batch
from tests.contract.scenario import name, new_topic
from tests.faults.exactly_once.reader import read_committed
from tests.support.kafka_versions import on_kafka
from tests.support.waiting import DEADLINE_S, lasts, until

RECORDS = batch([b"x" * 50] * 60)
"""About 3,500 bytes: three of these in ten seconds are over a quota of 1,000 bytes a second."""

Scenario: TypeAlias = Callable[[PlainClient], tuple[Callable[[], Any], Callable[[Any], object], object]]
"""What to ask, what of the answer to look at, and what a throttled one has there."""


def fetch(client: PlainClient) -> tuple[Callable[[], Any], Callable[[Any], object], object]:
    topic = new_topic(client)
    client.produce(topic, RECORDS)
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    asked = [{"topic": topic, "partitions": [{**partition, "last_fetched_epoch": -1, "log_start_offset": -1}]}]
    return (
        lambda: client.ask("Fetch", 12, max_wait=0, min_bytes=0, max_bytes=1 << 20, isolation_level=1, topics=asked),
        lambda answer: (answer.error_code.name, answer.session_id, answer.responses),
        ("none", 0, ()),
    )


def produce(client: PlainClient) -> tuple[Callable[[], Any], Callable[[Any], object], object]:
    topic = new_topic(client)
    data = [{"name": topic, "partition_data": [{"index": 0, "records": RECORDS}]}]
    return (
        lambda: client.ask("Produce", 9, acks=-1, timeout=10_000, topic_data=data),
        lambda answer: [each.error_code.name for topic in answer.responses for each in topic.partition_responses],
        ["none"],
    )


def metadata(client: PlainClient) -> tuple[Callable[[], Any], Callable[[Any], object], object]:
    topic = new_topic(client)
    return (
        lambda: client.ask("Metadata", 9, topics=[{"name": topic}]),
        lambda answer: [(each.name, each.error_code.name, len(each.partitions)) for each in answer.topics],
        [(topic, "none", 1)],
    )


def init_producer_id(client: PlainClient) -> tuple[Callable[[], Any], Callable[[Any], object], object]:
    client.init_producer_id()  # once the broker has a block of ids, every answer has one
    return (
        lambda: client.ask("InitProducerId", 4, transactional_id=None, transaction_timeout=60_000),
        lambda answer: (answer.error_code.name, answer.producer_id >= 0),
        ("none", True),
    )


QUOTAS = {
    "Fetch": (fetch, {"consumer_byte_rate": 1000.0}),
    "Produce": (produce, {"producer_byte_rate": 1000.0}),
    "Metadata": (metadata, {"request_percentage": 0.01}),
    "InitProducerId": (init_producer_id, {"request_percentage": 0.01}),
}


@pytest.mark.parametrize("api", QUOTAS)
def test_test_broker_throttles_as_written(api: str, kafka_test_broker: TestBroker) -> None:
    scenario, _ = QUOTAS[api]
    with PlainClient(kafka_test_broker.bootstrap_servers) as client:
        play(scenario, client, lambda: kafka_test_broker.faults.throttle(api, 300, times=KEPT))


def test_test_broker_throttles_a_producer_by_its_byte_rate(kafka_test_broker: TestBroker) -> None:
    client_id = name("throttled")
    with PlainClient(kafka_test_broker.bootstrap_servers, client_id) as client:
        play(produce, client, lambda: kafka_test_broker.set_quotas(client_id, QUOTAS["Produce"][1]))


@pytest.mark.jvm
@on_kafka("4.4.0", "3.9.1")
@pytest.mark.parametrize("api", QUOTAS)
def test_kafka_throttles_as_written(api: str, local_kafka: LocalKafka) -> None:
    scenario, quotas = QUOTAS[api]
    client_id = name("throttled")
    with PlainClient(local_kafka.bootstrap_servers, client_id) as client:
        play(scenario, client, lambda: local_kafka.set_quotas(client_id, quotas))


def play(scenario: Scenario, client: PlainClient, limit: Callable[[], object]) -> None:
    ask, seen, expected = scenario(client)
    limit()

    def with_the_next() -> Any:
        """The answer; the next request is read when its throttle time is over."""
        answer: Any = None
        with lasts(lambda: 0.9 * answer.throttle_time.total_seconds()):
            answer = ask()
            client.ask("ApiVersions", 0)
        return answer

    assert seen(until(with_the_next, lambda answer: answer.throttle_time, "the quota does not throttle")) == expected


def test_a_quota_of_a_generated_client_id_throttles_that_producer_only(kafka_test_broker: TestBroker) -> None:
    throttle_only_the_producer_of_the_quota(kafka_test_broker)


@pytest.mark.jvm
def test_kafkas_quota_of_a_generated_client_id_throttles_that_producer_only(local_kafka: LocalKafka) -> None:
    throttle_only_the_producer_of_the_quota(local_kafka)


def throttle_only_the_producer_of_the_quota(broker: LocalKafka | TestBroker) -> None:
    topic, limited, free = name("topic"), name("limited"), name("free")
    broker.create_topic(topic)
    broker.set_quotas(f"producer-{limited}", {"producer_byte_rate": 10_000.0})
    throttled: dict[str, float] = {}
    for transactional_id in (limited, free):
        config = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id}
        with KafkaProducer(config) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for number in range(130):
                producer.send(ProducerRecord(topic, number.to_bytes(1000, "big")))
            producer.flush()
            throttled[transactional_id] = producer.metrics()["producer-metrics"]["produce-throttle-time-max"]
            producer.commit_transaction()
    assert throttled[limited] > 0
    assert throttled[free] == 0


def test_a_producer_over_its_byte_rate_delivers_everything_once(kafka_test_broker: TestBroker) -> None:
    deliver_everything_once(kafka_test_broker)


@pytest.mark.jvm
@on_kafka("4.4.0", "3.9.1")
def test_a_producer_over_its_byte_rate_delivers_everything_once_to_kafka(local_kafka: LocalKafka) -> None:
    deliver_everything_once(local_kafka)


def deliver_everything_once(broker: LocalKafka | TestBroker) -> None:
    """A burst of ten seconds is free; from then on about 300 KB are over it, which takes three seconds."""
    topic, client_id = name("topic"), name("fast")
    broker.create_topic(topic)
    broker.set_quotas(client_id, {"producer_byte_rate": 100_000.0})
    config = {"bootstrap.servers": broker.bootstrap_servers, "client.id": client_id, "request.timeout.ms": 10_000}
    with KafkaProducer(config) as producer:
        futures = [producer.send(ProducerRecord(topic, number.to_bytes(1000, "big"))) for number in range(1_300)]
        offsets = [future.result(DEADLINE_S).offset for future in futures]
        metrics = producer.metrics()["producer-metrics"]
    assert offsets == list(range(1_300))
    assert metrics["produce-throttle-time-max"] > 0
    assert metrics["record-retry-total"] == metrics["record-error-total"] == 0


@on_kafka("4.4.0", "3.9.1")
def test_a_transaction_over_the_request_quota_is_committed(local_kafka: LocalKafka) -> None:
    """Each response asks for a pause of up to a second: Metadata, FindCoordinator, InitProducerId, Produce, EndTxn."""
    topic, client_id = name("topic"), name("busy")
    local_kafka.create_topic(topic)
    local_kafka.set_quotas(client_id, {"request_percentage": 0.01})
    config = {
        "bootstrap.servers": local_kafka.bootstrap_servers,
        "client.id": client_id,
        "transactional.id": name("id"),
        "max.block.ms": 60_000,
    }
    with lasts(1), KafkaProducer(config) as producer:
        producer.init_transactions()
        for value in (b"1", b"2"):
            producer.begin_transaction()
            producer.send(ProducerRecord(topic, value))
            producer.commit_transaction()
    assert read_committed(local_kafka.bootstrap_servers, topic) == {0: [b"1", b"2"]}
