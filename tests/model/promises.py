"""What must hold. Most promises are noticed by the step that breaks them, and stand in the state."""

from __future__ import annotations

from tests.model.scenario import Scenario
from tests.model.world import TOLD, Prepared, World, batch_bits


def broken(world: World, scenario: Scenario) -> str | None:
    """Asked of every state."""
    if world.broken or scenario.kind != "once" or scenario.timeouts:
        return world.broken
    return _decided_and_gone(world, scenario)


def _decided_and_gone(world: World, scenario: Scenario) -> str | None:
    """A batch job that is not rerun has nothing to repair from: only the broker's clock may undo a decision."""
    for entry in world.ledger:
        if entry is None or not entry.stands:
            continue
        for task, part in enumerate(entry.parts):
            if type(part) is Prepared and world.txns[scenario.slot(part.run, task, part.attempt)].holder != part:
                return f"task {task} was decided, its transaction is gone, and nobody will write it again"
    return None


def unfinished(world: World, scenario: Scenario) -> str | None:
    """Asked where nothing more can happen."""
    if scenario.kind == "once" and not scenario.timeouts:
        for plan in scenario.runs:
            rows = batch_bits(scenario, plan.query, 0, plan.cut)
            if world.visible & rows not in (0, rows):
                return "a part of the batch job's rows is visible, and stays so"
    open_ids = [slot for slot, txn in enumerate(world.txns) if txn.is_open]
    if open_ids and (scenario.tidy or _swept(world, scenario)):
        return f"the transactions of ids {open_ids} are left open: they hold readers up"
    if scenario.kind != "stream":  # whose abort may know nothing of its run
        left = [slot for slot, txn in enumerate(world.txns) if txn.is_open and txn.holder is not None]
        own = [slot for slot in left if world.aborts[world.txns[slot].holder.run] == TOLD]
        if own:
            return f"the transactions of ids {own} are left open by the abort of their run: they hold readers up"
    return None


def _swept(world: World, scenario: Scenario) -> bool:
    """What a zombie opens after the last sweep stays until its timeout: only without zombies must nothing be left.

    Nor where no planning has found an entry: there may be nothing swept then.
    """
    last = world.runs[-1]
    return scenario.orderly and last.phase == "over" and last.found and not scenario.runs[-1].at_least_once
