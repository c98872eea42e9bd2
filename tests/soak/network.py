"""The networks of a soak: brokers reach each other, and the sink reaches them, through gates and proxies."""

from __future__ import annotations

import json
import os
import re
import socket
import struct
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from spark_kafka_sink.testing import LocalKafka
from spark_kafka_sink.testing.kafka_node import CONTROLLER, KafkaNode
from tests.faults.support.proxy import Direction, Proxy
from tests.soak.gate import Gate
from tests.support.addresses import Address, text_of

BROKERS = "BROKERS"
BETWEEN = (BROKERS, CONTROLLER)
"""The listeners over which brokers and controllers speak to each other; clients have another one."""

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_SOCKET = re.compile(r"socket:\[(\d+)\]")


class PartableKafka(LocalKafka):
    """``LocalKafka`` with a listener ``BROKERS``. A gate stands before it and before that of the controller in each
    node, and tells by the process that connects which node it is."""

    def __init__(self, *arguments, **more) -> None:
        super().__init__(*arguments, **more)
        self._network = ExitStack()
        self._gates: dict[tuple[int, str], PeerGate] = {}

    def part(self, node: int, others: Iterable[int]) -> int:
        """No connection between the node and the others works any more, whoever opens it. Returns how many break."""
        return sum(
            self._gates[here, listener].part(there)
            for other in others
            for listener in BETWEEN
            for here, there in ((node, other), (other, node))
        )

    def hold(self, sender: int, receiver: int) -> int:
        """What one node sends to the other, requests or responses, waits until ``heal_network``. Returns on how many
        connections."""
        return sum(
            self._gates[receiver, listener].close(Direction.TO_BROKER, sender)
            + self._gates[sender, listener].close(Direction.TO_CLIENT, receiver)
            for listener in BETWEEN
        )

    def heal_network(self) -> None:
        for gate in self._gates.values():
            gate.heal()

    def close(self) -> None:
        super().close()
        if os.getpid() == self._owner:
            self._network.close()

    def _lay_out(self) -> None:
        super()._lay_out()
        for node in self._nodes.values():
            for listener in BETWEEN:
                gate = PeerGate(node.address(listener), self._nodes)
                self._gates[node.id, listener] = self._network.enter_context(gate)
        for node in self._nodes.values():
            lines = node.properties_file.read_text().splitlines()
            node.properties_file.write_text("".join(f"{self._behind_gates(line)}\n" for line in lines))

    def _behind_gates(self, line: str) -> str:
        """A line of ``server.properties`` with the addresses at which others find a node. A broker tells others where
        its controller is, too."""
        name, _, value = line.partition("=")
        if name == "advertised.listeners":
            of_node = next(node for node in self._nodes.values() if f":{node.ports[BROKERS]}" in value)
            value = f"{value},{CONTROLLER}://{text_of(of_node.address(CONTROLLER))}"
        elif name != "controller.quorum.voters":
            return line
        for (id_, listener), gate in self._gates.items():
            value = value.replace(text_of(self._nodes[id_].address(listener)), text_of(gate.address))
        return f"{name}={value}"


@dataclass(frozen=True)
class SinkNetwork:
    """The way of a workload's processes to each broker, by node id: a gate, and behind it a proxy."""

    gates: Mapping[int, Gate]
    proxies: Mapping[int, Proxy]

    @classmethod
    def of(cls, brokers: Mapping[int, Address], stack: ExitStack) -> Self:
        proxies = {node: stack.enter_context(Proxy(broker)) for node, broker in brokers.items()}
        gates = {node: stack.enter_context(Gate(proxy.address)) for node, proxy in proxies.items()}
        return cls(gates, proxies)

    @property
    def variable(self) -> str:
        """The value of ``hooks.PROXIES`` for processes that take this way."""
        ways = {text_of(proxy.broker): text_of(self.gates[node].address) for node, proxy in self.proxies.items()}
        return json.dumps(ways)

    def heal(self) -> None:
        for node, gate in self.gates.items():
            gate.heal()
            self.proxies[node].heal()


class PeerGate(Gate):
    """A gate that tells nodes by their processes."""

    def __init__(self, target: Address, nodes: Mapping[int, KafkaNode]) -> None:
        super().__init__(target, peers=tuple(nodes))
        self._nodes = nodes

    def peer_at(self, address: Address) -> int | None:
        inode = _inode(address, self.address)
        pids = {node.id: node.process.pid for node in self._nodes.values() if node.process is not None}
        return next((id_ for id_, pid in pids.items() if inode in _inodes(pid)), None)


def _inode(here: Address, there: Address) -> str | None:
    """Of the socket at one end of a connection."""
    ends = [_in_table(here), _in_table(there)]
    for table in _TABLES:
        for line in table.read_text().splitlines()[1:]:
            fields = line.split()
            # In IPv6's table, an address of IPv4 stands at the end of its field.
            if all(field.endswith(end) for field, end in zip(fields[1:3], ends, strict=True)):
                return fields[9]
    return None


def _in_table(address: Address) -> str:
    host, port = address
    (number,) = struct.unpack("=I", socket.inet_aton(host))
    return f"{number:08X}:{port:04X}"


def _inodes(pid: int) -> set[str]:
    """Of the sockets that a process has, none if it is gone."""
    found = set()
    with suppress(OSError):
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # it was closed meanwhile
                match = _SOCKET.fullmatch(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
                if match:
                    found.add(match[1])
    return found
