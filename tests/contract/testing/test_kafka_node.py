"""``server.properties`` of a local Kafka, and ports for it."""

import socket
from pathlib import Path

import pytest

from spark_kafka_sink.testing import Listener
from spark_kafka_sink.testing.kafka_node import (
    CLIENTS,
    CONTROLLER,
    HOST,
    KafkaNode,
    broker_properties,
    free_ports,
    is_free,
)
from spark_kafka_sink.testing.kafka_security import security_properties


def nodes(count):
    return [
        KafkaNode(id_, Path(f"/node-{id_}"), {CLIENTS: 9000 + id_, CONTROLLER: 9100 + id_}, "4.1.1")
        for id_ in range(1, count + 1)
    ]


@pytest.mark.parametrize(("count", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")])
def test_internal_topics_have_as_many_replicas_as_there_can_be(count, replicas, in_sync):
    all_nodes = nodes(count)
    properties = broker_properties(all_nodes[0], all_nodes, {}, {})
    assert properties["offsets.topic.replication.factor"] == replicas
    assert properties["transaction.state.log.replication.factor"] == replicas
    assert properties["transaction.state.log.min.isr"] == in_sync


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


LISTENERS = {"A": Listener("SSL"), "B": Listener("SASL_SSL")}
KEY_STORE = {"ssl.keystore.type", "ssl.keystore.location"}
TRUST_STORE = {"ssl.truststore.type", "ssl.truststore.location"}


def stores(listener: str, own: dict[str, str]) -> set[str]:
    """The options of ours for the listener's stores."""
    prefix = f"listener.name.{listener}."
    names = {each.removeprefix(prefix) for each in security_properties(LISTENERS, Path("/x"), own)}
    return names & (KEY_STORE | TRUST_STORE)


@pytest.mark.parametrize("option", ["ssl.keystore.password", "ssl.key.password", "ssl.keystore.location"])
def test_a_key_store_of_the_user_replaces_that_of_every_listener_as_a_whole(option: str) -> None:
    assert stores("a", {option: "x"}) == stores("b", {option: "x"}) == TRUST_STORE


def test_a_store_for_one_listener_leaves_the_others_theirs() -> None:
    own = {"listener.name.a.ssl.truststore.location": "/own"}
    assert stores("a", own) == KEY_STORE
    assert stores("b", own) == KEY_STORE | TRUST_STORE
