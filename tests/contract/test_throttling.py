"""Over a client quota TestBroker answers as a real Kafka: how long to wait, a Fetch without topics, the rest in full.

The scenarios write, read or ask until they are throttled.
"""

from typing import Any

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.testing import DEFAULT_VERSION, LocalKafka
from spark_kafka_sink.testing.broker import KEPT
from tests.contract.plain_client import PlainClient, batch
from tests.contract.scenario import name, new_topic
from tests.support.kafka_versions import TEST_BROKER, on_kafka
from tests.support.waiting import DEADLINE_S, lasts, until

RECORDS = batch([b"x" * 50] * 60)
"""About 3,500 bytes: three of these in ten seconds are over a quota of 1,000 bytes a second."""

# A scenario returns what to ask, what of the answer to look at, and what a throttled one has there.


def fetch(client):
    topic = new_topic(client)
    client.produce(topic, RECORDS)
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    asked = [{"topic": topic, "partitions": [{**partition, "last_fetched_epoch": -1, "log_start_offset": -1}]}]
    return (
        lambda: client.ask("Fetch", 12, max_wait=0, min_bytes=0, max_bytes=1 << 20, isolation_level=1, topics=asked),
        lambda answer: (answer.error_code.name, answer.session_id, answer.responses),
        ("none", 0, ()),
    )


def produce(client):
    topic = new_topic(client)
    data = [{"name": topic, "partition_data": [{"index": 0, "records": RECORDS}]}]
    return (
        lambda: client.ask("Produce", 9, acks=-1, timeout=10_000, topic_data=data),
        lambda answer: [each.error_code.name for topic in answer.responses for each in topic.partition_responses],
        ["none"],
    )


def metadata(client):
    topic = new_topic(client)
    return (
        lambda: client.ask("Metadata", 9, topics=[{"name": topic}]),
        lambda answer: [(each.name, each.error_code.name, len(each.partitions)) for each in answer.topics],
        [(topic, "none", 1)],
    )


def init_producer_id(client):
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


@on_kafka("4.4.0", "3.9.1", TEST_BROKER)
@pytest.mark.parametrize("api", QUOTAS)
def test_over_a_quota_an_answer_says_how_long_to_wait(api, cluster):
    """TestBroker has only the quotas of producers, so the script throttles what else is asked."""
    scenario, quotas = QUOTAS[api]
    client_id = name("throttled")

    def limit():
        if isinstance(cluster, LocalKafka) or api == "Produce":
            cluster.set_quotas(client_id, quotas)
        else:
            cluster.faults.throttle(api, 300, times=KEPT)

    with PlainClient(cluster.bootstrap_servers, client_id) as client:
        play(scenario, client, limit)


def play(scenario, client, limit):
    ask, seen, expected = scenario(client)
    limit()

    def with_the_next():
        """The answer; the next request is read when its throttle time is over."""
        answer: Any = None
        with lasts(lambda: 0.9 * answer.throttle_time.total_seconds()):
            answer = ask()
            client.ask("ApiVersions", 0)
        return answer

    assert seen(until(with_the_next, lambda answer: answer.throttle_time, "the quota does not throttle")) == expected


@on_kafka(DEFAULT_VERSION, TEST_BROKER)
def test_a_quota_of_a_generated_client_id_throttles_that_producer_only(cluster):
    topic, limited, free = name("topic"), name("limited"), name("free")
    cluster.create_topic(topic)
    cluster.set_quotas(f"producer-{limited}", {"producer_byte_rate": 10_000.0})
    throttled: dict[str, float] = {}
    for transactional_id in (limited, free):
        config = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": transactional_id}
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


@on_kafka("4.4.0", "3.9.1", TEST_BROKER)
def test_a_producer_over_its_byte_rate_delivers_everything_once(cluster):
    """A burst of ten seconds is free; from then on about 300 KB are over it, which takes three seconds."""
    topic, client_id = name("topic"), name("fast")
    cluster.create_topic(topic)
    cluster.set_quotas(client_id, {"producer_byte_rate": 100_000.0})
    config = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": client_id, "request.timeout.ms": 10_000}
    with KafkaProducer(config) as producer:
        futures = [producer.send(ProducerRecord(topic, number.to_bytes(1000, "big"))) for number in range(1_300)]
        offsets = [future.result(DEADLINE_S).offset for future in futures]
        metrics = producer.metrics()["producer-metrics"]
    assert offsets == list(range(1_300))
    assert metrics["produce-throttle-time-max"] > 0
    assert metrics["record-retry-total"] == metrics["record-error-total"] == 0
