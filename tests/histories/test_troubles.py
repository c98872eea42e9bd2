"""Which requests and responses are held back or lost, on whose network, and what is known of a write's name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.faults.chaos.plan import Step
from tests.faults.chaos.troubles import NotReachedError
from tests.histories import troubles
from tests.histories.troubles import (
    TROUBLES,
    Victim,
    connections_fall_silent,
    cut_off_from_a_broker,
    produce_delivered_late,
    requests_arrive_late,
    response_lost,
)
from tests.histories.troubles import victim_of as drawn
from tests.histories.workloads import CONTROL, LETTERS, NIGHTLY, ONCE, PAIRS, RUNNING_FILE, WORKLOADS


class Holding:
    """The proxy before a broker. ``asked``: whether the request comes by it, ``again``: whether it comes once more."""

    def __init__(self, asked, again=False):
        self.done = []
        self._asked, self.is_repeated = asked, again

    def hold_request(self, api):
        self.done.append(f"hold {api}")

    @property
    def holds(self):
        return self._asked and "delivered" not in self.done

    def deliver(self):
        self.done.append("delivered")

    def heal(self):
        self.done.append("healed")


class Cutting:
    """The proxy before a broker that cuts a response. ``asked``: whether its request comes by the proxy."""

    def __init__(self, asked):
        self._asked, self.armed = asked, False

    def cut_request(self, api, direction):
        self.armed = True

    @property
    def is_cut(self):
        return self._asked or not self.armed

    def heal(self):
        self.armed = False


def victim_of(*networks, record=None):
    """``networks``: the proxies, or the gates, of its driver, and those of its executors."""
    ways = [dict(enumerate(each, 1)) for each in networks]
    brokers = SimpleNamespace(local=SimpleNamespace(node_ids=(*ways[0],)))
    return SimpleNamespace(
        networks=[SimpleNamespace(proxies=each, gates=each) for each in ways], kafka=brokers, record=record
    )


def strike(proxies, draw=0.5):
    """Returns what the history says of requests that were held back."""
    late = []
    victim = victim_of(proxies, record=lambda kind, **fields: late.append((kind, *fields.values())))
    produce_delivered_late(victim, Step("", 0.0, 0.0, draw))
    return late


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(troubles, "_HAPPENS_S", 0.0)
    monkeypatch.setattr(troubles, "_REPEATED_S", 0.0)


@pytest.mark.parametrize("again", [True, False])
def test_a_produce_request_is_held_back_and_no_other_one(again):
    proxies = [Holding(asked=True, again=again) for _ in range(3)]
    assert strike(proxies) == [("late", "Produce", again)]
    assert sorted(proxy.done for proxy in proxies) == [[], [], ["hold 0", "delivered"]]


def test_no_proxy_holds_a_request_back_that_did_not_come_in_time():
    """Also not one that comes after the last look."""
    proxies = [Holding(asked=False)]
    with pytest.raises(NotReachedError):
        strike(proxies)
    assert proxies[0].done == ["hold 0", "healed"]


def test_one_response_is_lost_and_no_other_one_later():
    proxies = [Cutting(asked=node == 2) for node in (1, 2, 3)]
    response_lost(victim_of(proxies), Step("", 0.0, 0.0, 0.5))
    assert not any(proxy.armed for proxy in proxies)


def test_no_response_is_lost_that_did_not_come_in_time():
    proxy = Cutting(asked=False)
    with pytest.raises(NotReachedError):
        response_lost(victim_of([proxy]), Step("", 0.0, 0.0, 0.5))
    assert not proxy.armed


class Way:
    """The proxy or the gate before a broker."""

    def __init__(self):
        self.struck = False

    def part(self):
        self.struck = True

    def silence(self):
        self.struck = True
        return 1

    def close(self, direction):
        self.struck = True

    def heal(self):
        pass


DRAWS = [number / 300 for number in range(300)]


@pytest.mark.parametrize("trouble", [cut_off_from_a_broker, connections_fall_silent, requests_arrive_late])
@pytest.mark.parametrize(
    ("count", "sides"),
    [(1, {(True,)}), (2, {(True, False), (False, True), (True, True)})],
    ids=["local", "cluster"],
)
def test_a_driver_and_its_executors_are_struck_alone_or_together(trouble, count, sides):
    struck = set()
    for draw in DRAWS:
        networks = [[Way() for _ in range(3)] for _ in range(count)]
        trouble(victim_of(*networks), Step("", 0.0, 0.0, draw))
        struck.add(tuple(any(way.struck for way in each) for each in networks))
    assert struck == sides


def victim(workload, folder):
    drivers = SimpleNamespace(folder=folder)
    return Victim(workload, None, drivers, None, (None, None), None, [], None, None)


@pytest.mark.parametrize(
    ("workload", "running", "name", "prefix"),
    [
        (LETTERS, None, "letters", "letters-"),
        (NIGHTLY, "nightly/3", "txn-nightly", "txn-nightly-"),
        (PAIRS, "pairs-one/3", "txn-pairs-one", "txn-pairs-one-"),
        (PAIRS, "pairs-two/3", "txn-pairs-two", "txn-pairs-one-"),
        (ONCE, "once/12", "txn-once-12", "txn-once-"),
        (CONTROL, None, "", ""),
    ],
)
def test_the_name_of_the_running_write_is_known(workload, running, name, prefix, tmp_path):
    if running is not None:
        (tmp_path / RUNNING_FILE).write_text(running)
    assert (victim(workload, tmp_path).write_name, victim(workload, tmp_path).id_prefix) == (name, prefix)


def test_every_workload_that_has_what_a_trouble_needs_is_drawn(tmp_path):
    victims = {name: victim(workload, tmp_path) for name, workload in WORKLOADS.items()}
    found = {
        trouble: {drawn(Step(trouble, 0.0, 0.0, draw), victims).workload.name for draw in DRAWS}
        for trouble in ("driver killed", "query stopped", "executor killed")
    }
    assert found == {"driver killed": {*WORKLOADS}, "query stopped": {"letters", "pairs"}, "executor killed": {"pairs"}}
    assert found.keys() <= TROUBLES.keys()
