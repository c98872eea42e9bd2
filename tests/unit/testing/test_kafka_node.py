import socket
from pathlib import Path

import pytest

from spark_kafka_sink.testing.kafka_node import (
    CLIENTS,
    CONTROLLER,
    HOST,
    KafkaNode,
    broker_properties,
    free_ports,
    is_free,
)


def nodes(count, **more_ports):
    return [
        KafkaNode(id_, Path(f"/node-{id_}"), {CLIENTS: 9000 + id_, CONTROLLER: 9100 + id_, **more_ports}, "4.1.1")
        for id_ in range(1, count + 1)
    ]


def test_one_node_is_broker_and_controller():
    (node,) = nodes(1)
    properties = broker_properties(node, [node], {}, {})
    assert properties["process.roles"] == "broker,controller"
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:9101"
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:9001,CONTROLLER://127.0.0.1:9101"
    assert properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9001"
    assert properties["log.dirs"] == "/node-1/data"


@pytest.mark.parametrize(("count", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")])
def test_internal_topics_have_as_many_replicas_as_there_can_be(count, replicas, in_sync):
    all_nodes = nodes(count)
    properties = broker_properties(all_nodes[0], all_nodes, {}, {})
    assert properties["offsets.topic.replication.factor"] == replicas
    assert properties["transaction.state.log.replication.factor"] == replicas
    assert properties["transaction.state.log.min.isr"] == in_sync


def test_every_node_votes():
    all_nodes = nodes(3)
    voters = {broker_properties(node, all_nodes, {}, {})["controller.quorum.voters"] for node in all_nodes}
    assert voters == {"1@127.0.0.1:9101,2@127.0.0.1:9102,3@127.0.0.1:9103"}


def test_a_listener_more_is_advertised_with_its_protocol():
    (node,) = nodes(1, SECURE=9201)
    properties = broker_properties(node, [node], {"SECURE": "SASL_SSL"}, {})
    assert properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9001,SECURE://127.0.0.1:9201"
    assert properties["listener.security.protocol.map"] == "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL"


def test_one_s_own_properties_win():
    (node,) = nodes(1)
    properties = broker_properties(node, [node], {}, {"log.dirs": "/elsewhere", "auto.create.topics.enable": "false"})
    assert properties["log.dirs"] == "/elsewhere"
    assert properties["auto.create.topics.enable"] == "false"


def test_ports_are_distinct_free_and_never_those_of_outgoing_connections():
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert all(1024 < port < 32_768 for port in ports)
    assert all(map(is_free, ports))


def test_a_port_somebody_listens_on_is_not_free():
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()
        assert not is_free(listener.getsockname()[1])
