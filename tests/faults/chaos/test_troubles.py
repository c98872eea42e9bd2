"""What troubles strike, without brokers and processes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from spark_kafka_sink.exactly_once.ledger_topic import ledger_partitions
from tests.faults.chaos import troubles
from tests.faults.chaos.plan import Step
from tests.faults.chaos.troubles import (
    ABORT,
    COMMIT,
    LEDGER,
    PLANNING,
    TASK,
    NotReachedError,
    _rights,
    driver_replaced,
    election_inside_commit,
    killed_at_a_point,
    rights_revoked,
)
from tests.faults.support import kill_points
from tests.faults.support.fault import Fault
from tests.faults.support.kill_points import FaultInjectedError

DRAWS = [number / 300 for number in range(300)]
NAME = "txn-nightly"
IDS = [f"{NAME}-0", f"{NAME}-1", f"{NAME}-driver"]
FRESH = ["once-7-ab-0.3", "once-7-ab-driver"]


def step(draw):
    return Step("", 0.0, 0.0, draw)


class Brokers:
    """``done``: what became of them. The leader of what is asked for is another one as soon as it is paused."""

    def __init__(self, ids=()):
        self.done = []
        self._ids = ids
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

    def revoke(self, right):
        self._note(f"revoked {right}")

    def give_back(self, right):
        self._note(f"gave back {right}")

    def transactional_ids(self, prefix):
        return [name for name in self._ids if name.startswith(prefix)]

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


def victim(ids=IDS, prefix=f"{NAME}-", happened=True):
    drivers = SimpleNamespace(own_processes=list, abandon=lambda: None)
    return SimpleNamespace(
        kafka=Brokers(ids), fault=Armed(happened), drivers=drivers, topic="nightly", rows=0, id_prefix=prefix,
        write_name=NAME,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(troubles, "REACHED_S", 0.0)


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


def names_of_rights(hit):
    return {
        (right.name, right.operation.name) for right in _rights(hit) if right.resource is ResourceType.TRANSACTIONAL_ID
    }


def test_rights_are_those_on_ids_that_there_are():
    of_all = {(f"{NAME}-*", "WRITE"), (f"{NAME}-*", "DESCRIBE")}
    assert names_of_rights(victim()) == {*of_all, (f"{NAME}-driver", "WRITE"), (f"{NAME}-1", "DESCRIBE")}
    assert names_of_rights(victim([f"{NAME}-0"])) == of_all
    assert names_of_rights(victim(FRESH, "once-")) == {("once-*", "WRITE"), ("once-*", "DESCRIBE")}
    assert names_of_rights(victim([])) == set()


def test_a_write_without_transactions_needs_its_topic_only():
    assert [(right.name, right.operation) for right in _rights(victim(prefix=""))] == [("nightly", AclOperation.WRITE)]


def test_every_right_is_revoked_and_given_back():
    revoked = set()
    for draw in DRAWS:
        hit = victim()
        rights_revoked(hit, step(draw))
        first, last = hit.kafka.done
        assert last.removeprefix("gave back") == first.removeprefix("revoked")
        revoked.add(first.removeprefix("revoked "))
    assert revoked == set(map(str, _rights(victim())))


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


def test_a_step_decides_the_same_again_and_its_decisions_are_independent():
    assert step(0.3).random().random() == step(0.3).random().random()
    decided = set()
    for draw in DRAWS:
        random, other = step(draw).random(), step(draw).random("victim")
        decided.add((random.random() < 0.5, random.random() < 0.5, other.random() < 0.5))
    assert len(decided) == 2**3


def test_a_process_fails_at_one_step_and_another_one_is_held_up_at_the_next(tmp_path, monkeypatch):
    fault = Fault(tmp_path / "fault")
    monkeypatch.setenv(kill_points.VARIABLE, str(fault.file))
    (done,) = ABORT
    fault.arm(done, "fail", after="before the intent")
    kill_points.reach(done)
    assert not fault.happened
    with pytest.raises(FaultInjectedError, match="before the intent"):
        kill_points.reach("before the intent")
    kill_points._trip("before the intent")  # a process that has found it armed, and was slower
    assert not fault.happened
    with pytest.raises(FaultInjectedError, match=done):
        kill_points.reach(done)
    assert fault.happened
    kill_points.reach(done)
