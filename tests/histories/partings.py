"""Troubles of the network between two parties of which the sink is none: brokers, controllers, a driver and its
executors."""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import permutations
from random import Random
from typing import TYPE_CHECKING

from spark_kafka_sink.testing.kafka_node import CONTROLLER, free_ports
from tests.faults.chaos.gate import Gate
from tests.faults.chaos.troubles import NotReachedError, pick
from tests.faults.support.proxy import LOOPBACK, Direction
from tests.histories.workloads import DRIVER_HOST, DRIVER_PORTS

if TYPE_CHECKING:
    from tests.faults.chaos.plan import Step
    from tests.histories.troubles import Victim

_NOTICED_S = 6.0
"""Longer than a broker's session and than a replica may lag, so that brokers act on what they do not hear."""

_LONG = 4
"""Times the step's seconds: sometimes longer than Spark waits for an executor's heartbeat."""

_BREAKS, _WAITS = 0.4, 0.7
_ONE_OTHER = 0.3


class DriverNetwork:
    """Gates before the ports of a workload's drivers. Each driver has ports of its own, because one that was replaced
    may still hold those that it had."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._gates: list[Gate] = []

    def variables(self) -> dict[str, str]:
        """Those of the next driver's environment."""
        ports = free_ports(2)
        self._gates += [self._stack.enter_context(Gate((LOOPBACK, port), (DRIVER_HOST, port))) for port in ports]
        return {DRIVER_PORTS: " ".join(map(str, ports))}

    def part(self) -> int:
        """Connections break, and no new one works. Returns how many broke."""
        return sum(gate.part() for gate in self._gates)

    def close(self, direction: Direction) -> int:
        """What executors send to the driver waits, or what it sends to them. Returns on how many connections."""
        return sum(gate.close(direction) for gate in self._gates)

    def heal(self) -> None:
        for gate in self._gates:
            gate.heal()


def brokers_parted(victim: Victim, step: Step) -> None:
    """A broker cannot reach the others, or one of them, nor they it; clients reach all. Connections break, or nothing
    comes through."""
    kafka = victim.kafka.local
    random = step.random()
    node, others = _parties(victim, random)
    breaks = random.random() < _BREAKS
    found = (
        kafka.part(node, others) if breaks else sum(kafka.hold(node, each) + kafka.hold(each, node) for each in others)
    )
    _let_pass(victim, found, step.seconds + _NOTICED_S)


def brokers_parted_on_one_side(victim: Victim, step: Step) -> None:
    """What a broker sends to the others, or to one of them, waits and arrives late, or what they send to it does."""
    kafka = victim.kafka.local
    random = step.random()
    node, others = _parties(victim, random)
    sends = random.random() < 0.5
    ways = [(node, each) if sends else (each, node) for each in others]
    _let_pass(victim, sum(kafka.hold(*way) for way in ways), step.seconds + _NOTICED_S)


def controller_parted(victim: Victim, step: Step) -> None:
    """The other nodes cannot reach the active controller, while its broker and theirs replicate to each other: in both
    directions, or in one of them."""
    kafka, active = victim.kafka.local, victim.kafka.controller()
    others = [node for node in kafka.node_ids if node != active]
    way = step.random().random()
    if way < _BREAKS:
        found = kafka.part(active, others, (CONTROLLER,))
    elif way < _WAITS:
        found = sum(kafka.hold(active, node, (CONTROLLER,)) for node in others)
    else:
        found = sum(kafka.hold(node, active, (CONTROLLER,)) for node in others)
    _let_pass(victim, found, step.seconds + _NOTICED_S)


def driver_parted_from_executors(victim: Victim, step: Step) -> None:
    """For longer than Spark waits for an executor, or shorter. Connections break, or what one side sends waits, or what
    both send."""
    network, random = victim.driver_network, step.random()
    way = random.random()
    if way < _BREAKS:
        found = network.part()
    else:
        closed = list(Direction) if way < _WAITS else [pick(list(Direction), random)]
        found = max(network.close(direction) for direction in closed)
    if not found:
        raise NotReachedError
    time.sleep(_LONG * step.seconds)
    network.heal()


def _parties(victim: Victim, random: Random) -> tuple[int, list[int]]:
    """A node, and those from which it is parted: one other or all."""
    nodes = victim.kafka.local.node_ids
    if random.random() < _ONE_OTHER:
        node, other = pick(list(permutations(nodes, 2)), random)
        return node, [other]
    node = pick(nodes, random)
    return node, [each for each in nodes if each != node]


def _let_pass(victim: Victim, found: int, seconds: float) -> None:
    """``found``: how many connections it has hit."""
    if not found:
        raise NotReachedError
    time.sleep(seconds)
    victim.kafka.local.heal_network()
