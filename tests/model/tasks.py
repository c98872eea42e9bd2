"""The tasks of a batch: an attempt initialises its id, writes rows and marker, flushes, leaves the transaction open."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model import topics
from tests.model.endings import raises, zombies
from tests.model.scenario import ATTEMPTS, Scenario
from tests.model.world import (
    Prepared,
    Run,
    Txn,
    Waiting,
    World,
    flushed,
    initialise,
    may_begin,
    opened,
    put,
    row_bits,
    spend,
    take,
    with_run,
)

LATE = ", long after its look at the driver"
Steps = Iterator[tuple[str, World]]


def begin(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """Just before it initialises its id, an attempt looks whether its plan's driver has been replaced."""
    for task, attempt, state in _attempts(run):
        if state != "new":
            continue
        who, begins = f"run {index} task {task}.{attempt}", may_begin(world, scenario, index)
        if not begins:
            yield f"{who} finds its driver replaced", _failed(world, scenario, index, run, task, attempt)
        if begins or world.left.late_inits:
            slot, prepared = scenario.slot(index, task), Prepared(index, run.batch, attempt)
            after = take(world if begins else spend(world, "late_inits"), scenario, index, slot, prepared)
            begun = with_run(after, index, _now(run, task, attempt, "initialised"))
            yield f"{who} initialises its id{'' if begins else LATE}", begun


def write(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """The first row opens the transaction. The rest, and the marker, follow at once, or (``mid_write``) later."""
    for task, attempt, state in _attempts(run):
        if state not in ("initialised", "writing"):
            continue
        slot = scenario.slot(index, task)
        prepared = Prepared(index, run.batch, attempt)
        who = f"run {index} task {task}.{attempt}"
        again = state == "writing" and scenario.protocol == "v1" and world.txns[slot].is_of(prepared, "none")
        if again:  # aborted by a sweep; rows of another partition open it again, as its epoch was not bumped
            partial = world._replace(txns=put(world.txns, slot, Txn(prepared, "partial")))
            reports = with_run(partial, index, run._replace(tasks=put(run.tasks, task, prepared)))
            yield f"{who} opens its transaction again and prepares", reports
            continue
        if not world.txns[slot].is_of(prepared, "open" if state == "writing" else "none"):
            yield f"{who} is fenced", _failed(world, scenario, index, run, task, attempt)
            continue
        if topics.lacks(world, scenario, scenario.rows(index, task)):
            yield f"{who} waits in vain for its topic", _failed(world, scenario, index, run, task, attempt)
            continue
        after = opened(world, slot, prepared) if state == "initialised" else world
        if scenario.mid_write and state == "initialised":
            yield f"{who} writes its first rows", with_run(after, index, _now(run, task, attempt, "writing"))
            continue
        after = flushed(after, slot)
        after = after._replace(txns=put(after.txns, slot, after.txns[slot]._replace(marked=True)))
        noted = topics.noted(world, scenario, scenario.rows(index, task))
        named = zombies(after, scenario, index, run._replace(tasks=_now(run, task, attempt, "over").tasks), task)
        yield (
            f"{who} prepares",
            with_run(named, index, run._replace(tasks=put(run.tasks, task, prepared), topics=run.topics | noted)),
        )
        if scenario.retries:
            lost = _failed(after, scenario, index, run, task, attempt)
            yield f"{who} prepares, its message is lost", lost


def fail(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """A row that cannot be written, a broker that refuses it: the task ends its own transaction, then raises.

    With v1 it leaves it open, as its EndTxn would not bump the epoch.
    """
    if not world.left.failures:
        return
    for task, attempt, state in _attempts(run):
        slot = scenario.slot(index, task)
        if state != "writing" or not world.txns[slot].is_of(Prepared(index, run.batch, attempt), "open"):
            continue
        after = spend(world, "failures")
        if scenario.has("failing tasks abort") and scenario.protocol == "v2":
            after = initialise(after, slot, None)
        yield f"run {index} task {task}.{attempt} fails", _failed(after, scenario, index, run, task, attempt)


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
    for position, (slot, run) in enumerate(world.sleepers):
        if run >= 0 or world.left.late_inits:
            left = world._replace(sleepers=world.sleepers[:position] + world.sleepers[position + 1 :])
            after = take(left if run >= 0 else spend(left, "late_inits"), scenario, run, slot, None)
            yield f"a zombie attempt initialises id {slot}{'' if run >= 0 else LATE}", after


def arrive_late(world: World, scenario: Scenario) -> Steps:
    """Rows of an attempt whose transaction was ended meanwhile: partitions go by the epochs that they have seen."""
    if not world.left.late_rows:
        return
    for slot, log in enumerate(world.logs):
        late, txn = log.writing, world.txns[slot]
        if late is not None and log.stray is None and not txn.is_of(late, "open"):
            after = spend(world, "late_rows")
            what = f"rows of run {late.run}, batch {late.batch} arrive late under id {slot}"
            yield what, after._replace(logs=put(world.logs, slot, log._replace(stray=late)))


def write_at_least_once(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """Visible at once, without ledger or fence. What this guarantee may double is not looked at."""
    plan = scenario.runs[index]
    after = world
    for task in scenario.tasks(index):
        bits = row_bits(scenario, plan.query, run.batch, scenario.rows(index, task))
        after = after._replace(visible=after.visible | bits)
    yield f"run {index} writes batch {run.batch} at-least-once", with_run(after, index, run._replace(phase="committed"))


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
