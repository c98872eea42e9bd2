"""Which networks are parted, without brokers."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from itertools import permutations

import pytest

from spark_kafka_sink.testing.kafka_node import CONTROLLER
from tests.faults.chaos.plan import Step
from tests.faults.chaos.troubles import NotReachedError
from tests.faults.support.proxy import LOOPBACK, Direction
from tests.histories import job, partings
from tests.histories.hooks import PROXIES, PROXIES_OF_EXECUTORS
from tests.histories.partings import (
    DriverNetwork,
    brokers_parted,
    brokers_parted_on_one_side,
    controller_parted,
    driver_parted_from_executors,
)
from tests.histories.workloads import DRIVER_HOST, DRIVER_PORTS
from tests.waiting import DEADLINE_S


class Brokers:
    """Three of them, the second one's controller is active; ``done`` has what was parted."""

    node_ids = (1, 2, 3)

    def __init__(self, lines=1):
        self.done = []
        self.local = self.kafka = self
        self._lines = lines

    def controller(self):
        return 2

    def part(self, node, others, listeners=("all",)):
        self.done += [f"{node} from {other} on {listener}" for other in others for listener in listeners]
        return self._lines

    def hold(self, sender, receiver, listeners=("all",)):
        self.done += [f"{sender} to {receiver} on {listener}" for listener in listeners]
        return self._lines

    def heal_network(self):
        self.done.append("healed")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(partings, "_NOTICED_S", 0.0)


def step(draw):
    return Step("", 0.0, 0.0, draw)


def done_by(trouble):
    """What is done by some draw."""
    found = set()
    for draw in range(1000):
        brokers = Brokers()
        trouble(brokers, step(draw / 1000))
        assert brokers.done.pop() == "healed"
        found.add(frozenset(brokers.done))
    return found


IDS = Brokers.node_ids


def test_a_broker_is_parted_from_another_one_or_from_all():
    ways = [*permutations(IDS, 2)]
    one_breaks = {frozenset([f"{node} from {other} on all"]) for node, other in ways}
    one_waits = {frozenset([f"{node} to {other} on all", f"{other} to {node} on all"]) for node, other in ways}
    all_break = {frozenset(f"{node} from {other} on all" for other in IDS if other != node) for node in IDS}
    all_wait = {frozenset(f"{one} to {other} on all" for one, other in ways if node in (one, other)) for node in IDS}
    assert done_by(brokers_parted) == one_breaks | one_waits | all_break | all_wait


def test_a_broker_is_parted_on_one_side():
    ways = [*permutations(IDS, 2)]
    one = {frozenset([f"{node} to {other} on all"]) for node, other in ways}
    sends = {frozenset(f"{node} to {other} on all" for other in IDS if other != node) for node in IDS}
    gets = {frozenset(f"{other} to {node} on all" for other in IDS if other != node) for node in IDS}
    assert done_by(brokers_parted_on_one_side) == one | sends | gets


def test_the_active_controller_is_parted():
    assert done_by(controller_parted) == {
        frozenset([f"2 from 1 on {CONTROLLER}", f"2 from 3 on {CONTROLLER}"]),
        frozenset([f"2 to 1 on {CONTROLLER}", f"2 to 3 on {CONTROLLER}"]),
        frozenset([f"1 to 2 on {CONTROLLER}", f"3 to 2 on {CONTROLLER}"]),
    }


@pytest.mark.parametrize("trouble", [brokers_parted, brokers_parted_on_one_side, controller_parted])
def test_a_network_without_a_connection_cannot_be_parted(trouble):
    with pytest.raises(NotReachedError):
        trouble(Brokers(lines=0), step(0.1))


@pytest.fixture
def network():
    with ExitStack() as stack:
        yield DriverNetwork(stack)


def test_executors_reach_a_driver_by_the_ports_that_it_is_given(network, monkeypatch):
    variables = network.variables()
    monkeypatch.setenv(DRIVER_PORTS, variables[DRIVER_PORTS])
    for name in (*job._OF_EXECUTORS, PROXIES):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setenv(PROXIES_OF_EXECUTORS, "their own")
    settings = job.settings_of_spark("spark://here:1")
    assert settings[f"spark.executorEnv.{PROXIES}"] == "their own"
    assert settings["spark.driver.host"] == DRIVER_HOST
    for name in ("spark.driver.port", "spark.driver.blockManager.port"):
        port = int(settings[name])
        with (
            socket.create_server((settings["spark.driver.bindAddress"], port)) as driver,
            socket.create_connection((DRIVER_HOST, port), DEADLINE_S) as executor,
        ):
            executor.sendall(b"a")
            assert driver.accept()[0].recv(10) == b"a"


def test_each_driver_has_ports_of_its_own(network):
    assert network.variables() != network.variables()


def test_a_driver_is_parted_from_its_executors_until_the_network_heals(network):
    port = int(network.variables()[DRIVER_PORTS].split()[0])
    with socket.create_server((LOOPBACK, port)) as driver, socket.create_connection((DRIVER_HOST, port)) as executor:
        line = driver.accept()[0]
        assert network.close(Direction.TO_BROKER) == 1
        executor.sendall(b"a")
        line.settimeout(0.2)
        with pytest.raises(TimeoutError):
            line.recv(10)
        line.settimeout(DEADLINE_S)
        network.heal()
        assert line.recv(10) == b"a"
        assert network.part() == 1
        assert line.recv(10) == b""


class Driver:
    """``done``: what became of its network."""

    def __init__(self, lines):
        self.done = []
        self.driver_network = self
        self._lines = lines

    def part(self):
        self.done.append("parted")
        return self._lines

    def close(self, direction):
        self.done.append(f"no {direction.value}")
        return self._lines

    def heal(self):
        self.done.append("healed")


def test_a_driver_is_parted():
    found = set()
    for draw in range(300):
        driver = Driver(1)
        driver_parted_from_executors(driver, step(draw / 300))
        assert driver.done.pop() == "healed"
        found.add(tuple(driver.done))
    assert found == {("parted",), ("no requests",), ("no responses",), ("no requests", "no responses")}
    with pytest.raises(NotReachedError):
        driver_parted_from_executors(Driver(0), step(0.1))
