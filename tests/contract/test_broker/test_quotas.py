"""Producer quotas: how long a client over its byte rate is throttled, and what its connection does in that time.

And the share of their time that request handlers wait for requests.
"""

import pytest

from spark_kafka_sink.testing import KEPT, TestBroker
from tests.contract.plain_client import PlainClient, batch
from tests.support.waiting import eventually, lasts

RECORDS = batch([b"x" * 50] * 60)


def produce_ms(client, topic="t", acks=-1):
    """``throttle_time_ms`` of one Produce request of some 3,530 bytes."""
    client.tell_produce(topic, RECORDS, acks=acks)
    answer = client.hear("Produce", 9)
    return float(answer.throttle_time.total_seconds() * 1000)


def test_each_node_counts_for_itself():
    with TestBroker(nodes=2) as broker:
        broker.create_topic("t", replication=1)
        broker.create_topic("u", replication=1)
        broker.move_leader("u", 0, to=2)
        broker.set_quotas("plain", {"producer_byte_rate": 370.0})
        for address, topic in zip(broker.bootstrap_servers.split(","), "tu", strict=True):
            with PlainClient(address) as client:
                assert produce_ms(client, topic, acks=1) == 0


def test_with_acks_0_the_connection_is_read_later_too(broker, client):
    broker.set_quotas("plain", {"producer_byte_rate": 335.0})
    with lasts(0.1):
        client.tell_produce("t", RECORDS, acks=0)
        client.ask("Metadata", 9, topics=[])

    assert broker.topic("t").records()


def test_a_quota_that_is_removed_throttles_no_longer(broker, client):
    broker.set_quotas("plain", {"producer_byte_rate": 335.0})
    assert produce_ms(client) > 0
    broker.set_quotas("plain", {})

    assert produce_ms(client) == 0


@pytest.mark.parametrize(
    ("quotas", "says"), [({"consumer_byte_rate": 1.0}, "consumer_byte_rate"), ({"producer_byte_rate": 0.0}, "above 0")]
)
def test_what_is_no_quota_of_the_broker_is_refused(broker, quotas, says):
    with pytest.raises(ValueError, match=says):
        broker.set_quotas("plain", quotas)


def idle(broker):
    return broker.metrics()["KafkaRequestHandlerPool"]["RequestHandlerAvgIdlePercent"]


def test_a_broker_without_requests_is_idle_and_a_slow_handler_is_not():
    with TestBroker(config={"num.io.threads": 1}) as broker, PlainClient(broker.bootstrap_servers) as client:
        eventually(lambda: idle(broker) > 0.9)
        broker.faults.delay("Metadata", 100, times=KEPT)
        eventually(lambda: bool(client.ask("Metadata", 9, topics=[]).brokers) and idle(broker) < 0.5)
