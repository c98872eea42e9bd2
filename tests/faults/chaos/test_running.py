"""What a run notes of its steps, and that it heals what they have troubled."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.faults.chaos.plan import Step
from tests.faults.chaos.running import RunError, TroubledRun
from tests.faults.chaos.troubles import Group, NotReachedError, table_of, trouble


def strikes(hit, step):
    hit.done.append("struck")


def misses(hit, step):
    hit.done.append("armed")
    raise NotReachedError


def fails(hit, step):
    raise KeyError(step.trouble)


class Run(TroubledRun):
    """``done``: what became of the only thing that it troubles."""

    def __init__(self):
        each = (trouble(act, Group.PROCESSES) for act in (strikes, misses, fails))
        super().__init__(SimpleNamespace(heal=lambda: self.done.append("brokers healed")), table_of(*each), print)
        self.done, self.notes = [], []
        self.rows = 7
        self.fault = SimpleNamespace(disarm=lambda: self.done.append("disarmed"))
        self.drivers = SimpleNamespace(log_tail=lambda: "the last line")

    def heal(self):
        self.done.append("healed")

    def _hits(self):
        return {"it": self}

    def _drawn(self, step):
        return "it"

    def _note(self, step, name, phase):
        self.notes.append((step.trouble, name, phase))

    def _check_readers(self):
        pass


def step(name):
    return Step(name, 0.0, 0.0, 0.5)


@pytest.mark.parametrize(
    ("name", "notes", "done"),
    [("strikes", ["begins", "ends"], ["struck"]), ("misses", ["begins", "missed"], ["armed", "disarmed"])],
)
def test_a_step_strikes_or_misses_and_everything_is_healed(name, notes, done):
    run = Run()
    run.act(3, [step(name)])
    assert run.notes == [(name, "it", note) for note in notes]
    assert run.done == [*done, "healed", "brokers healed"]
    assert (run.rounds, run.now) == (3, {})


def test_a_step_that_fails_ends_the_run():
    run = Run()
    run._act(step("fails"))
    with pytest.raises(RunError, match="fails.*KeyError"):
        run.check()
    assert run.notes == [("fails", "it", "begins")]


def test_a_run_waits_until_there_are_enough_rows():
    run = Run()
    run.await_rows({"it": 7}, "it goes on", 0.0)
    with pytest.raises(RunError, match="waited 0 s in vain until it goes on\\nit:\\nthe last line"):
        run.await_rows({"it": 8}, "it goes on", 0.0)
