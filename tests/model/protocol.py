"""The protocol as one literal list of rules: what may happen next in any state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.model import aborting, committing, planning, promises, surroundings, tasks, topics
from tests.model.engine import Question
from tests.model.scenario import Scenario
from tests.model.world import World, first


class Rule(NamedTuple):
    """``whose``: a rule of each run or abort that is in one of ``phases``, or of the world."""

    name: str
    whose: str
    phases: tuple[str, ...]
    steps: Callable[..., Iterator[tuple[str, World]]]


RULES: tuple[Rule, ...] = (
    Rule("Spark starts a run", "run", ("idle",), planning.start),
    Rule("P1 takes the fence", "run", ("planned",), planning.take_fence),
    Rule("P1 reads the ledger", "run", ("fenced",), planning.read_ledger),
    Rule("P1 finishes what stands", "run", ("finishing",), planning.finish),
    Rule("P1 sweeps what was left open", "run", ("sweeping",), planning.sweep),
    Rule("a task's attempt begins", "run", ("tasks",), tasks.begin),
    Rule("a task's attempt writes", "run", ("tasks",), tasks.write),
    Rule("a task's attempt fails", "run", ("tasks",), tasks.fail),
    Rule("Spark retries a task", "run", ("tasks",), tasks.retry),
    Rule("a zombie attempt wakes", "world", (), tasks.wake),
    Rule("rows arrive late", "world", (), tasks.arrive_late),
    Rule("a batch is written at-least-once", "run", ("at least once",), tasks.write_at_least_once),
    Rule("P2 records the intent", "run", ("tasks",), committing.commit),
    Rule("P2 records the intent in time", "run", ("checked",), committing.decide),
    Rule("P2 repeats the intent's EndTxn", "run", ("unsure",), committing.ask_again),
    Rule("P2 ends the tasks' transactions", "run", ("ending",), committing.end_transactions),
    Rule("Spark commits the batch", "run", ("committed",), committing.spark_commits),
    Rule("Spark gives the batch up", "run", aborting.GIVEN_UP, aborting.give_up),
    Rule("abort takes the fence", "abort", ("called", "listed"), aborting.take_fence),
    Rule("abort lists what is open", "abort", ("listing",), aborting.list_open),
    Rule("a fenced abort ends its own", "abort", ("out",), aborting.end_own),
    Rule("abort reads the ledger", "abort", ("fenced",), aborting.read_ledger),
    Rule("abort finishes an intent", "abort", ("finishing",), aborting.finish),
    Rule("abort aborts", "abort", ("aborting",), aborting.abort_transactions),
    Rule("a transaction times out", "world", (), surroundings.time_out),
    Rule("an EndTxn arrives late", "world", (), surroundings.arrive),
    Rule("time passes", "world", (), surroundings.tick),
    Rule("a run is killed", "run", surroundings.AT_WORK, surroundings.crash),
    Rule("the ledger is lost", "world", (), surroundings.lose_ledger),
    Rule("a topic is deleted", "world", (), topics.delete),
    Rule("a topic is created again", "world", (), topics.create),
    Rule("an older checkpoint is restored", "world", (), surroundings.restore_checkpoint),
)


def _by_phase(whose: str) -> dict[str, list[Rule]]:
    phases: dict[str, list[Rule]] = {}
    for rule in RULES:
        for phase in rule.phases if rule.whose == whose else ():
            phases.setdefault(phase, []).append(rule)
    return phases


_OF_RUNS, _OF_ABORTS = _by_phase("run"), _by_phase("abort")
_OF_THE_WORLD = [rule for rule in RULES if rule.whose == "world"]


def question(scenario: Scenario) -> Question[World]:
    """Everything that can happen in a scenario, and what must not."""
    return Question(
        start=first(scenario),
        steps=lambda world: _steps(world, scenario),
        broken=lambda world: world.broken,
        unfinished=lambda world: promises.unfinished(world, scenario),
    )


def _steps(world: World, scenario: Scenario) -> Iterator[tuple[str, str, World]]:
    for processes, of_phase in ((world.runs, _OF_RUNS), (world.aborts, _OF_ABORTS)):
        for index, process in enumerate(processes):
            for rule in of_phase.get(process.phase, ()):
                for what, after in rule.steps(world, scenario, index, process):
                    yield rule.name, what, after
    for rule in _OF_THE_WORLD:
        for what, after in rule.steps(world, scenario):
            yield rule.name, what, after
