"""What ``partitions_for`` tells of three nodes, next to what librdkafka reads of them."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.testing import LocalKafka
from tests.support.waiting import DEADLINE_S, eventually

pytestmark = pytest.mark.jvm


def test_partitions_for_tells_leaders_and_replicas_with_a_node_and_without_it() -> None:
    with LocalKafka(nodes=3) as kafka:
        kafka.create_topic("t", partitions=3, replication=2)
        kafka.await_in_sync("t")
        compare(kafka, offline=frozenset())
        stopped = kafka.leader("t", 0)
        kafka.stop(stopped)
        eventually(lambda: kafka.leader("t", 0) not in (stopped, -1))
        compare(kafka, offline=frozenset({stopped}))


def compare(kafka: LocalKafka, offline: frozenset[int]) -> None:
    config = {"bootstrap.servers": kafka.bootstrap_servers}
    theirs = AdminClient(config).list_topics("t", timeout=DEADLINE_S).topics["t"].partitions
    with KafkaProducer(config) as producer:
        ours = producer.partitions_for("t")
        assert len(producer.partitions_for("t")) == len(theirs) == 3
    for each in ours:
        their = theirs[each.partition]
        replicas, in_sync = ({node.id for node in nodes} for nodes in (each.replicas, each.in_sync_replicas))
        assert each.leader is not None
        assert (each.leader.id, replicas, in_sync) == (their.leader, set(their.replicas), set(their.isrs))
        assert {node.id for node in each.offline_replicas} == offline & replicas
        assert not offline & in_sync
