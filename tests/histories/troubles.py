"""What a soak does to its workloads and brokers: the troubles of ``tests.faults.chaos``, and those of networks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.faults.chaos import troubles as of_chaos
from tests.faults.chaos.drivers import Drivers, await_that
from tests.faults.chaos.kafka import ChaosKafka
from tests.faults.chaos.troubles import Group, NotReachedError, Trouble, pick, table_of, trouble
from tests.faults.support.fault import Fault
from tests.faults.support.proxy import Direction, Proxy
from tests.histories.changes import (
    broker_upgraded,
    clocks_are_off,
    older_sink,
    options_switched,
    query_stopped,
    terminated,
    topic_recreated,
    topics_grown,
)
from tests.histories.partings import (
    DriverNetwork,
    brokers_parted,
    brokers_parted_on_one_side,
    controller_parted,
    driver_parted_from_executors,
)
from tests.histories.readers import Reader, Source
from tests.histories.recorder import Recorder
from tests.histories.sink_network import SinkNetwork
from tests.histories.workloads import RUNNING_FILE, Workload

if TYPE_CHECKING:
    from tests.faults.chaos.plan import Step

_HAPPENS_S = 60.0
_REPEATED_S = 30.0
_SLOW_S = 0.5
_ALL = 0.3

# By the API keys of Kafka's protocol.
_RESPONSES = {"Produce": 0, "InitProducerId": 22, "AddPartitionsToTxn": 24, "EndTxn": 26}
_REQUESTS = {name: key for name, key in _RESPONSES.items() if name != "Produce"}
_OF_DRIVERS = "EndTxn"  # executors send one only when a task has failed


@dataclass(frozen=True)
class Victim:
    """A workload, with what troubles need of it. ``networks``: the one between its drivers and the brokers, and that of
    its executors if it has any. ``driver_network``: between its drivers and their executors. ``readers``: the
    read_committed one and the other. ``record``: the soak's. ``variables``: those of its next drivers' environment.
    ``older_sink``: a folder with one."""

    workload: Workload
    kafka: ChaosKafka
    drivers: Drivers
    fault: Fault
    readers: tuple[Reader, Reader]
    source: Source
    networks: Sequence[SinkNetwork]
    driver_network: DriverNetwork
    record: Recorder
    older_sink: Path | None = None
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def topic(self) -> str:
        return self.workload.topics[0]

    @property
    def id_prefix(self) -> str:
        """That of its first kind of write."""
        name = self.workload.writes[0].write_name
        return f"{name}-" if name else ""

    @property
    def write_name(self) -> str:
        """Of the write that runs now, or was the last one. Its driver notes which one that is, and a query has one
        name."""
        running = self.drivers.folder / RUNNING_FILE
        name, _, number = running.read_text().partition("/") if running.exists() else ("", "", "")
        write = next((each for each in self.workload.writes if each.name == name), self.workload.writes[0])
        return write.write_name if write.repeats else f"{write.write_name}-{number}"

    @property
    def rows(self) -> int:
        """How many of its rows a read_committed reader has got."""
        return sum(self.readers[0].rows[write.name] for write in self.workload.writes)

    @property
    def stalled_s(self) -> float:
        """Since its last row came."""
        times = self.readers[0].grew
        grew = [times[write.name] for write in self.workload.writes if write.name in times]
        return time.monotonic() - max(grew, default=time.monotonic())

    def heal(self) -> None:
        """Its network is whole, too."""
        self.fault.disarm()
        for network in self.networks:
            network.heal()
        self.driver_network.heal()
        self.drivers.go_on()


def driver_terminated(victim: Victim, step: Step) -> None:
    """A successor is started."""
    terminated(victim)
    time.sleep(step.seconds)


def _sides(victim: Victim, random: Random) -> Sequence[SinkNetwork]:
    """The network of its driver, of its executors, or both."""
    sides = [(network,) for network in victim.networks]
    return pick(sides if len(sides) == 1 else [*sides, tuple(victim.networks)], random)


def cut_off_from_a_broker(victim: Victim, step: Step) -> None:
    """The workload cannot reach one broker; the brokers reach each other."""
    random = step.random()
    node = pick(victim.kafka.local.node_ids, random)
    _part([network.proxies[node] for network in _sides(victim, random)], step)


def cut_off_from_all_brokers(victim: Victim, step: Step) -> None:
    _part([proxy for network in _sides(victim, step.random()) for proxy in network.proxies.values()], step)


def _part(proxies: Sequence[Proxy], step: Step) -> None:
    for proxy in proxies:
        proxy.part()
    time.sleep(step.seconds)
    for proxy in proxies:
        proxy.heal()


def connections_fall_silent(victim: Victim, step: Step) -> None:
    """No byte comes through, and no connection is closed: as if a firewall had dropped its state."""
    sides = _sides(victim, step.random())
    if not sum(proxy.silence() for network in sides for proxy in network.proxies.values()):
        raise NotReachedError
    time.sleep(step.seconds)


def requests_arrive_late(victim: Victim, step: Step) -> None:
    """Parted on one side: a broker gets nothing, then everything, also what the sink has given up and sent again."""
    _parted_on_one_side(victim, step, Direction.TO_BROKER)


def responses_arrive_late(victim: Victim, step: Step) -> None:
    """Parted on the other side: a broker gets and does everything, and the sink hears nothing of it."""
    _parted_on_one_side(victim, step, Direction.TO_CLIENT)


def _parted_on_one_side(victim: Victim, step: Step, direction: Direction) -> None:
    """One broker, or all of them; up to four times as long as a request's timeout."""
    random = step.random()
    nodes = victim.kafka.local.node_ids
    chosen = nodes if random.random() < _ALL else [pick(nodes, random)]
    gates = [network.gates[node] for network in _sides(victim, random) for node in chosen]
    for gate in gates:
        gate.close(direction)
    time.sleep(2 * step.seconds)
    for gate in gates:
        gate.heal()


