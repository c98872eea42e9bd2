"""The network between brokers, and that a gate knows who connects."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from types import SimpleNamespace

from spark_kafka_sink.testing.kafka_node import CLIENTS, CONTROLLER, KafkaNode
from tests.faults.support.proxy import LOOPBACK
from tests.soak.network import BROKERS, PartableKafka, PeerGate

_CONNECTS = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as line:
    print(line.getsockname()[1], flush=True)
    sys.stdin.read()
"""


def node(id_, pid):
    return SimpleNamespace(id=id_, process=SimpleNamespace(pid=pid))


def test_a_gate_knows_which_process_has_connected():
    with socket.create_server((LOOPBACK, 0)) as target:
        command = [sys.executable, "-c", _CONNECTS]
        nodes = {}
        with PeerGate(target.getsockname(), nodes) as gate:
            port = str(gate.address[1])
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            with subprocess.Popen([*command, port], **pipes) as other, socket.create_connection(gate.address) as own:
                nodes.update({1: node(1, os.getpid()), 2: node(2, other.pid)})
                there = (LOOPBACK, int(other.stdout.readline()))
                assert [gate.peer_at(own.getsockname()), gate.peer_at(there)] == [1, 2]
                nodes.pop(2)
                assert gate.peer_at(there) is None
                other.stdin.close()


def test_brokers_tell_each_other_the_addresses_of_gates(tmp_path):
    kafka = PartableKafka(2, listeners={BROKERS: "SASL_PLAINTEXT"})
    for id_ in (1, 2):
        ports = {CLIENTS: 100 + id_, CONTROLLER: 200 + id_, BROKERS: 300 + id_}
        kafka._nodes[id_] = KafkaNode(id_, tmp_path, ports, "4.4.0")
        for listener in (CONTROLLER, BROKERS):
            kafka._gates[id_, listener] = SimpleNamespace(address=(LOOPBACK, 1000 + ports[listener]))
    told = "PLAINTEXT://127.0.0.1:102,BROKERS://127.0.0.1:302"
    assert kafka._behind_gates(f"advertised.listeners={told}") == (
        "advertised.listeners=PLAINTEXT://127.0.0.1:102,BROKERS://127.0.0.1:1302,CONTROLLER://127.0.0.1:1202"
    )
    assert kafka._behind_gates("controller.quorum.voters=1@127.0.0.1:201,2@127.0.0.1:202") == (
        "controller.quorum.voters=1@127.0.0.1:1201,2@127.0.0.1:1202"
    )
    listeners = "listeners=PLAINTEXT://127.0.0.1:102,BROKERS://127.0.0.1:302,CONTROLLER://127.0.0.1:202"
    assert kafka._behind_gates(listeners) == listeners
