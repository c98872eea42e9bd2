"""What nobody in the protocol does: time runs out, processes die, topics and checkpoints are lost or replaced."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.scenario import Scenario
from tests.model.world import GONE, NOBODYS, OVER, Run, World, put, spend, with_run

Steps = Iterator[tuple[str, World]]

AT_WORK = ("planned", "fenced", "finishing", "sweeping", "tasks", "unsure", "ending", "committed")


def time_out(world: World, scenario: Scenario) -> Steps:
    if not world.left.timeouts:
        return
    for slot, txn in enumerate(world.txns):
        if txn.state == "open":
            after = world._replace(txns=put(world.txns, slot, NOBODYS))
            yield f"the broker times out id {slot}", spend(after, "timeouts")


def crash(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """Driver and executors of a run are gone, and abort with them. Attempts that Spark had lost sight of may live."""
    if world.left.crashes:
        after = with_run(world, index, GONE, aborts=put(world.aborts, index, OVER))
        yield f"run {index} is killed with all its tasks", spend(after, "crashes")


def lose_ledger(world: World, scenario: Scenario) -> Steps:
    beyond = min(world.checkpoint) >= 0 and all(run.batch > 0 for run in world.runs if run.phase in AT_WORK)
    if world.left.ledger_losses and (beyond or scenario.first_batch_too):
        markers = tuple((-1,) * len(tasks) for tasks in world.markers)
        after = world._replace(ledger=(None,) * len(world.ledger), markers=markers)
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
