"""P2's abort: Spark gives a batch up while its commit may still be running in another process."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.endings import raises
from tests.model.scenario import Scenario
from tests.model.world import (
    OVER,
    UNCALLED,
    Abort,
    Part,
    Prepared,
    Run,
    Waiting,
    World,
    abort_exactly,
    all_slots,
    end,
    initialise,
    standing,
    with_abort,
)

Steps = Iterator[tuple[str, World]]


def give_up(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """A task failed: the run is over. With every message in, commit may be running, and live on beside the abort."""
    if not scenario.aborts or world.aborts[index] != UNCALLED:
        return
    if any(type(part) is Waiting for part in run.tasks):
        after = raises(world, scenario, index, run)
    else:
        after = with_abort(world, index, Abort("called", run.batch, run.tasks))
    yield f"run {index}: Spark gives batch {run.batch} up", after


def take_fence(world: World, scenario: Scenario, index: int, abort: Abort) -> Steps:
    takes = scenario.has("fence") and scenario.has("abort fence")
    changes = {"fence": ~index} if takes else {}
    what = "takes the fence" if takes else "starts"
    yield f"abort of run {index} {what}", with_abort(world, index, abort._replace(phase="fenced"), **changes)


def read_ledger(world: World, scenario: Scenario, index: int, abort: Abort) -> Steps:
    """It may know no query id (every message None), so it finishes whatever stands under the prefix."""
    found = standing(world.ledger) if scenario.has("abort reads") else ()
    todo = frozenset((task, world.ledger[query].parts[task]) for query, task in found)
    if todo:
        finishing = with_abort(world, index, abort._replace(phase="finishing", todo=todo))
        yield f"abort of run {index} finds an intent and finishes it", finishing
    else:
        yield f"abort of run {index} finds no intent", with_abort(world, index, _aborting(abort))


def finish(world: World, scenario: Scenario, index: int, abort: Abort) -> Steps:
    for item in abort.todo:
        task, prepared = item
        answer, after = end(world, scenario, task, prepared)
        todo = abort.todo - {item}
        left = abort._replace(todo=todo) if todo else _aborting(abort)
        yield f"abort of run {index} finishes task {task}: {answer}", with_abort(after, index, left)


def _aborting(abort: Abort) -> Abort:
    todo = frozenset(filter(_to_abort, enumerate(abort.messages)))
    return Abort("aborting", todo=todo) if todo else OVER


def _to_abort(item: tuple[int, Part | None]) -> bool:
    return item[1] is None or type(item[1]) is Prepared


def abort_transactions(world: World, scenario: Scenario, index: int, abort: Abort) -> Steps:
    """A message names one epoch of one id: nobody else is touched. Without one the id is initialised, whoever
    holds it.
    """
    for item in abort.todo:
        task, prepared = item
        after = world
        if prepared is not None:
            after = abort_exactly(world, scenario.slot(task, prepared.attempt), prepared)
        else:
            for slot in all_slots(scenario, task):
                after = initialise(after, slot, None)
        todo = abort.todo - {item}
        left = Abort("aborting", todo=todo) if todo else OVER
        yield f"abort of run {index} aborts task {task}", with_abort(after, index, left)
