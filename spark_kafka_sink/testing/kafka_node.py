"""One broker of a local Kafka: its ports, its folder, its ``server.properties``, its process."""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spark_kafka_sink.testing.child_processes import GuardedProcess

HOST = "127.0.0.1"
CLIENTS = "PLAINTEXT"
CONTROLLER = "CONTROLLER"

# Below the ports that the kernel gives to outgoing connections: such a connection could take a stopped broker's port,
# and a client that keeps trying to reach it could connect to itself.
_PORTS = range(15_000, 32_000)


@dataclass(slots=True)
class KafkaNode:
    """A broker. ``ports``: by listener name. ``process``: None until the first start; it stays when it has ended.

    ``version``: the release of Apache Kafka that it runs, or ran last. ``rack``: its ``broker.rack``.
    """

    id: int
    folder: Path
    ports: Mapping[str, int]
    version: str
    rack: str | None = None
    process: GuardedProcess | None = None
    paused: bool = False

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "broker.log"

    @property
    def properties_file(self) -> Path:
        return self.folder / "server.properties"

    def address(self, listener: str = CLIENTS) -> tuple[str, int]:
        return HOST, self.ports[listener]

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def responds(self) -> bool:
        return self.alive() and not self.paused


def broker_properties(
    node: KafkaNode, nodes: Sequence[KafkaNode], protocols: Mapping[str, str], own: Mapping[str, str]
) -> dict[str, str]:
    """``server.properties`` of ``node``. ``protocols``: listener → security protocol. ``own``: properties that override
    all others.

    Internal topics get few partitions, and as many replicas as there are nodes, up to Kafka's own 3.
    """
    replicas = min(len(nodes), 3)
    addresses = {name: f"{name}://{HOST}:{port}" for name, port in node.ports.items()}
    protocols = {CONTROLLER: CLIENTS, CLIENTS: CLIENTS, **protocols}
    rack = {} if node.rack is None else {"broker.rack": node.rack}
    return {
        **rack,
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "controller.quorum.voters": ",".join(f"{node.id}@{HOST}:{node.ports[CONTROLLER]}" for node in nodes),
        "controller.listener.names": CONTROLLER,
        "inter.broker.listener.name": CLIENTS,
        "listeners": ",".join(addresses.values()),
        "advertised.listeners": ",".join(at for name, at in addresses.items() if name != CONTROLLER),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "log.dirs": str(node.data),
        "default.replication.factor": str(replicas),
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.num.partitions": str(len(nodes)),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(max(replicas - 1, 1)),
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(max(replicas - 1, 1)),
        "group.initial.rebalance.delay.ms": "0",
        # When a killed broker's session ends its leaders move, and it may come back itself: after 9 s by default.
        "broker.session.timeout.ms": "5000",
        "broker.heartbeat.interval.ms": "1000",
        "log.cleaner.dedupe.buffer.size": "8388608",  # the default of 128 MiB is a quarter of this heap
        **own,
    }


def free_ports(count: int) -> list[int]:
    """Distinct free ports of the loopback interface."""
    found = (port for port in random.sample(_PORTS, len(_PORTS)) if is_free(port))
    return [next(found) for _ in range(count)]


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the broker does
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
