"""What replicas decide: how far consumers read, and when a Produce is answered."""

import pytest

from spark_kafka_sink.testing import TestBroker
from tests.contract.brokers import broker_with
from tests.contract.plain_client import PlainClient, batch

RECORDS = batch([b"x"])
broker = broker_with("t", nodes=3)


def produce(client, acks=-1, timeout=10):
    return str(client.produce("t", RECORDS, acks=acks, timeout=timeout).error_code.name)


def readable(broker):
    return len(broker.topic("t").records())


def test_it_does_not_go_back_when_a_follower_that_lags_joins_the_isr(broker, client):
    broker.hold_followers("t", 0)
    broker.set_isr("t", 0, [1])
    produce(client)
    broker.set_isr("t", 0, [1, 2])

    assert readable(broker) == 1
    assert produce(client) == "request_timed_out"
    assert readable(broker) == 1


def test_a_killed_follower_holds_it_no_longer(broker, client):
    broker.hold_followers("t", 0, nodes=[2])
    assert produce(client, acks=1) == "none"
    broker.kill(2)
    assert readable(broker) == 1


def test_a_held_follower_that_is_elected_has_every_record(broker, client):
    broker.hold_followers("t", 0)
    assert produce(client, acks=1) == "none"
    broker.move_leader("t", 0, to=2)
    assert readable(broker) == 0, "the third node still lags"
    broker.set_isr("t", 0, [1, 2])
    assert readable(broker) == 1, "the deposed leader has what it appended"
    with PlainClient(broker.bootstrap_servers.split(",")[1]) as second:
        assert produce(second) == "request_timed_out", "the deposed leader is held, too"


@pytest.mark.parametrize(("like", "seen"), [("3.5", 1), ("3.9", 0), ("4.1", 0)])
def test_under_the_minimum_in_sync_it_stays_from_kafka_3_7_on(like, seen):
    with TestBroker(nodes=3, like=like) as broker, PlainClient(broker.bootstrap_servers) as client:
        broker.create_topic("t", configs={"min.insync.replicas": 2})
        broker.set_isr("t", 0, [1])
        assert produce(client, acks=1) == "none"
        assert readable(broker) == seen
        broker.set_isr("t", 0, [1, 2])
        assert readable(broker) == 1


@pytest.mark.parametrize(
    ("like", "answer"), [("4.1", "request_timed_out"), ("3.5", "not_enough_replicas_after_append")]
)
def test_an_isr_lost_while_waiting_times_out_and_is_told_after_the_append_before_kafka_3_7(like, answer):
    with (
        TestBroker(nodes=3, like=like, config={"min.insync.replicas": 2}) as broker,
        PlainClient(broker.bootstrap_servers) as client,
    ):
        broker.create_topic("t")
        broker.hold_followers("t", 0)
        client.tell_produce("t", RECORDS, timeout=200)
        broker.requests.wait_for("Produce")
        broker.set_isr("t", 0, [1])
        broker.release_followers("t", 0)
        assert client.hear_produced().error_code.name == answer
        assert like == "3.5" or readable(broker) == 0


def test_a_partition_without_followers_has_none_to_hold():
    with TestBroker() as broker:
        broker.create_topic("t")
        with pytest.raises(ValueError, match=r"t-0 has no such follower: its leader is 1, replicas \[1\]"):
            broker.hold_followers("t", 0)


def test_a_connection_is_muted_while_its_request_waits(broker, client):
    broker.hold_followers("t", 0)
    client.tell_produce("t", RECORDS, version=10)
    client.tell("Metadata", 9, topics=[])
    broker.requests.wait_for("Produce")
    assert broker.requests.of("Metadata") == []

    broker.release_followers("t", 0)

    assert client.hear_produced(10).error_code.name == "none"
    assert client.hear("Metadata", 9).brokers


def test_a_leader_lost_while_waiting_is_told_with_the_new_one():
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


def test_a_topic_deleted_while_waiting_is_told(broker, client):
    broker.hold_followers("t", 0)
    client.tell_produce("t", RECORDS, version=10)
    broker.requests.wait_for("Produce")
    broker.delete_topic("t")
    assert client.hear_produced(10).error_code.name == "unknown_topic_or_partition"
