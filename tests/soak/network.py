"""The networks of a soak: brokers reach each other, and the sink reaches them, through gates and proxies."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from spark_kafka_sink.testing.kafka_node import KafkaNode
from tests.faults.support.proxy import Proxy
from tests.soak.gate import Gate
from tests.support.addresses import Address, text_of

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_SOCKET = re.compile(r"socket:\[(\d+)\]")


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
        for way in (*self.gates.values(), *self.proxies.values()):
            way.heal()


class PeerGate(Gate):
    """A gate that tells nodes by their processes."""

    def __init__(self, target: Address, nodes: Mapping[int, KafkaNode]) -> None:
        super().__init__(target)
        self._nodes = nodes

    def peer_at(self, address: Address) -> int | None:
        inode = _inode(address, self.address)
        pids = {node.id: node.process.pid for node in self._nodes.values() if node.process is not None}
        return next((id_ for id_, pid in pids.items() if inode in _inodes(pid)), None)


def _inode(here: Address, there: Address) -> str | None:
    """Of the socket at one end of a connection on this machine, which its two ports name."""
    ends = [f":{port:04X}" for _, port in (here, there)]
    for line in (line for table in _TABLES for line in table.read_text().splitlines()[1:]):
        fields = line.split()
        if [field[-5:] for field in fields[1:3]] == ends:
            return fields[9]
    return None


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
