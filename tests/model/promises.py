"""What must hold where nothing more can happen. Other promises are noticed by the step that breaks them, and stand in
the state (``World.broken``)."""

from __future__ import annotations

from tests.model.scenario import TASKS, Scenario
from tests.model.world import TOLD, World, decided_now, is_prepared_in


def unfinished(world: World, scenario: Scenario) -> str | None:
    """Asked where nothing more can happen."""
    closed = range(scenario.slots) if scenario.tidy else _swept(world, scenario)
    if open_ids := [slot for slot in closed if world.txns[slot].is_open]:
        return f"the transactions of ids {open_ids} are left open: they hold readers up"
    left = [slot for slot, txn in enumerate(world.txns) if txn.is_open and txn.holder is not None]
    holders = {slot: world.txns[slot].holder.run for slot in left}
    aborts = {slot: world.aborts[run] for slot, run in holders.items()}
    told = [slot for slot, abort in aborts.items() if abort.phase == TOLD]
    own = [slot for slot in told if aborts[slot].found or is_prepared_in(world, scenario, holders[slot], slot)]
    reports = {slot: (slot % TASKS, world.txns[slot].holder) for slot in left}  # of what an abort that was fenced ends
    of_aborts = {slot: enumerate(world.aborts[run].messages) for slot, run in holders.items()}
    own += [slot for slot in left if reports[slot] in of_aborts[slot] and reports[slot] not in decided_now(world)]
    if own:
        return f"the transactions of ids {own} are left open by the abort of their run: they hold readers up"
    return None


def _swept(world: World, scenario: Scenario) -> list[int]:
    """The ids under which nothing may be left open, as the last run of their write has swept them.

    What a zombie opens after the last sweep stays until its timeout: only without zombies must nothing be left. Nor
    where no planning has found an entry: there may be nothing swept then.
    """
    if not scenario.orderly:
        return []
    last = {scenario.names[index]: index for index in range(len(scenario.runs))}.values()
    swept = [index for index in last if world.runs[index].phase == "over" and world.runs[index].found]
    return [slot for index in swept if not scenario.runs[index].at_least_once for slot in scenario.slots_of(index)]
