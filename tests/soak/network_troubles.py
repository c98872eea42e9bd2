"""What can be done to the networks between a workload and the brokers, and between brokers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import permutations
from random import Random
from typing import TYPE_CHECKING

from tests.faults.support.proxy import Direction, Proxy
from tests.soak.drivers import await_that
from tests.soak.gate import Gate
from tests.soak.network import SinkNetwork
from tests.soak.troubles import NotReachedError, Victim, lasting, pick

if TYPE_CHECKING:
    from tests.soak.plan import Step

_HAPPENS_S = 60.0
_REPEATED_S = 30.0
_SLOW_S = 0.5
_ALL = 0.3
_ONE_OTHER = 0.3
_BREAKS = 0.4
_NOTICED_S = 6.0
"""Longer than a broker's session and than a replica may lag, so that brokers act on what they do not hear."""

# By the API keys of Kafka's protocol.
_RESPONSES = {"Produce": 0, "InitProducerId": 22, "AddPartitionsToTxn": 24, "EndTxn": 26}
_REQUESTS = {name: key for name, key in _RESPONSES.items() if name != "Produce"}
_OF_DRIVERS = "EndTxn"  # executors send one only when a task has failed


def _sides(hit: Victim, random: Random) -> Sequence[SinkNetwork]:
    """The network of its driver, of its executors, or both."""
    sides = [(network,) for network in hit.networks]
    return pick(sides if len(sides) == 1 else [*sides, tuple(hit.networks)], random)


def cut_off_from_a_broker(hit: Victim, step: Step) -> None:
    """The workload cannot reach one broker; the brokers reach each other."""
    random = step.random()
    node = pick(hit.kafka.node_ids, random)
    lasting(step, [network.proxies[node] for network in _sides(hit, random)], Proxy.part, Proxy.heal)


def cut_off_from_all_brokers(hit: Victim, step: Step) -> None:
    proxies = [proxy for network in _sides(hit, step.random()) for proxy in network.proxies.values()]
    lasting(step, proxies, Proxy.part, Proxy.heal)


def connections_fall_silent(hit: Victim, step: Step) -> None:
    """No byte comes through, and no connection is closed: as if a firewall had dropped its state."""
    sides = _sides(hit, step.random())
    if not sum(proxy.silence() for network in sides for proxy in network.proxies.values()):
        raise NotReachedError
    time.sleep(step.seconds)


def requests_arrive_late(hit: Victim, step: Step) -> None:
    """Parted on one side: a broker gets nothing, then everything, also what the sink has given up and sent again."""
    _parted_on_one_side(hit, step, Direction.TO_BROKER)


def responses_arrive_late(hit: Victim, step: Step) -> None:
    """Parted on the other side: a broker gets and does everything, and the sink hears nothing of it."""
    _parted_on_one_side(hit, step, Direction.TO_CLIENT)


def _parted_on_one_side(hit: Victim, step: Step, direction: Direction) -> None:
    """One broker, or all of them; up to four times as long as a request's timeout."""
    random = step.random()
    nodes = hit.kafka.node_ids
    chosen = nodes if random.random() < _ALL else [pick(nodes, random)]
    gates = [network.gates[node] for network in _sides(hit, random) for node in chosen]
    longer = replace(step, seconds=2 * step.seconds)
    lasting(longer, gates, lambda gate: gate.close(direction), Gate.heal)


def network_is_slow(hit: Victim, step: Step) -> None:
    gates = [gate for network in hit.networks for gate in network.gates.values()]
    lasting(step, gates, lambda gate: gate.delay(_SLOW_S), Gate.heal)


def response_lost(hit: Victim, step: Step) -> None:
    """A broker does what it is asked, and the connection breaks before its response."""
    api = _RESPONSES[pick(list(_RESPONSES), step.random())]
    proxies = [proxy for network in hit.networks for proxy in network.proxies.values()]
    for proxy in proxies:
        proxy.cut_request(api, Direction.TO_CLIENT)
    lost = await_that(lambda: any(proxy.is_cut for proxy in proxies), _HAPPENS_S)
    for proxy in proxies:  # the others would cut a response later
        proxy.heal()
    if not lost:
        raise NotReachedError


def request_delivered_late(hit: Victim, step: Step) -> None:
    """A request stays in the network, is repeated on another connection, and arrives afterwards."""
    random = step.random()
    _delivered_late(hit, step, pick(list(_REQUESTS), random), random)


def produce_delivered_late(hit: Victim, step: Step) -> None:
    """The same with a Produce request, whose rows the broker has then, or whose transaction may have ended."""
    _delivered_late(hit, step, "Produce", step.random())


def _delivered_late(hit: Victim, step: Step, api: str, random: Random) -> None:
    """One request alone, on its way to one broker."""
    networks = hit.networks[:1] if api == _OF_DRIVERS else hit.networks
    proxy = pick(networks, random).proxies[pick(hit.kafka.node_ids, random)]
    proxy.hold_request(_RESPONSES[api])
    if not await_that(lambda: proxy.holds, _HAPPENS_S):
        proxy.heal()  # drops a request that came after the last look, too
        raise NotReachedError
    await_that(lambda: proxy.is_repeated, _REPEATED_S)
    time.sleep(step.seconds)
    with suppress(OSError, asyncio.IncompleteReadError):  # the broker is down, and the request lost
        proxy.deliver()


def brokers_parted(hit: Victim, step: Step) -> None:
    """A broker cannot reach the others, or one of them, nor they it; clients reach all. Connections break, or nothing
    comes through."""
    kafka, random = hit.kafka, step.random()
    node, others = _parties(hit, random)
    if random.random() < _BREAKS:
        found = kafka.part(node, others)
    else:
        found = sum(kafka.hold(node, each) + kafka.hold(each, node) for each in others)
    _let_pass(hit, found, step)


def brokers_parted_on_one_side(hit: Victim, step: Step) -> None:
    """What a broker sends to the others, or to one of them, waits and arrives late, or what they send to it does."""
    random = step.random()
    node, others = _parties(hit, random)
    sends = random.random() < 0.5
    ways = [(node, each) if sends else (each, node) for each in others]
    _let_pass(hit, sum(hit.kafka.hold(*way) for way in ways), step)


def _parties(hit: Victim, random: Random) -> tuple[int, list[int]]:
    """A node, and those from which it is parted: one other or all."""
    nodes = hit.kafka.node_ids
    if random.random() < _ONE_OTHER:
        node, other = pick(list(permutations(nodes, 2)), random)
        return node, [other]
    node = pick(nodes, random)
    return node, [each for each in nodes if each != node]


def _let_pass(hit: Victim, found: int, step: Step) -> None:
    """``found``: how many connections it has hit."""
    if not found:
        raise NotReachedError
    time.sleep(step.seconds + _NOTICED_S)
    hit.kafka.heal_network()
