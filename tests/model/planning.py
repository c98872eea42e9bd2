"""P1: Spark starts a run, plans a batch; the fence is taken, the ledger read, what stands half done is finished."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.endings import gone_for_good, raises, verdict_on
from tests.model.scenario import Scenario
from tests.model.world import (
    IDLE,
    OVER,
    UNCALLED,
    Entry,
    Prepared,
    Run,
    Waiting,
    World,
    abort_exactly,
    done,
    end,
    holds_fence,
    initialise,
    ledger_key,
    standing,
    with_run,
)

Steps = Iterator[tuple[str, World]]


def start(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """Runs start in their order, at any time; the batch is the one after the checkpoint's."""
    if index and (world.runs[index - 1] == IDLE or (scenario.orderly and not _at_rest(world, index))):
        return
    plan = scenario.runs[index]
    batch = world.checkpoint[plan.query] + 1 if plan.version is None else plan.version
    if scenario.kind == "once":
        batch = 0
    if batch < scenario.batches:
        started = with_run(world, index, Run("planned", batch, _listed(world, scenario)))
        yield f"run {index} (query {plan.query}, {plan.cut}) starts batch {batch}", started


def _at_rest(world: World, index: int) -> bool:
    runs = all(run.phase in ("dead", "over") for run in world.runs[:index])
    return runs and all(abort in (UNCALLED, OVER) for abort in world.aborts[:index])


def _listed(world: World, scenario: Scenario) -> frozenset[tuple[int, Prepared]]:
    """What is open under the prefix, with producer ids and epochs. Asked once per run, before the fence is taken.

    Whoever opened it has an older fence: its intent is in the ledger when this run reads it, or will never be.
    """
    if not (scenario.has("sweep") and scenario.has("sweep what is listed") and scenario.has("list before the fence")):
        return frozenset()
    return frozenset((slot, txn.holder) for slot, txn in enumerate(world.txns) if txn.state == "open")


def take_fence(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    changes = {"fence": index} if scenario.has("fence") else {}
    yield f"run {index}: P1 takes the fence", with_run(world, index, run._replace(phase="fenced"), **changes)


def read_ledger(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    yield from _read(world, scenario, index, run, world.ledger, "")
    if not scenario.has("resolved reads") and any(txn.state == "open" for txn in world.txns):
        hidden = (None,) * len(world.ledger)
        yield from _read(world, scenario, index, run, hidden, ", whose end hides behind an open transaction")


def _read(world: World, scenario: Scenario, index: int, run: Run, view: tuple[Entry | None, ...], how: str) -> Steps:
    reading = run._replace(phase="finishing", view=view, todo=standing(view))
    nothing = all(entry is None or entry.done for entry in view)
    after = _sweep_or_plan(world, scenario, index, reading) if nothing else with_run(world, index, reading)
    yield f"run {index}: P1 reads the ledger{how}: {_describe(view)}", after


def _describe(view: tuple[Entry | None, ...]) -> str:
    found = [
        f"batch {entry.batch} of query {query} {'is done' if entry.done else 'stands'}"
        for query, entry in enumerate(view)
        if entry is not None
    ]
    return "; ".join(found) or "nothing"


def finish(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """EndTxn(commit) for whatever a standing intent of this prefix names, of any query, in any order."""
    for query, task in run.todo:
        entry = run.view[query]
        answer, after = end(world, scenario, task, entry.parts[task])
        what = f"run {index}: P1 finishes task {task} of batch {entry.batch} of query {query}: {answer}"
        if answer == "no telling":
            yield what, gone_for_good(after, scenario, index, run)
            continue
        missing = run.missing | {(query, task)} if answer == "gone" else run.missing
        yield what, with_run(after, index, run._replace(todo=run.todo - {(query, task)}, missing=missing))
    if not run.todo:
        yield from _mark_done(world, scenario, index, run)


def _mark_done(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """An intent with nothing missing is done. One with something missing stays: its own query's replay repairs it."""
    unfinished = {query for query, _ in run.missing}
    complete = [q for q, entry in enumerate(run.view) if entry and not entry.done and q not in unfinished]
    if complete and not holds_fence(world, scenario, index):
        yield f"run {index}: P1 is fenced at the ledger", raises(world, scenario, index, run)
        return
    after = world
    for query in complete:
        after = done(after, scenario, query, run.view[query])
    what = f"run {index}: P1 marks {complete or 'nothing'} done"
    yield what, _sweep_or_plan(after, scenario, index, run._replace(view=after.ledger if complete else run.view))


def _sweep_or_plan(world: World, scenario: Scenario, index: int, run: Run) -> World:
    leftover = _leftover(world, scenario, index, run)
    if leftover:
        return with_run(world, index, run._replace(phase="sweeping", listed=frozenset(), todo=leftover))
    return plan(world, scenario, index, run)


def _leftover(world: World, scenario: Scenario, index: int, run: Run) -> frozenset[tuple[int, Prepared | None]]:
    """What to sweep: (id, whose transaction), or (id, None) for whoever holds it by then."""
    if not scenario.has("sweep"):
        return frozenset()
    if not scenario.has("sweep what is listed"):
        entry = run.view[ledger_key(scenario, scenario.runs[index].query)]
        return frozenset((task, None) for task in range(len(entry.parts))) if entry else frozenset()
    if not scenario.has("list before the fence"):
        return frozenset((slot, None) for slot, txn in enumerate(world.txns) if txn.state == "open")
    return frozenset((slot, holder) for slot, holder in run.listed if world.txns[slot] == (holder, "open"))


def sweep(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """Nothing that was listed and is still open is named by a standing intent: those have all been ended."""
    for item in run.todo:
        slot, holder = item
        after = abort_exactly(world, slot, holder) if holder else initialise(world, slot, None)
        left = run._replace(todo=run.todo - {item})
        swept = with_run(after, index, left) if left.todo else plan(after, scenario, index, left)
        yield f"run {index}: P1 sweeps id {slot}", swept


def plan(world: World, scenario: Scenario, index: int, run: Run) -> World:
    """Spark starts the tasks; the pickled writer carries what P1 read of this query, and what it found missing.

    A task that skips, refuses or has no rows touches nothing outside itself: settled here, before the others begin.
    """
    if scenario.kind == "once" and index:
        return with_run(world, index, Run("over"))  # the recovery command; what is missing it reports
    key = ledger_key(scenario, scenario.runs[index].query)
    missing = frozenset(task for query, task in run.missing if query == key)
    waiting = (Waiting(("new",)),) * len(scenario.tasks(index))
    planned = Run("tasks", run.batch, view=(run.view[key],), tasks=waiting, missing=missing)
    verdicts = [verdict_on(scenario, index, planned, task) for task in scenario.tasks(index)]
    if "gone" in verdicts or "unknown" in verdicts:
        return gone_for_good(world, scenario, index, planned)
    if "refuse" in verdicts:
        return raises(world, scenario, index, planned)
    parts = tuple(waiting[0] if verdict == "write" else verdict for verdict in verdicts)
    return with_run(world, index, planned._replace(tasks=parts))
