"""The high watermark is what every replica in sync has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.testing import TestBroker
from tests.contract.plain_client import PlainClient, batch

RECORDS = batch([b"x"])


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker(nodes=3) as broker:
        broker.create_topic("t")
        yield broker


def produce(client: PlainClient, acks: int = -1, timeout: int = 10) -> str:
    return str(client.produce("t", RECORDS, acks=acks, timeout=timeout).error_code.name)


def readable(broker: TestBroker) -> int:
    return len(broker.topic("t").records())


def test_it_does_not_go_back_when_a_follower_that_lags_joins_the_isr(broker: TestBroker, client: PlainClient) -> None:
    broker.hold_followers("t", 0)
    broker.set_isr("t", 0, [1])
    produce(client)
    broker.set_isr("t", 0, [1, 2])

    assert readable(broker) == 1
    assert produce(client) == "request_timed_out"
    assert readable(broker) == 1


def test_a_killed_follower_holds_it_no_longer(broker: TestBroker, client: PlainClient) -> None:
    broker.hold_followers("t", 0, nodes=[2])
    assert produce(client, acks=1) == "none"
    broker.kill(2)
    assert readable(broker) == 1


def test_a_held_follower_that_is_elected_has_every_record(broker: TestBroker, client: PlainClient) -> None:
    broker.hold_followers("t", 0)
    assert produce(client, acks=1) == "none"
    broker.move_leader("t", 0, to=2)
    assert readable(broker) == 0, "the third node still lags"
    broker.set_isr("t", 0, [1, 2])
    assert readable(broker) == 1, "the deposed leader has what it appended"
    with PlainClient(broker.bootstrap_servers.split(",")[1]) as second:
        assert produce(second) == "request_timed_out", "the deposed leader is held, too"


@pytest.mark.parametrize(("like", "seen"), [("3.5", 1), ("3.9", 0), ("4.1", 0)])
def test_under_the_minimum_in_sync_it_stays_from_kafka_3_7_on(like: str, seen: int) -> None:
    with TestBroker(nodes=3, like=like) as broker, PlainClient(broker.bootstrap_servers) as client:
        broker.create_topic("t", configs={"min.insync.replicas": 2})
        broker.set_isr("t", 0, [1])
        assert produce(client, acks=1) == "none"
        assert readable(broker) == seen
        broker.set_isr("t", 0, [1, 2])
        assert readable(broker) == 1


def test_a_lower_minimum_lets_it_advance(broker: TestBroker, client: PlainClient) -> None:
    broker.set_topic_configs("t", {"min.insync.replicas": 2})
    broker.set_isr("t", 0, [1])
    produce(client, acks=1)
    assert readable(broker) == 0
    broker.set_topic_configs("t", {"min.insync.replicas": 1})
    assert readable(broker) == 1


def test_an_isr_lost_while_waiting_times_out(broker: TestBroker, client: PlainClient) -> None:
    broker.set_topic_configs("t", {"min.insync.replicas": 2})
    broker.hold_followers("t", 0)
    with PlainClient(broker.bootstrap_servers) as other:
        other.tell_produce("t", RECORDS, timeout=200)
        broker.requests.wait_for("Produce")
        broker.set_isr("t", 0, [1])
        broker.release_followers("t", 0)
        answer = other.hear_produced()
    assert answer.error_code.name == "request_timed_out"
    assert readable(broker) == 0


def test_a_partition_without_followers_has_none_to_hold() -> None:
    with TestBroker() as broker:
        broker.create_topic("t")
        with pytest.raises(ValueError, match=r"t-0 has no such follower: its leader is 1, replicas \[1\]"):
            broker.hold_followers("t", 0)
