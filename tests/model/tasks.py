"""The tasks of a batch: an attempt initialises its id, writes rows and marker, flushes, leaves the transaction open."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.endings import raises, zombies
from tests.model.scenario import ATTEMPTS, Scenario
from tests.model.world import Prepared, Run, Txn, Waiting, World, initialise, put, spend, with_run

Steps = Iterator[tuple[str, World]]


def begin(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    for task, attempt, state in _attempts(run):
        if state != "new":
            continue
        after = initialise(world, scenario.slot(task, attempt), Prepared(index, run.batch, attempt))
        begun = with_run(after, index, _now(run, task, attempt, "initialised"))
        yield f"run {index} task {task}.{attempt} initialises its id", begun


def write(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    for task, attempt, state in _attempts(run):
        if state != "initialised":
            continue
        slot = scenario.slot(task, attempt)
        prepared = Prepared(index, run.batch, attempt)
        who = f"run {index} task {task}.{attempt}"
        if world.txns[slot].holder != prepared or world.txns[slot].state != "none":
            yield f"{who} is fenced", _failed(world, scenario, index, run, task, attempt)
            continue
        opened = world._replace(txns=put(world.txns, slot, Txn(prepared, "open")))
        named = zombies(opened, scenario, index, run._replace(tasks=_now(run, task, attempt, "over").tasks), task)
        yield f"{who} prepares", with_run(named, index, run._replace(tasks=put(run.tasks, task, prepared)))
        if scenario.retries:
            lost = _failed(opened, scenario, index, run, task, attempt)
            yield f"{who} prepares, its message is lost", lost


def retry(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """Spark believes an attempt dead (a lost executor, a speculative twin, a stage tried again). It may live on."""
    if not world.left.retries:
        return
    for task, waiting in enumerate(run.tasks):
        if type(waiting) is Waiting and len(waiting.attempts) < ATTEMPTS:
            again = Waiting((*waiting.attempts, "new"))
            after = spend(with_run(world, index, run._replace(tasks=put(run.tasks, task, again))), "retries")
            yield f"run {index}: Spark starts another attempt of task {task}", after


def wake(world: World, scenario: Scenario) -> Steps:
    """A zombie attempt, of whichever run, at last does what it was started for."""
    for slot, count in enumerate(world.sleepers):
        if count:
            after = initialise(world, slot, None)
            yield (
                f"a zombie attempt initialises id {slot}",
                after._replace(sleepers=put(world.sleepers, slot, count - 1)),
            )


def _attempts(run: Run) -> Iterator[tuple[int, int, str]]:
    for task, waiting in enumerate(run.tasks):
        if type(waiting) is Waiting:
            for attempt, state in enumerate(waiting.attempts):
                yield task, attempt, state


def _now(run: Run, task: int, attempt: int, state: str) -> Run:
    waiting = run.tasks[task]
    return run._replace(tasks=put(run.tasks, task, Waiting(put(waiting.attempts, attempt, state))))


def _failed(world: World, scenario: Scenario, index: int, run: Run, task: int, attempt: int) -> World:
    """One attempt is over. The batch fails with its last one, unless Spark has another to start."""
    after = _now(run, task, attempt, "over")
    attempts = after.tasks[task].attempts
    hope = world.left.retries and len(attempts) < ATTEMPTS
    if hope or any(state != "over" for state in attempts):
        return with_run(world, index, after)
    return raises(world, scenario, index, after)
