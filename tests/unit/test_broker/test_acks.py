"""When a Produce is answered, and when it is refused for its acks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.testing import TestBroker
from tests.contract.plain_client import PlainClient, batch

RECORDS = batch([b"x"])


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    """Two nodes; the first leads the topic."""
    with TestBroker(nodes=2) as broker:
        broker.create_topic("t")
        yield broker


def test_acks_all_waits_for_the_followers(broker: TestBroker, client: PlainClient) -> None:
    broker.hold_followers("t", 0)
    with PlainClient(broker.bootstrap_servers) as other:
        client.tell_produce("t", RECORDS, version=10)
        assert int(other.produce("t", RECORDS, acks=1).base_offset) == 1  # acks=1 overtakes it
    assert broker.topic("t").records() == []

    broker.release_followers("t", 0)

    answer = client.hear_produced(10)
    assert (answer.error_code.name, int(answer.base_offset)) == ("none", 0)
    assert len(broker.topic("t").records()) == 2


def test_a_connection_is_muted_while_its_request_waits(broker: TestBroker, client: PlainClient) -> None:
    broker.hold_followers("t", 0)
    client.tell_produce("t", RECORDS, version=10)
    client.tell("Metadata", 9, topics=[])
    broker.requests.wait_for("Produce")
    assert broker.requests.of("Metadata") == []

    broker.release_followers("t", 0)

    assert client.hear_produced(10).error_code.name == "none"
    assert client.hear("Metadata", 9).brokers


def test_an_isr_lost_while_waiting_is_told_after_the_append_before_kafka_3_7() -> None:
    with TestBroker(nodes=3, like="3.5", config={"min.insync.replicas": 2}) as broker:
        broker.create_topic("t")
        broker.hold_followers("t", 0)
        with PlainClient(broker.bootstrap_servers) as client:
            client.tell_produce("t", RECORDS)
            broker.requests.wait_for("Produce")
            broker.set_isr("t", 0, [1])
            broker.release_followers("t", 0)
            assert client.hear_produced().error_code.name == "not_enough_replicas_after_append"


def test_a_leader_lost_while_waiting_is_told_with_the_new_one() -> None:
    with TestBroker(nodes=2) as broker:
        broker.create_topic("t")
        broker.hold_followers("t", 0)
        with PlainClient(broker.bootstrap_servers) as client:
            client.tell_produce("t", RECORDS, version=10)
            broker.requests.wait_for("Produce")
            broker.move_leader("t", 0, to=2)
            answer = client.hear("Produce", 10)
        partition = answer.responses[0].partition_responses[0]
        assert partition.error_code.name == "not_leader_or_follower"
        assert (int(partition.current_leader.leader_id), int(partition.current_leader.leader_epoch)) == (2, 1)
        (endpoint,) = answer.node_endpoints
        assert f"{endpoint.host}:{endpoint.port}" == broker.bootstrap_servers.split(",")[1]


def test_a_topic_deleted_while_waiting_is_told(broker: TestBroker, client: PlainClient) -> None:
    broker.hold_followers("t", 0)
    client.tell_produce("t", RECORDS, version=10)
    broker.requests.wait_for("Produce")
    broker.delete_topic("t")
    assert client.hear_produced(10).error_code.name == "unknown_topic_or_partition"


def test_a_fetch_waits_for_records(broker: TestBroker, client: PlainClient) -> None:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    client.tell("Fetch", 4, max_wait=10_000, min_bytes=1, topics=[{"topic": "t", "partitions": [partition]}])
    with PlainClient(broker.bootstrap_servers) as other:
        other.produce("t", RECORDS)

    (data,) = client.hear("Fetch", 4).responses[0].partitions

    assert len(data.records) == len(RECORDS)
