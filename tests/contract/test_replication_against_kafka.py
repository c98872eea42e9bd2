"""What a follower that hangs does to producers, readers and committers, on three nodes of Kafka and of TestBroker."""

import pytest

from spark_kafka_sink.testing import LocalKafka, TestBroker
from tests.contract.plain_client import PlainClient, batch
from tests.contract.scenario import Steps, name
from tests.support.waiting import eventually

RECORDS = batch([b"x"])
REPLICAS = 2
OFFSETS = "__consumer_offsets"
GROUP = "group"
SHORT_MS, LONG_MS = 500, 60_000


class Site:
    """A cluster of three nodes, one of which, the follower, may hang.

    ``hang``: it gets no more records, and is in sync for a while. ``leave_isr`` and ``come_back`` return when it is not
    in sync any more, or again. ``set_min_isr_of_offsets``: for ``__consumer_offsets``, which has three replicas.
    """

    def __init__(self, bootstrap_servers, follower):
        self.addresses = bootstrap_servers.split(",")
        self.follower = follower

    def new_topic(self, min_isr):
        """A topic that the follower follows, and a client of its leader."""
        while True:
            topic = name("topic")
            self.create_topic(topic, min_isr)
            partition = self.partition(topic)
            if self.follower in partition.replica_nodes and partition.leader_id != self.follower:
                return topic, self.client_of(partition.leader_id)

    def client_of(self, node):
        return PlainClient(self.addresses[node - 1])

    def partition(self, topic):
        with self.client_of(self.follower % 3 + 1) as client:
            return client.ask("Metadata", 9, topics=[{"name": topic}]).topics[0].partitions[0]


class TestBrokerSite(Site):
    __test__ = False

    def __init__(self, broker):
        super().__init__(broker.bootstrap_servers, follower=2)
        self._broker = broker

    def create_topic(self, topic, min_isr):
        self._broker.create_topic(topic, configs={"min.insync.replicas": min_isr}, replication=REPLICAS)

    def hang(self, topics):
        for topic in topics:
            self._broker.hold_followers(topic, 0, nodes=[self.follower])

    def leave_isr(self, topics):
        for topic in topics:
            self._broker.set_isr(topic, 0, [each for each in self.partition(topic).isr_nodes if each != self.follower])

    def set_min_isr_of_offsets(self, count):
        self._broker.set_topic_configs(OFFSETS, {"min.insync.replicas": count})

    def come_back(self, topics):
        for topic in topics:
            self._broker.set_isr(topic, 0, self.partition(topic).replica_nodes)
            self._broker.release_followers(topic, 0)


class KafkaSite(Site):
    def __init__(self, kafka):
        topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        with PlainClient(kafka.bootstrap_servers) as client:
            (partition,) = client.ask("DescribeQuorum", 1, topics=topics).topics[0].partitions
            coordinator = client.ask_patiently("FindCoordinator", 3, key=GROUP, key_type=0).node_id
        # The active controller must not hang, because it changes the replicas in sync.
        (follower, *_) = {1, 2, 3} - {int(partition.leader_id), int(coordinator)}
        super().__init__(kafka.bootstrap_servers, follower)
        self._kafka = kafka

    def create_topic(self, topic, min_isr):
        self._kafka.create_topic(topic, configs={"min.insync.replicas": str(min_isr)}, replication=REPLICAS)

    def hang(self, topics):
        self._kafka.pause(self.follower)

    def set_min_isr_of_offsets(self, count):
        change = {"name": "min.insync.replicas", "config_operation": 0, "value": str(count)}
        changes = [{"resource_type": 2, "resource_name": OFFSETS, "configs": [change]}]
        asked = [{"resource_type": 2, "resource_name": OFFSETS, "configuration_keys": ["min.insync.replicas"]}]
        with self.client_of(self.partition(OFFSETS).leader_id) as client:
            client.ask("IncrementalAlterConfigs", 1, resources=changes, validate_only=False)
            eventually(
                lambda: client.ask("DescribeConfigs", 4, resources=asked).results[0].configs[0].value == str(count)
            )

    def leave_isr(self, topics):
        eventually(lambda: all(self.follower not in self.partition(topic).isr_nodes for topic in topics))

    def come_back(self, topics):
        self._kafka.resume(self.follower)
        for topic in topics:
            self._kafka.await_in_sync(topic)


@pytest.fixture(params=["TestBroker", pytest.param("Kafka", marks=pytest.mark.jvm)])
def site(request):
    if request.param == "Kafka":
        properties = {"replica.lag.time.max.ms": "3000", "offsets.commit.timeout.ms": "5000"}
        with LocalKafka(nodes=3, properties=properties) as kafka:
            yield KafkaSite(kafka)
    else:
        config = {"offsets.commit.timeout.ms": 500, "offsets.topic.num.partitions": 1}
        with TestBroker(nodes=3, config=config) as broker:
            yield TestBrokerSite(broker)