def network_is_slow(victim: Victim, step: Step) -> None:
    gates = [gate for network in victim.networks for gate in network.gates.values()]
    for gate in gates:
        gate.delay(_SLOW_S)
    time.sleep(step.seconds)
    for gate in gates:
        gate.heal()


def response_lost(victim: Victim, step: Step) -> None:
    """A broker does what it is asked, and the connection breaks before its response."""
    api = _RESPONSES[pick(list(_RESPONSES), step.random())]
    proxies = [proxy for network in victim.networks for proxy in network.proxies.values()]
    for proxy in proxies:
        proxy.cut_request(api, Direction.TO_CLIENT)
    lost = await_that(lambda: any(proxy.is_cut for proxy in proxies), _HAPPENS_S)
    for proxy in proxies:  # the others would cut a response later
        proxy.heal()
    if not lost:
        raise NotReachedError


def request_delivered_late(victim: Victim, step: Step) -> None:
    """A request stays in the network, is repeated on another connection, and arrives afterwards."""
    random = step.random()
    _delivered_late(victim, step, pick(list(_REQUESTS), random), random)


def produce_delivered_late(victim: Victim, step: Step) -> None:
    """The same with a Produce request, whose rows the broker has then, or whose transaction may have ended."""
    _delivered_late(victim, step, "Produce", step.random())


def _delivered_late(victim: Victim, step: Step, api: str, random: Random) -> None:
    """One request alone, on its way to one broker."""
    networks = victim.networks[:1] if api == _OF_DRIVERS else victim.networks
    proxy = pick(networks, random).proxies[pick(victim.kafka.local.node_ids, random)]
    proxy.hold_request(_RESPONSES[api])
    if not await_that(lambda: proxy.holds, _HAPPENS_S):
        proxy.heal()  # drops a request that came after the last look, too
        raise NotReachedError
    await_that(lambda: proxy.is_repeated, _REPEATED_S)
    time.sleep(step.seconds)
    victim.record("late", api=api, repeated=proxy.is_repeated)
    with suppress(OSError, asyncio.IncompleteReadError):  # the broker is down, and the request lost
        proxy.deliver()


TROUBLES: dict[str, Trouble[Victim]] = {
    **of_chaos.TROUBLES,
    **table_of(
        trouble(driver_terminated, Group.PROCESSES, "driver", weight=2),
        trouble(cut_off_from_a_broker, Group.NETWORK, "network", weight=2),
        trouble(cut_off_from_all_brokers, Group.NETWORK, "network"),
        trouble(connections_fall_silent, Group.NETWORK, "network", weight=2),
        trouble(requests_arrive_late, Group.NETWORK, "network", weight=3),
        trouble(responses_arrive_late, Group.NETWORK, "network", weight=2),
        trouble(network_is_slow, Group.NETWORK, "network"),
        trouble(response_lost, Group.NETWORK, "network", weight=3),
        trouble(request_delivered_late, Group.NETWORK, "network", "transactions", weight=3),
        trouble(produce_delivered_late, Group.NETWORK, "network", weight=3),
        trouble(brokers_parted, Group.BROKERS, "brokers", weight=2),
        trouble(brokers_parted_on_one_side, Group.BROKERS, "brokers", weight=2),
        trouble(controller_parted, Group.BROKERS, "brokers", weight=2),
        trouble(driver_parted_from_executors, Group.NETWORK, "driver", "executors", weight=2),
        trouble(topics_grown, Group.SETTINGS, "rights"),
        trouble(topic_recreated, Group.SETTINGS, "brokers", "rights", "point", weight=2),
        trouble(query_stopped, Group.PROCESSES, "driver", "point", "query", weight=2),
        trouble(options_switched, Group.SETTINGS, "driver"),
        trouble(clocks_are_off, Group.PROCESSES, "driver"),
        trouble(older_sink, Group.SETTINGS, "driver"),
        trouble(broker_upgraded, Group.BROKERS, "brokers", every=3),  # or a run would end before all are upgraded
    ),
}


def troubles_for(workloads: Iterable[Workload], *, upgrades: bool, older_sink: bool) -> dict[str, Trouble[Victim]]:
    """Those that a run can do."""
    left_out = {name for name, possible in (("broker upgraded", upgrades), ("older sink", older_sink)) if not possible}
    chosen = list(workloads)
    return {
        name: each
        for name, each in TROUBLES.items()
        if name not in left_out and any(_fits(workload, each.needs) for workload in chosen)
    }


def _fits(workload: Workload, needs: frozenset[str]) -> bool:
    """Whether the workload has what a trouble needs: executors, transactions and processes that come to their steps, or
    a query."""
    exactly_once = any(write.exactly_once for write in workload.writes)
    has = {
        "executors": workload.has_executors,
        "point": exactly_once,
        "transactions": exactly_once,
        "query": workload.is_query or workload.in_batches,
    }
    return all(has.get(need, True) for need in needs)


def victim_of(step: Step, victims: Mapping[str, Victim]) -> Victim:
    """The one that it is drawn for, of those that have what the trouble needs."""
    needs = TROUBLES[step.trouble].needs
    fitting = [each for each in victims.values() if _fits(each.workload, needs)]
    return pick(fitting, step.random("victim"))
