"""The real thing, so that every other test may lean on it. confluent-kafka is the client: it shares no code of ours."""

import os
import socket

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

from spark_kafka_sink.errors import BrokerError
from spark_kafka_sink.testing import LocalKafka, LocalKafkaError
from tests.support.waiting import DEADLINE_S

pytestmark = pytest.mark.jvm


def produce(servers: str, topic: str, *values: bytes) -> None:
    """One batch to partition 0, acks=all."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 200, "message.timeout.ms": 30_000})
    errors = []
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None] * len(values)


def consume(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([Place(topic, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, timeout=DEADLINE_S)]
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def own_kafka():
    """Ours to stop and kill, unlike the session's."""
    with LocalKafka(properties={"auto.create.topics.enable": "false"}) as kafka:
        yield kafka


def test_a_topic_is_usable_when_create_topic_returns(own_kafka):
    own_kafka.create_topic("ready", partitions=7)
    assert [own_kafka.leader("ready", partition) for partition in range(7)] == [1] * 7
    assert all(own_kafka.log_dir("ready", partition).is_dir() for partition in range(7))
    own_kafka.delete_topic("ready")
    own_kafka.create_topic("ready", partitions=1)
    with pytest.raises(LocalKafkaError, match=r"There is no partition ready-1\."):
        own_kafka.leader("ready", 1)


def test_a_refusal_carries_kafka_s_own_words(own_kafka):
    own_kafka.create_topic("twice")
    with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS: Topic twice was not created: Topic 'twice' already"):
        own_kafka.create_topic("twice")
    with pytest.raises(BrokerError, match=r"INVALID_CONFIG.*Unknown topic config name: no\.such"):
        own_kafka.create_topic("odd", configs={"no.such": "1"})
    with pytest.raises(BrokerError, match="INVALID_REPLICATION_FACTOR"):
        own_kafka.create_topic("wide", replication=2)
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION: Topic nowhere was not deleted"):
        own_kafka.delete_topic("nowhere")


def test_a_stopped_and_a_killed_node_come_back_with_their_data(own_kafka):
    own_kafka.create_topic("kept")
    produce(own_kafka.bootstrap_servers, "kept", b"before")
    own_kafka.stop(1)
    assert not own_kafka.alive(1)
    own_kafka.start(1)
    produce(own_kafka.bootstrap_servers, "kept", b"between")
    own_kafka.kill(1)
    with pytest.raises(LocalKafkaError, match=r"Node 1 is not running\."):
        own_kafka.kill(1)
    own_kafka.start(1)
    with pytest.raises(LocalKafkaError, match=r"Node 1 is running\."):
        own_kafka.start(1)
    assert consume(own_kafka.bootstrap_servers, "kept", 2) == [b"before", b"between"]


def test_a_feature_goes_up_and_down_and_a_refusal_carries_kafka_s_own_words(own_kafka):
    for level in (1, 2):
        own_kafka.set_feature("transaction.version", level)
    with pytest.raises(BrokerError, match=r"transaction\.version 9 was not finalized: .*9"):
        own_kafka.set_feature("transaction.version", 9)


def left_of(kafka: LocalKafka) -> list[object]:
    listening = []
    for server in kafka.bootstrap_servers.split(","):
        with socket.socket() as probe:
            if probe.connect_ex((server.split(":")[0], int(server.split(":")[1]))) == 0:
                listening.append(server)
    return [*listening, *([kafka.folder] if kafka.folder.exists() else [])]


@pytest.mark.slow
def test_nothing_is_left_at_the_end_also_of_a_paused_or_killed_node():
    with LocalKafka() as kafka:
        kafka.pause(1)
    assert left_of(kafka) == []
    with LocalKafka() as kafka:
        kafka.kill(1)
    assert left_of(kafka) == []


def test_a_fork_that_leaves_the_block_leaves_the_broker_alone(own_kafka):
    child = os.fork()
    if child == 0:
        try:
            own_kafka.close()
            os._exit(0)
        finally:  # otherwise a child that fails goes on with the tests
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert own_kafka.alive(1)
    assert own_kafka.folder.exists()


def test_a_broker_that_cannot_start_says_why_and_leaves_nothing():
    kafka = LocalKafka(properties={"log.retention.ms": "many"})
    with pytest.raises(LocalKafkaError, match=r"Invalid value many for configuration log\.retention\.ms"):
        kafka.__enter__()
    assert not kafka.folder.exists()
    kafka = LocalKafka(properties={"authorizer.class.name": "no.such.Authorizer"})
    with pytest.raises(LocalKafkaError, match=r"node 1 ended at once:\n(.|\n)*no\.such\.Authorizer"):
        kafka.__enter__()
    assert not kafka.folder.exists()


def test_a_port_in_use_is_named():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(LocalKafkaError, match=f"Port {port} is in use; choose another one"):
            LocalKafka(port=port).__enter__()


@pytest.mark.parametrize("nodes", [0, -1])
def test_a_kafka_without_nodes_is_refused(nodes):
    with pytest.raises(LocalKafkaError, match=f"A Kafka of {nodes} nodes cannot start"):
        LocalKafka(nodes=nodes)


@pytest.mark.parametrize(("port", "nodes"), [(70_000, 1), (-1, 1), (65_534, 3)])
def test_ports_that_there_are_not_are_refused(port, nodes):
    with pytest.raises(LocalKafkaError, match=f"{nodes} nodes from port {port} upwards: ports go from 1 to 65535"):
        LocalKafka(nodes, port=port)


def test_zookeeper_has_no_further_listeners():
    with pytest.raises(
        LocalKafkaError, match=r"Kafka 2\.8\.2 uses ZooKeeper; LocalKafka gives it no further listeners"
    ):
        LocalKafka(version="2.8.2", listeners={"SECURE": "SSL"}).__enter__()


@pytest.mark.slow
def test_three_nodes_share_one_zookeeper_and_leaders_move_when_one_dies():
    with LocalKafka(3, "2.8.2") as kafka:
        kafka.create_topic("t", partitions=3)
        led = kafka.leader("t", 0)
        kafka.kill(led)
        kafka.start(led)
        kafka.await_in_sync("t")
        kafka.delete_topic("t")
