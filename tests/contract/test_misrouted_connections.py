"""``metadata.cluster.check.enable`` (KIP-1242) against the first Kafka whose brokers check who is meant."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition

from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import Node
from spark_kafka_sink.errors import RebootstrapRequiredError
from spark_kafka_sink.network.broker_identity import BrokerIdentity
from spark_kafka_sink.network.connection import Connection
from spark_kafka_sink.network.handshake import negotiate_api_versions
from spark_kafka_sink.network.name_lookup import Address, AddressList, numeric_address
from spark_kafka_sink.network.selector import Selector
from spark_kafka_sink.network.transport import Closed, Connected, Received
from spark_kafka_sink.testing import LocalKafka
from spark_kafka_sink.testing.blocking_admin import metadata
from tests.kafka_versions import on_kafka
from tests.waiting import DEADLINE_S, eventually, until

FIRST_THAT_CHECKS = "4.4.0"

pytestmark = pytest.mark.jvm


def shake_hands(host: str, port: int, identity: BrokerIdentity) -> Connection:
    """The connection when its handshake is over. Raises the handshake's error."""
    config = ProducerConfig.parse({"bootstrap.servers": f"{host}:{port}"})
    node = Node(identity.node_id, host, port)
    connection = Connection(1, node, config, negotiate_api_versions(str(node), identity), float("inf"))
    selector = Selector()

    def step() -> bool:
        for event in selector.poll(100):
            match event:
                case Connected():
                    connection.connected(None, 0)
                case Received(_, data):
                    list(connection.receive(data, 0))
                case Closed(_, reason):
                    raise connection.closed_error(reason)
            selector.send(1, connection.take_output())
        return connection.api_versions is not None

    try:
        selector.connect(1, host, port, AddressList())
        until(step, bool)
    finally:
        selector.shutdown()
    return connection


@on_kafka(FIRST_THAT_CHECKS, "4.1.1")
@pytest.mark.parametrize("wrong", ["", "cluster", "node"])
def test_a_broker_refuses_who_means_another_one(local_kafka: LocalKafka, wrong: str) -> None:
    host, port = local_kafka.bootstrap_servers.split(":")
    cluster = str(metadata((host, int(port)), ()).cluster_id)
    identity = BrokerIdentity("other" if wrong == "cluster" else cluster, 7 if wrong == "node" else 1)
    if wrong and local_kafka.version == FIRST_THAT_CHECKS:
        with pytest.raises(RebootstrapRequiredError, match=f"is not node {identity.node_id} of cluster "):
            shake_hands(host, int(port), identity)
    else:
        assert shake_hands(host, int(port), identity).api_versions is not None


def records(servers: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "counts"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE_S)
    finally:
        consumer.close()
    return int(high - low)


@pytest.mark.parametrize("local_kafka", [FIRST_THAT_CHECKS], indirect=True, scope="session")
@pytest.mark.parametrize("check", ["true", "false"])
def test_a_row_does_not_go_to_the_cluster_that_its_leader_s_address_leads_to(
    local_kafka: LocalKafka, check: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"misrouted-{check}"
    port = int(local_kafka.bootstrap_servers.split(":")[1])
    elsewhere: dict[int, int] = {}

    def leads_elsewhere_once(host: str, to: int) -> tuple[Address, ...]:
        return numeric_address(host, elsewhere.pop(to, to))

    monkeypatch.setattr("spark_kafka_sink.network.selector.numeric_address", leads_elsewhere_once)
    options = {
        "bootstrap.servers": f"localhost:{port}",  # a name: only the address in the metadata leads elsewhere
        "metadata.cluster.check.enable": check,
        "connections.max.idle.ms": "200",
        "enable.idempotence": "false",  # the other cluster does not know the producer id
    }
    with LocalKafka(version=FIRST_THAT_CHECKS) as other, KafkaProducer(options) as producer:
        for kafka in (local_kafka, other):
            kafka.create_topic(topic)
        producer.send_columns(topic, value=["first"]).wait(DEADLINE_S * 1000)
        eventually(lambda: producer.metrics()["producer-metrics"]["connection-count"] == 0, "the connections are idle")
        elsewhere[port] = int(other.bootstrap_servers.split(":")[1])
        producer.send_columns(topic, value=["second"]).wait(DEADLINE_S * 1000)
        assert not elsewhere
        written = [records(kafka.bootstrap_servers, topic) for kafka in (local_kafka, other)]
    assert written == ([2, 0] if check == "true" else [1, 1])
    assert ("REBOOTSTRAP_REQUIRED" in caplog.text) == (check == "true")
