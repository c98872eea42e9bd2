"""What troubles strike, without brokers and processes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spark_kafka_sink.exactly_once.ledger_topic import ledger_partitions
from tests.soak import network_troubles, troubles
from tests.soak.network_troubles import (
    connections_fall_silent,
    cut_off_from_a_broker,
    produce_delivered_late,
    requests_arrive_late,
    response_lost,
)
from tests.soak.plan import Step
from tests.soak.troubles import (
    ABORT,
    COMMIT,
    LEDGER,
    PLANNING,
    TASK,
    NotReachedError,
    driver_replaced,
    election_inside_commit,
    killed_at_a_point,
)
from tests.soak.workloads import WORKLOADS

DRAWS = [number / 300 for number in range(300)]
NAME = "txn-nightly"


def step(draw):
    return Step("", 0.0, 0.0, draw)


class Brokers:
    """``done``: what became of them. The leader of what is asked for is another one as soon as it is paused."""

    def __init__(self):
        self.done = []
        self._leader = 1

    def leader(self, topic, partition):
        self._note(f"leader of {topic}-{partition}")
        return self._leader

    def coordinator(self, transactional_id):
        self._note(f"coordinator of {transactional_id}")
        return self._leader

    def pause(self, node):
        self._note(f"paused {node}")
        self._leader = 2

    def resume(self, node):
        self._note(f"resumed {node}")

    def _note(self, what):
        if what not in self.done:
            self.done.append(what)


class Armed:
    """A fault that happens at once, or never."""

    def __init__(self, happened=True):
        self.done = []
        self.happened = happened

    def arm(self, point, action="kill", after=None):
        self.done.append((point, action, after))

    def wake(self):
        self.done.append("woken")


def victim(happened=True):
    workload = WORKLOADS["nightly"]
    drivers = SimpleNamespace(own_processes=list, abandon=lambda: None)
    return SimpleNamespace(
        kafka=Brokers(), fault=Armed(happened), drivers=drivers, workload=workload, write=workload.writes[0], rows=0
    )


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(troubles, "REACHED_S", 0.0)
    monkeypatch.setattr(network_troubles, "_HAPPENS_S", 0.0)
    monkeypatch.setattr(network_troubles, "_REPEATED_S", 0.0)


def test_an_election_strikes_what_the_running_write_needs():
    struck = set()
    for draw in DRAWS:
        hit = victim()
        election_inside_commit(hit, step(draw))
        asked, *done = hit.kafka.done
        assert done == ["paused 1", "resumed 1"]
        struck.add(asked)
    partition = ledger_partitions(NAME, LEDGER).partition
    assert struck == {f"leader of {LEDGER}-{partition}", f"coordinator of {NAME}-driver"}


@pytest.mark.parametrize(
    ("trouble", "action", "points"),
    [
        (killed_at_a_point, "kill", (*PLANNING, *TASK, *COMMIT, *ABORT)),
        (driver_replaced, "stop", (*PLANNING, *COMMIT, *ABORT)),
    ],
)
def test_a_write_fails_before_its_abort_is_struck(trouble, action, points):
    armed = set()
    for draw in DRAWS:
        hit = victim()
        trouble(hit, step(draw))
        armed.update(hit.fault.done)
    assert armed == {(point, action, "before the intent" if point in ABORT else None) for point in points}


def test_a_point_to_which_no_process_comes_is_not_struck():
    with pytest.raises(NotReachedError):
        killed_at_a_point(victim(happened=False), step(0.5))


class Way:
    """The proxy or the gate before a broker, by which no request comes."""

    holds = is_cut = False

    def __init__(self):
        self.struck = self.armed = False

    def hold_request(self, *_):
        self.armed = True

    cut_request = hold_request

    def part(self, *_):
        self.struck = True
        return 1

    silence = close = part

    def heal(self):
        self.armed = False


def network(*sides):
    """A victim with these proxies, or gates, of its driver, and those of its executors."""
    ways = [dict(enumerate(each, 1)) for each in sides]
    brokers = SimpleNamespace(local=SimpleNamespace(node_ids=(*ways[0],)))
    return SimpleNamespace(networks=[SimpleNamespace(proxies=each, gates=each) for each in ways], kafka=brokers)


@pytest.mark.parametrize(
    ("count", "sides"), [(1, {(True,)}), (2, {(True, False), (False, True), (True, True)})], ids=["local", "cluster"]
)
@pytest.mark.parametrize("trouble", [cut_off_from_a_broker, connections_fall_silent, requests_arrive_late])
def test_a_driver_and_its_executors_are_struck_alone_or_together(trouble, count, sides):
    struck = set()
    for draw in DRAWS:
        networks = [[Way() for _ in range(3)] for _ in range(count)]
        trouble(network(*networks), step(draw))
        struck.add(tuple(any(way.struck for way in each) for each in networks))
    assert struck == sides


@pytest.mark.parametrize("trouble", [produce_delivered_late, response_lost])
def test_a_request_that_did_not_come_in_time_is_not_struck_later(trouble):
    ways = [Way()]
    with pytest.raises(NotReachedError):
        trouble(network(ways), step(0.5))
    assert not ways[0].armed
