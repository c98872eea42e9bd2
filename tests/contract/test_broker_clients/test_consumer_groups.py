"""Consumers of librdkafka that subscribe share a topic of TestBroker as one of a real Kafka."""

import threading
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from spark_kafka_sink.testing import TestBroker
from tests.contract.brokers import broker_with
from tests.contract.plain_client import PlainClient
from tests.contract.test_broker_clients.test_confluent_kafka import done, producer, write
from tests.support.waiting import DEADLINE_S, eventually

PARTITIONS = 4
RECORDS = 100


class Member:
    """A librdkafka consumer that is polled on a thread of its own, as an application does."""

    def __init__(self, broker, **config):
        dotted = {name.replace("_", "."): value for name, value in config.items()}
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 100,
            **dotted,
        }
        self.values: list[bytes | None] = []
        self.partitions: set[int] = set()
        self._ended = threading.Event()
        self._consumer = Consumer(settings)
        self._consumer.subscribe(["t"])
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def close(self):
        """Commit what was read and leave the group."""
        self._ended.set()
        self._thread.join(DEADLINE_S)
        self._consumer.close()

    def _poll(self):
        while not self._ended.is_set():
            for message in self._consumer.consume(100, 0.05):
                assert message.error() is None
                self.values.append(message.value())
            # On this thread: the call waits for a rebalance that only a poll completes.
            self.partitions = {each.partition for each in self._consumer.assignment()}


@contextmanager
def member(broker, **config):
    joined = Member(broker, **config)
    try:
        yield joined
    finally:
        joined.close()


def fill(broker, *, first=0):
    """Writes 100 values to each partition; all of them."""
    values = [b"%d" % number for number in range(first, first + PARTITIONS * RECORDS)]
    writer: Producer = producer(broker)
    for partition in range(PARTITIONS):
        write(writer, "t", values[partition::PARTITIONS], partition=partition)
    return values


broker = broker_with("t", partitions=PARTITIONS)


def test_a_group_reads_everything_once_and_goes_on_where_it_was(broker):
    first = fill(broker)
    with member(broker) as reader:
        eventually(lambda: len(reader.values) >= len(first))
    second = fill(broker, first=1_000_000)
    with member(broker) as successor:
        eventually(lambda: len(successor.values) >= len(second))

    assert sorted(reader.values) == sorted(first)
    assert sorted(successor.values) == sorted(second)
    assert broker.committed("g") == {("t", each): 2 * RECORDS for each in range(PARTITIONS)}


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_the_partitions_and_one_that_leaves_gives_its_own_back(broker, strategy):
    with member(broker, partition_assignment_strategy=strategy) as staying:
        eventually(lambda: len(staying.partitions) == PARTITIONS)
        with member(broker, partition_assignment_strategy=strategy) as leaving:
            eventually(lambda: len(staying.partitions) == len(leaving.partitions) == PARTITIONS // 2)
            assert staying.partitions | leaving.partitions == set(range(PARTITIONS))
            values = fill(broker)
            eventually(lambda: len(staying.values) + len(leaving.values) >= len(values))
            assert sorted(staying.values + leaving.values) == sorted(values)
            assert staying.values
            assert leaving.values
        eventually(lambda: len(staying.partitions) == PARTITIONS)


def test_a_group_of_three_nodes_finds_its_coordinator_again():
    with TestBroker(nodes=3) as broker:
        broker.create_topic("t", partitions=PARTITIONS)
        with member(broker) as reader:
            first = fill(broker)
            eventually(lambda: len(reader.values) >= len(first))
            with PlainClient(broker.bootstrap_servers) as client:
                broker.kill(int(client.ask("FindCoordinator", 3, key="g", key_type=0).node_id))
            second = fill(broker, first=1_000_000)
            eventually(lambda: set(reader.values) >= set(second))
        assert broker.committed("g") == {("t", each): 2 * RECORDS for each in range(PARTITIONS)}


def test_groups_are_listed_and_described(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    with member(broker, client_id="me") as reader:
        eventually(lambda: len(reader.partitions) == PARTITIONS)
        described = done(admin.describe_consumer_groups(["g"]))
        listed = admin.list_consumer_groups().result(DEADLINE_S).valid
    (only,) = described.members
    assert (described.state.name, described.partition_assignor, only.client_id) == ("STABLE", "range", "me")
    assert {each.partition for each in only.assignment.topic_partitions} == set(range(PARTITIONS))
    assert [(each.group_id, each.state.name) for each in listed] == [("g", "STABLE")]
    eventually(lambda: done(admin.describe_consumer_groups(["g"])).state.name == "EMPTY")
