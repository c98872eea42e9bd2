"""Which broker a question goes to when one of them is dead, gone or throttles."""

import struct
from contextlib import closing
from dataclasses import replace

import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.model import Node, TopicPartition
from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.exactly_once.committer import Cluster
from spark_kafka_sink.exactly_once.ledger_topic import broker_limit_ms
from spark_kafka_sink.exactly_once.session import Session
from spark_kafka_sink.exactly_once.sweep import list_open
from tests.contract.brokers import broker_with
from tests.contract.exactly_once.runs import LEDGER, TOPIC, Query, committed
from tests.support.waiting import DEADLINE_S

CLOCK = SystemClock()
brokers = broker_with(TOPIC, partitions=2, nodes=3)


def query(brokers, **options):
    return Query(brokers.bootstrap_servers, options={"request.timeout.ms": 400, **options})


@pytest.fixture
def cluster(brokers):
    with closing(Cluster(query(brokers).settings.producer, CLOCK)) as cluster:
        cluster.node_ids(soon())
        yield cluster


def soon(ms=1_000 * DEADLINE_S):
    return CLOCK.now() + ms


@pytest.mark.parametrize("node", [1, 2, 3])
def test_one_broker_that_hangs_is_not_asked_for_ever(brokers, cluster, node):
    brokers.pause(node)
    for _ in range(3):
        assert cluster.topic(TOPIC, soon()).partition_count == 2
        assert broker_limit_ms(cluster, soon()) == 900_000


@pytest.mark.parametrize("node", [1, 2, 3])
def test_a_query_goes_on_with_one_broker_dead(brokers, node):
    writer = query(brokers)
    writer.run(0, [[b"a"], [b"b"]])
    brokers.kill(node)
    writer.run(1, [[b"c"], [b"d"]])
    assert committed(brokers) == {b"a": 1, b"b": 1, b"c": 1, b"d": 1}


@pytest.mark.parametrize("node", [1, 2, 3])
def test_a_session_outlives_the_only_bootstrap_server(brokers, node):
    """The committer knew kafka.bootstrap.servers alone: with its one server dead it found no coordinator any more."""
    address = brokers.bootstrap_servers.split(",")[node - 1]
    settings = replace(query(brokers), servers=address).settings
    with closing(Session(settings, CLOCK)) as session:
        session.verify_ledger(soon())
        session.init_driver(soon())
        brokers.kill(node)
        session.init_driver(soon())


def test_a_leader_that_left_the_cluster_is_looked_for_anew(brokers):
    with closing(Session(query(brokers).settings, CLOCK)) as session:
        session.verify_ledger(soon())
        session.ledger.read(soon())
        leader = brokers.leader(LEDGER, session.ledger.partitions.partition)
        brokers.kill(leader)
        session.cluster.pause(0)
        session.ledger.read(soon())
        session.cluster.refresh()
        assert leader not in session.cluster.node_ids(soon())
        partition = TopicPartition(LEDGER, session.ledger.partitions.partition)
        session.cluster._located[partition] = Node(leader, "localhost", 1)
        session.ledger.read(soon())


def test_transactions_are_listed_anew_when_a_broker_leaves_meanwhile(brokers):
    with closing(Session(query(brokers).settings, CLOCK)) as session:
        session.cluster.node_ids(soon())
        brokers.kill(3)
        list_open(session, soon())


# Longer than a test may take.
SLOW = {"request.timeout.ms": 3_600_000, "delivery.timeout.ms": 7_200_000}


def test_the_deadline_rules_whatever_the_request_timeout_is(brokers):
    settings = query(brokers, **SLOW).settings
    with closing(Cluster(settings.producer, CLOCK)) as cluster:
        cluster.node_ids(soon())
        for node in brokers.node_ids:
            brokers.pause(node)
        with pytest.raises(KafkaTimeoutError):
            cluster.topic(TOPIC, soon(500))


def without_topics(frame):
    """What a quota makes of a Fetch response (v12): a time to wait, and no partitions."""
    body = frame[4:9] + struct.pack(">ihi", 50, 0, 0) + b"\x01\x00"
    return struct.pack(">i", len(body)) + body


def test_a_throttled_fetch_is_waited_out(brokers):
    writer = query(brokers)
    writer.run(0, [[b"a"], [b"b"]])
    throttled = brokers.faults.mangle("Fetch", without_topics, times=2)
    writer.run(1, [[b"c"], [b"d"]])
    assert throttled.hits == 2
    assert committed(brokers) == {b"a": 1, b"b": 1, b"c": 1, b"d": 1}
