"""P1: Spark starts a run, plans a batch; the fence is taken, the ledger read, what stands half done is finished."""

from __future__ import annotations

from tests.model.endings import Steps, gone_for_good, raises, unanswered, verdict_on
from tests.model.scenario import TASKS, Scenario
from tests.model.world import (
    ANOTHERS,
    DECIDED,
    IDLE,
    Entry,
    Fence,
    Prepared,
    Run,
    Waiting,
    Who,
    World,
    abort_exactly,
    breaks,
    decided_now,
    done,
    end,
    fenced_by,
    holds_fence,
    incarnation,
    initialise,
    late_abort,
    open_transactions,
    read,
    standing,
    taken_by,
    with_run,
)


def start(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """Runs start in their order, at any time; the batch is the one after the checkpoint's."""
    earlier = scenario.earlier(index)
    if earlier and (world.runs[earlier[-1]] == IDLE or (scenario.orderly and not _at_rest(world, earlier))):
        return
    plan = scenario.runs[index]
    batch = world.checkpoint[plan.query] + 1 if plan.version is None else plan.version
    if plan.ledger and batch == 0 and not scenario.first_batch_too:
        return
    if plan.at_least_once and not _committed(world, scenario, index):
        return
    if batch < scenario.batches:
        first = Run("at least once", batch) if plan.at_least_once else planned(world, scenario, index, batch)
        yield f"run {index} (query {plan.query}, {plan.cut}) starts batch {batch}", with_run(world, index, first)


def _at_rest(world: World, earlier: list[int]) -> bool:
    runs = all(world.runs[each].phase in ("dead", "over") for each in earlier)
    return runs and all(world.aborts[each].phase in ("uncalled", "over", "told") for each in earlier)


def _committed(world: World, scenario: Scenario, index: int) -> bool:
    """Whether Spark has committed the last batch in the ledger: the docs say to switch guarantees only then."""
    entry = world.ledger[scenario.entries[index]]
    return entry is not None and entry.done and entry.batch == world.checkpoint[scenario.runs[index].query]


def planned(world: World, scenario: Scenario, index: int, batch: int, before: Run | None = None) -> Run:
    """Planning begins. A session lists what is open, before it takes the fence, until it has swept once.

    Whichever run opened it has an older fence: its intent is in the ledger when this run reads it, or never will be.
    """
    listed: frozenset[tuple[int, Prepared | None]] = frozenset()
    due = before is None or (not before.swept and scenario.has("sweep at the first entry"))
    if due and all(map(scenario.has, ("sweep", "sweep what is listed", "list before the fence"))):
        listed = open_transactions(world, scenario, index)
    view = () if scenario.has("read under the fence") else world.ledger
    run = Run("planned", batch, listed, view)
    return run if before is None else run._replace(kept=True, found=before.found, swept=not due)


def take_fence(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """A kept session needs no barrier where this fence comes right after the record that its last batch is done."""
    continuous = world.fences[scenario.drivers[index]] == Fence(index, "done") or not scenario.has("continuous fence")
    barrier = scenario.has("barrier") and not (run.kept and continuous)
    after = fenced_by(world, scenario, index, Fence(index))
    held = world.fences[scenario.drivers[index]]
    other = None if held is None or held.who < 0 or scenario.names[held.who] == scenario.names[index] else held.who
    if other is not None and world.runs[other].phase not in ("dead", "over"):
        after = breaks(after, f"run {index} stops run {other}: {ANOTHERS}")
    yield f"run {index}: P1 takes the fence", with_run(after, index, run._replace(phase="fenced", barrier=barrier))


def read_ledger(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """With a barrier where it is due, or where a kept session does not find its last batch done."""
    key = scenario.entries[index]
    if not scenario.has("read under the fence"):
        yield _read(world, scenario, index, run, run.view, " as it was before the fence")
        return
    for how, view, after in read(world, scenario, index, run.barrier):
        last = view[key]
        if how and run.kept and (last is None or not last.done or last.batch < run.batch - 1):
            continue
        yield _read(after, scenario, index, run, view, how)
    if not scenario.has("resolved reads") and any(txn.is_open for txn in world.txns):
        hidden = (None,) * len(world.ledger)
        yield _read(world, scenario, index, run, hidden, ", whose end hides behind an open transaction")


def _read(
    world: World, scenario: Scenario, index: int, run: Run, view: tuple[Entry | None, ...], how: str
) -> tuple[str, World]:
    what = f"run {index}: P1 reads the ledger{how}: {_describe(scenario, view)}"
    entries = [entry for entry in view if entry is not None]
    if any(view[key] is not None for key in scenario.of_other_kind[index]):
        return f"{what}, of another kind of write, and raises", raises(world, scenario, index, run)
    found = run.found or bool(entries)
    reading = run._replace(phase="finishing", view=view, todo=standing(view), found=found)
    reading = reading._replace(ledger=incarnation(world, scenario))
    nothing = not any(entry.stands for entry in entries)
    after = _sweep_or_plan(world, scenario, index, reading) if nothing else with_run(world, index, reading)
    return what, after


def _describe(scenario: Scenario, view: tuple[Entry | None, ...]) -> str:
    found = [
        f"batch {entry.batch} of {scenario.labels[key]} {_state(entry)}"
        for key, entry in enumerate(view)
        if entry is not None
    ]
    return "; ".join(found) or "nothing"


def _state(entry: Entry) -> str:
    return "is done" if entry.done else "stands"


def finish(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """EndTxn(commit) for whatever a standing intent of this name names, of any query, in any order."""
    for key, task in run.todo:
        entry = run.view[key]
        for answer, after in end(world, scenario, task, entry.parts[task]):
            what = f"run {index}: P1 finishes task {task} of batch {entry.batch} of {scenario.labels[key]}: {answer}"
            if answer == "no telling":
                yield what, gone_for_good(after, scenario, index, run)
                continue
            missing = run.missing | {(key, task)} if answer == "gone" else run.missing
            yield what, with_run(after, index, run._replace(todo=run.todo - {(key, task)}, missing=missing))
        yield from unanswered(world, scenario, index, run, task, entry.parts[task])
    if not run.todo:
        yield from _mark_done(world, scenario, index, run)


def _mark_done(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """An intent with nothing missing is done, and one that is accepted with its loss. Any other one with something
    missing stays: its own query's replay repairs it."""
    if scenario.has("accepted with its loss"):
        lost = frozenset(each for each in run.missing if not scenario.trusts(index, "ledger", run.view[each[0]].batch))
        run = run._replace(missing=lost)
    unfinished = {key for key, _ in run.missing}
    complete = [key for key, entry in enumerate(run.view) if entry and entry.stands and key not in unfinished]
    if complete and not holds_fence(world, scenario, index):
        yield f"run {index}: P1 is fenced at the ledger", raises(world, scenario, index, run)
        return
    after, view = world, run.view
    for key in complete:
        query = next(plan.query for run, plan in enumerate(scenario.runs) if scenario.entries[run] == key)
        after = done(after, scenario, key, query, view[key])
        view = (*view[:key], after.ledger[key], *view[key + 1 :])
    marked = ", ".join(scenario.labels[key] for key in complete) or "nothing"
    what = f"run {index}: P1 marks {marked} done"
    yield what, _sweep_or_plan(after, scenario, index, run._replace(view=view))


def _sweep_or_plan(world: World, scenario: Scenario, index: int, run: Run) -> World:
    leftover = _leftover(world, scenario, index, run)
    now = run._replace(listed=frozenset(), todo=leftover, swept=run.swept or _may_sweep(scenario, index, run))
    if leftover:
        return with_run(world, index, now._replace(phase="sweeping"))
    return plan(world, scenario, index, now)


def _may_sweep(scenario: Scenario, index: int, run: Run) -> bool:
    """Under a name without an entry in this ledger a batch may be decided in another ledger: only tasks find that."""
    return run.found or not scenario.has("sweep under an entry")


def _leftover(world: World, scenario: Scenario, index: int, run: Run) -> frozenset[tuple[int, Prepared | None]]:
    """What to sweep: (id, whose transaction), or (id, None) for its holder by then."""
    if not scenario.has("sweep") or run.swept or not _may_sweep(scenario, index, run):
        return frozenset()
    if not scenario.has("sweep what is listed"):
        entry = run.view[scenario.entries[index]]
        slots = scenario.slots_of(index)
        return frozenset((slots[task], None) for task in range(len(entry.parts))) if entry else frozenset()
    if not scenario.has("list before the fence"):
        return frozenset((slot, None) for slot, _ in open_transactions(world, scenario, index))
    return run.listed & open_transactions(world, scenario, index)


def sweep(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """Nothing that was listed and is still open is named by a standing intent: those have all been ended."""
    for item in run.todo:
        slot, holder = item
        after = initialise(world, slot, None)
        if holder is not None:
            after = abort_exactly(world, scenario, slot, holder, Who(index))
        elif (slot % TASKS, world.txns[slot].holder) in decided_now(world):
            after = breaks(after, f"run {index}: P1 aborts id {slot}: {DECIDED}")
        left = run._replace(todo=run.todo - {item})
        swept = with_run(after, index, left) if left.todo else plan(after, scenario, index, left)
        yield f"run {index}: P1 sweeps id {slot}", swept
        if holder is not None and world.left.late_ends:
            sent = late_abort(world, slot, holder, Who(index))
            yield f"run {index}: P1 gets no answer to the abort of id {slot}", raises(sent, scenario, index, run)


def _turn(scenario: Scenario, index: int, view: tuple[Entry | None, ...]) -> int | None:
    """With which turn the run's query writes under its name; None: the name is another query's."""
    own, before = view[scenario.entries[index]], taken_by(scenario, view, index)
    turn, hand_over = (0 if own is None else own.turn), scenario.runs[index].replaces
    if before is None or not scenario.has("one query for each name"):
        return max(turn, 1)
    if hand_over is None or hand_over.query != before[0]:
        return None
    if hand_over.turn != before[1] and scenario.has("one turn for each hand-over"):
        return None
    return turn + 1


def plan(world: World, scenario: Scenario, index: int, run: Run) -> World:
    """Spark starts the tasks; the pickled writer carries what P1 read of this query, and what it found missing.

    A task that skips, refuses or has no rows touches nothing outside itself: settled here, before the others begin.
    """
    key = scenario.entries[index]
    missing = frozenset(task for entry, task in run.missing if entry == key)
    turn = _turn(scenario, index, run.view)
    waiting = (Waiting(("new",)),) * len(scenario.tasks(index))
    tasks = Run("tasks", run.batch, view=(run.view[key],), tasks=waiting, missing=missing)
    tasks = tasks._replace(found=run.found, swept=run.swept, ledger=run.ledger, turn=turn or 0)
    if turn is None or any(entry != key for entry, _ in run.missing):
        return raises(world, scenario, index, tasks)
    verdicts = [verdict_on(scenario, index, tasks, task) for task in scenario.tasks(index)]
    if "gone" in verdicts or "unknown" in verdicts:
        return gone_for_good(world, scenario, index, tasks)
    if "refuse" in verdicts:
        return raises(world, scenario, index, tasks)
    parts = tuple(waiting[0] if verdict == "write" else verdict for verdict in verdicts)
    return with_run(world, index, tasks._replace(tasks=parts))
