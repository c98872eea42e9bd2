"""Ports for a local Kafka."""

import socket

from spark_kafka_sink.testing.kafka_node import HOST, free_ports, is_free


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
