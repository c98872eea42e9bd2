"""What a follower that hangs does to producers and readers: the same on three nodes of Kafka and TestBroker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from spark_kafka_sink.testing import LocalKafka, TestBroker
from tests.contract.plain_client import PlainClient, batch
from tests.contract.scenario import Steps, name
from tests.waiting import eventually

RECORDS = batch([b"x"])
REPLICAS = 2


class Site(ABC):
    """A cluster of three nodes, one of which, the follower, may hang."""

    def __init__(self, bootstrap_servers: str, follower: int) -> None:
        self.addresses = bootstrap_servers.split(",")
        self.follower = follower

    @abstractmethod
    def create_topic(self, topic: str, min_isr: int) -> None: ...

    @abstractmethod
    def hang(self, topics: Sequence[str]) -> None:
        """The follower gets no more records, and is in sync for a while."""

    @abstractmethod
    def leave_isr(self, topics: Sequence[str]) -> None:
        """Returns when the follower is not in sync any more."""

    @abstractmethod
    def come_back(self, topics: Sequence[str]) -> None:
        """Returns when the follower is in sync again."""

    def new_topic(self, min_isr: int) -> tuple[str, PlainClient]:
        """A topic that the follower follows, and a client of its leader."""
        while True:
            topic = name("topic")
            self.create_topic(topic, min_isr)
            partition = self.partition(topic)
            if self.follower in partition.replica_nodes and partition.leader_id != self.follower:
                return topic, PlainClient(self.addresses[partition.leader_id - 1])

    def partition(self, topic: str) -> Any:
        other = self.addresses[self.follower % 3]
        with PlainClient(other) as client:
            return client.ask("Metadata", 9, topics=[{"name": topic}]).topics[0].partitions[0]


class TestBrokerSite(Site):
    __test__ = False

    def __init__(self, broker: TestBroker) -> None:
        super().__init__(broker.bootstrap_servers, follower=2)
        self._broker = broker

    def create_topic(self, topic: str, min_isr: int) -> None:
        self._broker.create_topic(topic, configs={"min.insync.replicas": min_isr}, replication=REPLICAS)

    def hang(self, topics: Sequence[str]) -> None:
        for topic in topics:
            self._broker.hold_followers(topic, 0, nodes=[self.follower])

    def leave_isr(self, topics: Sequence[str]) -> None:
        for topic in topics:
            self._broker.set_isr(topic, 0, [self._broker.leader(topic, 0)])

    def come_back(self, topics: Sequence[str]) -> None:
        for topic in topics:
            self._broker.set_isr(topic, 0, self.partition(topic).replica_nodes)
            self._broker.release_followers(topic, 0)


class KafkaSite(Site):
    def __init__(self, kafka: LocalKafka) -> None:
        topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        with PlainClient(kafka.bootstrap_servers) as client:
            (partition,) = client.ask("DescribeQuorum", 1, topics=topics).topics[0].partitions
        # The active controller must not hang: it changes the replicas in sync.
        super().__init__(kafka.bootstrap_servers, follower=partition.leader_id % 3 + 1)
        self._kafka = kafka

    def create_topic(self, topic: str, min_isr: int) -> None:
        self._kafka.create_topic(topic, configs={"min.insync.replicas": str(min_isr)}, replication=REPLICAS)

    def hang(self, topics: Sequence[str]) -> None:
        self._kafka.pause(self.follower)

    def leave_isr(self, topics: Sequence[str]) -> None:
        eventually(lambda: all(len(self.partition(topic).isr_nodes) == 1 for topic in topics))

    def come_back(self, topics: Sequence[str]) -> None:
        self._kafka.resume(self.follower)
        for topic in topics:
            self._kafka.await_in_sync(topic)


@pytest.fixture
def kafka_site() -> Iterator[KafkaSite]:
    with LocalKafka(nodes=3, properties={"replica.lag.time.max.ms": "3000"}) as kafka:
        yield KafkaSite(kafka)


@pytest.fixture
def broker_site() -> Iterator[TestBrokerSite]:
    with TestBroker(nodes=3) as broker:
        yield TestBrokerSite(broker)


def a_follower_that_hangs(site: Site) -> Steps:
    (free, to_free), (strict, to_strict) = site.new_topic(min_isr=1), site.new_topic(min_isr=2)
    both, clients = (free, strict), (to_free, to_strict)

    def produce(acks: int = -1) -> tuple[str, ...]:
        data = [[{"name": topic, "partition_data": [{"index": 0, "records": RECORDS}]}] for topic in both]
        asked = zip(clients, data, strict=True)
        answers = [client.ask("Produce", 9, acks=acks, timeout=500, topic_data=each) for client, each in asked]
        return tuple(each.responses[0].partition_responses[0].error_code.name for each in answers)

    def readable() -> tuple[int, ...]:
        return tuple(latest_offset(client, topic) for client, topic in zip(clients, both, strict=True))

    steps: Steps = [("all in sync", (produce(), readable()), (("none", "none"), (1, 1)))]
    site.hang(both)
    steps += [
        ("acks=1", (produce(1), readable()), (("none", "none"), (1, 1))),
        ("acks=all", (produce(), readable()), (("request_timed_out", "request_timed_out"), (1, 1))),
    ]
    site.leave_isr(both)
    eventually(lambda: readable()[0] == 3)
    steps += [
        ("out of sync", readable(), (3, 1)),
        ("acks=all with the leader alone", (produce(), readable()), (("none", "not_enough_replicas"), (4, 1))),
        ("acks=1 with the leader alone", (produce(1), readable()), (("none", "none"), (5, 1))),
    ]
    site.come_back(both)
    eventually(lambda: readable() == (5, 4))
    return [*steps, ("in sync again", (produce(), readable()), (("none", "none"), (6, 5)))]


def latest_offset(client: PlainClient, topic: str) -> int:
    asked = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    return int(client.ask("ListOffsets", 1, replica_id=-1, topics=asked).topics[0].partitions[0].offset)


def test_test_broker_is_as_written(broker_site: TestBrokerSite) -> None:
    check(a_follower_that_hangs(broker_site))


@pytest.mark.jvm
def test_kafka_is_as_written(kafka_site: KafkaSite) -> None:
    check(a_follower_that_hangs(kafka_site))


def check(steps: Steps) -> None:
    assert {step: seen for step, seen, _ in steps} == {step: expected for step, _, expected in steps}