def a_follower_that_hangs(site):
    (free, to_free), (strict, to_strict) = site.new_topic(min_isr=1), site.new_topic(min_isr=2)
    both, clients = (free, strict), (to_free, to_strict)

    def produce(acks=-1, timeout=SHORT_MS):
        data = [[{"name": topic, "partition_data": [{"index": 0, "records": RECORDS}]}] for topic in both]
        asked = zip(clients, data, strict=True)
        answers = [client.ask("Produce", 9, acks=acks, timeout=timeout, topic_data=each) for client, each in asked]
        return tuple(each.responses[0].partition_responses[0].error_code.name for each in answers)

    def readable():
        return tuple(latest_offset(client, topic) for client, topic in zip(clients, both, strict=True))

    steps: Steps = [("all in sync", (produce(timeout=LONG_MS), readable()), (("none", "none"), (1, 1)))]
    site.hang(both)
    steps += [
        ("acks=1", (produce(1), readable()), (("none", "none"), (1, 1))),
        ("acks=all", (produce(), readable()), (("request_timed_out", "request_timed_out"), (1, 1))),
    ]
    site.leave_isr(both)
    eventually(lambda: readable()[0] == 3)
    steps += [
        ("out of sync", readable(), (3, 1)),
        (
            "acks=all with the leader alone",
            (produce(timeout=LONG_MS), readable()),
            (("none", "not_enough_replicas"), (4, 1)),
        ),
        ("acks=1 with the leader alone", (produce(1), readable()), (("none", "none"), (5, 1))),
    ]
    site.come_back(both)
    eventually(lambda: readable() == (5, 4))
    return [*steps, ("in sync again", (produce(timeout=LONG_MS), readable()), (("none", "none"), (6, 5)))]


def latest_offset(client, topic):
    asked = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    return int(client.ask("ListOffsets", 1, replica_id=-1, topics=asked).topics[0].partitions[0].offset)


def commits_while_a_follower_hangs(site):
    topic, _ = site.new_topic(min_isr=1)
    transactional_id, *producer = transaction(site)
    client = site.client_of(coordinator(site, GROUP, 0))
    partition = {"partition_index": 0, "committed_leader_epoch": -1, "committed_metadata": ""}

    def commit(offset, api="OffsetCommit", version=7, **fields):
        topics = [{"name": topic, "partitions": [{**partition, "committed_offset": offset}]}]
        answer = client.ask(api, version, group_id=GROUP, topics=topics, **fields)
        return str(answer.topics[0].partitions[0].error_code.name)

    def commit_outside(offset):
        return commit(offset, generation_id_or_member_epoch=-1)

    def commit_inside(offset):
        claim = {"transactional_id": transactional_id, "producer_id": producer[0], "producer_epoch": producer[1]}
        return commit(offset, "TxnOffsetCommit", 5, generation_id=-1, **claim)

    def committed():
        asked = [{"name": topic, "partition_indexes": [0]}]
        answer = client.ask("OffsetFetch", 6, group_id=GROUP, topics=asked)
        return int(answer.topics[0].partitions[0].committed_offset)

    eventually(lambda: commit_outside(1) == "none")
    site.set_min_isr_of_offsets(3)
    steps: Steps = [("all in sync", (commit_outside(2), committed()), ("none", 2))]
    site.hang([OFFSETS])
    steps += [("too few", (commit_outside(3), committed()), ("coordinator_not_available", 2))]
    site.leave_isr([OFFSETS])
    steps += [
        ("too few in sync", (commit_outside(4), committed()), ("coordinator_not_available", 2)),
        ("in a transaction", (commit_inside(5), committed()), ("coordinator_not_available", 2)),
    ]
    site.come_back([OFFSETS])
    eventually(lambda: committed() == 4)
    ended = {"transactional_id": transactional_id, "producer_id": producer[0], "producer_epoch": producer[1]}
    with site.client_of(coordinator(site, transactional_id, 1)) as other:
        end = other.ask("EndTxn", 5, committed=True, **ended).error_code.name
    eventually(lambda: committed() == 5)
    return [*steps, ("the transaction", end, "none"), ("afterwards", (commit_outside(6), committed()), ("none", 6))]


def transaction(site):
    """A transactional id whose coordinator does not hang, its producer id and epoch."""
    while coordinator(site, transactional_id := name("id"), 1) == site.follower:
        pass
    with site.client_of(coordinator(site, transactional_id, 1)) as client:
        asked = {"transactional_id": transactional_id, "transaction_timeout": 60_000}
        answer = client.ask_patiently("InitProducerId", 4, **asked)
    return transactional_id, int(answer.producer_id), int(answer.producer_epoch)


def coordinator(site, key, key_type):
    with site.client_of(site.follower % 3 + 1) as client:
        return int(client.ask_patiently("FindCoordinator", 3, key=key, key_type=key_type).node_id)


@pytest.mark.parametrize("scenario", [a_follower_that_hangs, commits_while_a_follower_hangs])
def test_both_answer_as_written(scenario, site):
    steps = scenario(site)
    assert {step: seen for step, seen, _ in steps} == {step: expected for step, _, expected in steps}
