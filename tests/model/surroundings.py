"""What no process of the protocol does: time runs out, processes die, topics and checkpoints are lost or replaced."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.scenario import Scenario
from tests.model.world import (
    GONE,
    OVER,
    LateEnd,
    Run,
    World,
    abort_exactly,
    end,
    holds_fence,
    initialise,
    put,
    record,
    spend,
    standing,
    with_run,
)

Steps = Iterator[tuple[str, World]]

AT_WORK = (
    "planned",
    "fenced",
    "finishing",
    "sweeping",
    "tasks",
    "checked",
    "unsure",
    "ending",
    "committed",
    "at least once",
)


def time_out(world: World, scenario: Scenario) -> Steps:
    """A budget says that any transaction may; the clock, that the oldest do, when it is time."""
    if not world.left.timeouts and world.clock < OLD:
        return
    for slot, txn in enumerate(world.txns):
        if txn.is_open:
            after = initialise(world, slot, None)
            yield f"the broker times out id {slot}", after if world.clock == OLD else spend(after, "timeouts")


OLD = 2


def tick(world: World, scenario: Scenario) -> Steps:
    """First the deadline for the intent passes, then the oldest transactions time out.

    What is decided before the deadline is carried out before the timeout: that is what the margin between them is for.
    """
    if not scenario.clock or world.clock == OLD or (world.clock == 0 and standing(world.ledger)):
        return
    what = "the deadline of the intent passes" if world.clock == 0 else "the oldest transactions come to their timeout"
    yield what, world._replace(clock=world.clock + 1)


def arrive(world: World, scenario: Scenario) -> Steps:
    """An EndTxn comes after all: it counts for the transaction of its producer id and epoch, if that is open."""
    for item in world.late:
        after = _carried_out(world._replace(late=world.late - {item}), scenario, item)
        which = "the intent" if item.what == "intent" else f"task {item.task}"
        yield f"the {item.what} of {which} that {item.who} sent arrives", after


def _carried_out(world: World, scenario: Scenario, item: LateEnd) -> World:
    if item.what == "intent":
        return record(world, scenario, item.run, item.entry) if holds_fence(world, scenario, item.run) else world
    txn = world.txns[item.slot]
    holder = item.holder if scenario.has("end by identity") else txn.holder
    if not txn.is_open or holder is None:
        return world
    if item.what == "abort":
        return abort_exactly(world, scenario, item.slot, holder, item.who)
    if txn.holder != holder:
        return world
    ((_, after),) = end(world, scenario, item.task, holder)
    return after


def crash(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """Driver and executors of a run are gone, and abort with them. Attempts that Spark had lost sight of may live."""
    plan = scenario.runs[index]
    first = plan.at_least_once and world.checkpoint[plan.query] < 1 and not scenario.first_batch_too
    if world.left.crashes and not first:
        after = with_run(world, index, GONE, aborts=put(world.aborts, index, OVER))
        yield f"run {index} is killed with all its tasks", spend(after, "crashes")


def lose_ledger(world: World, scenario: Scenario) -> Steps:
    beyond = min(world.checkpoint) >= 0 and all(run.batch > 0 for run in world.runs if run.phase in AT_WORK)
    if world.left.ledger_losses and (beyond or scenario.first_batch_too):
        markers = tuple((None,) * len(tasks) for tasks in world.markers)
        txns = tuple(txn._replace(marked=False) if txn.is_open else txn for txn in world.txns)
        after = world._replace(ledger=(None,) * len(world.ledger), past=(), markers=markers, txns=txns)
        yield "the ledger topic is lost and created anew", spend(after, "ledger_losses")


def restore_checkpoint(world: World, scenario: Scenario) -> Steps:
    if not world.left.restores:
        return
    for query, batch in enumerate(world.checkpoint):
        for older in range(-1, batch):
            after = world._replace(checkpoint=put(world.checkpoint, query, older))
            yield (
                f"the checkpoint of query {query} is restored from when batch {older} was its last",
                spend(after, "restores"),
            )
