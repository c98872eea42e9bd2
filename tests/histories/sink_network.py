"""The network between a workload's processes and the brokers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from tests.addresses import Address, text_of
from tests.faults.chaos.gate import Gate
from tests.faults.support.proxy import Proxy


@dataclass(frozen=True)
class SinkNetwork:
    """The way to each broker, by node id: a gate, and behind it a proxy."""

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
