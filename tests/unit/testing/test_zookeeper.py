"""The server.properties of brokers before Kafka 3.3; tests/spark/test_brokers.py runs such brokers."""

from pathlib import Path

import pytest

from spark_kafka_sink.testing import LocalKafka, LocalKafkaError
from spark_kafka_sink.testing.kafka_jars import needs_zookeeper
from spark_kafka_sink.testing.kafka_node import CLIENTS, CONTROLLER, KafkaNode
from spark_kafka_sink.testing.kafka_node import broker_properties as of_kraft
from spark_kafka_sink.testing.zookeeper import broker_properties


@pytest.mark.parametrize(("version", "needed"), [("2.1.1", True), ("3.2.3", True), ("3.3.0", False), ("4.4.0", False)])
def test_brokers_run_with_zookeeper_until_kraft_is_for_production(version, needed):
    assert needs_zookeeper(version) is needed


def test_a_broker_has_its_zookeeper_and_nothing_of_kraft():
    node = KafkaNode(3, Path("/node-3"), {CLIENTS: 9003, CONTROLLER: 9103}, "2.8.2", "a")
    properties = broker_properties(of_kraft(node, [node], {}, {"min.insync.replicas": "1"}), 2181)
    assert properties["zookeeper.connect"] == "127.0.0.1:2181"
    assert properties["broker.id"] == "3"
    assert properties["listeners"] == properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9003"
    assert properties["broker.rack"] == "a"
    assert properties["min.insync.replicas"] == "1"
    assert not [name for name in properties if name.startswith(("controller.", "process.", "node.id", "share."))]


@pytest.mark.jvm
def test_further_listeners_are_refused():
    with (
        pytest.raises(LocalKafkaError, match=r"Kafka 2\.8\.2 uses ZooKeeper; LocalKafka gives it no further listeners"),
        LocalKafka(version="2.8.2", listeners={"SECURE": "SSL"}),
    ):
        pass


@pytest.mark.jvm
def test_three_nodes_share_one_zookeeper_and_leaders_move_when_one_dies():
    with LocalKafka(3, "2.8.2") as kafka:
        kafka.create_topic("t", partitions=3)
        led = kafka.leader("t", 0)
        kafka.kill(led)
        kafka.start(led)
        kafka.await_in_sync("t")
        kafka.delete_topic("t")
