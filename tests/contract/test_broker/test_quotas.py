"""Producer quotas: how long a client over its byte rate is throttled, and what its connection does in that time."""

from __future__ import annotations

import pytest

from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.state.quotas import SampledRate
from tests.contract.plain_client import PlainClient, batch
from tests.support.waiting import lasts

RECORDS = batch([b"x" * 50] * 60)


def produce_ms(client: PlainClient, topic: str = "t", acks: int = -1) -> float:
    """``throttle_time_ms`` of one Produce request of some 3,530 bytes."""
    client.tell_produce(topic, RECORDS, acks=acks)
    answer = client.hear("Produce", 9)
    return float(answer.throttle_time.total_seconds() * 1000)


@pytest.mark.parametrize(
    ("written", "throttle_ms"),
    [
        ([(0, 10_000)], 0),  # a burst of ten seconds' worth is free
        ([(0, 11_000)], 1_000),
        ([(0, 10_000), (0, 500)], 500),
        ([(0, 10_000), (999, 1_000)], 1),
        ([(0, 10_000), (10_500, 1_000)], 500),
        ([(0, 10_000), (11_000, 10_000)], 0),  # the first sample is forgotten
    ],
)
def test_the_time_until_the_rate_is_down_to_the_quota(written: list[tuple[int, int]], throttle_ms: int) -> None:
    rate = SampledRate()
    for now_ms, size in written:
        rate.record(size, now_ms)

    assert rate.over(1_000.0, written[-1][0]) == throttle_ms


def test_a_client_far_over_its_byte_rate_is_answered_at_once_and_not_read(
    broker: TestBroker, client: PlainClient
) -> None:
    broker.set_quotas("plain", {"producer_byte_rate": 0.1})

    assert produce_ms(client) > 3_600_000
    client.tell("ApiVersions", 0)
    assert not client.hears_within(0.1)
    assert broker.requests.of("ApiVersions") == []


def test_within_its_byte_rate_and_under_another_name_a_client_is_not_throttled(
    broker: TestBroker, client: PlainClient
) -> None:
    broker.set_quotas("plain", {"producer_byte_rate": 1_000_000.0})
    broker.set_quotas("another", {"producer_byte_rate": 1.0})

    assert [produce_ms(client) for _ in range(5)] == [0] * 5


def test_each_node_counts_for_itself() -> None:
    with TestBroker(nodes=2) as broker:
        broker.create_topic("t", replication=1)
        broker.create_topic("u", replication=1)
        broker.move_leader("u", 0, to=2)
        broker.set_quotas("plain", {"producer_byte_rate": 370.0})
        for address, topic in zip(broker.bootstrap_servers.split(","), "tu", strict=True):
            with PlainClient(address) as client:
                assert produce_ms(client, topic, acks=1) == 0


def test_with_acks_0_the_connection_is_read_later_too(broker: TestBroker, client: PlainClient) -> None:
    broker.set_quotas("plain", {"producer_byte_rate": 335.0})
    with lasts(0.1):
        client.tell_produce("t", RECORDS, acks=0)
        client.ask("Metadata", 9, topics=[])

    assert broker.topic("t").records()


def test_a_quota_that_is_removed_throttles_no_longer(broker: TestBroker, client: PlainClient) -> None:
    broker.set_quotas("plain", {"producer_byte_rate": 335.0})
    assert produce_ms(client) > 0
    broker.set_quotas("plain", {})

    assert produce_ms(client) == 0


@pytest.mark.parametrize(
    ("quotas", "says"), [({"consumer_byte_rate": 1.0}, "consumer_byte_rate"), ({"producer_byte_rate": 0.0}, "above 0")]
)
def test_what_is_no_quota_of_the_broker_is_refused(broker: TestBroker, quotas: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        broker.set_quotas("plain", quotas)
