"""P2's commit: the intent, then every prepared transaction, then done. And Spark's own commit after it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.endings import raises, rewrites_everything
from tests.model.scenario import CUTS, Scenario
from tests.model.world import (
    UNCALLED,
    Entry,
    Prepared,
    Run,
    Waiting,
    World,
    abort_exactly,
    batch_bits,
    done,
    end,
    holds_fence,
    ledger_key,
    put,
    spend,
    with_run,
)

Steps = Iterator[tuple[str, World]]


def commit(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """Every task has sent its message: compare a replay with what the ledger says, then decide."""
    if any(type(part) is Waiting for part in run.tasks):
        return
    entry = run.view[0]
    if difference := _difference(scenario, index, run):
        yield f"run {index}: P2 raises, the replay has {difference}", raises(world, scenario, index, run)
        return
    anew = rewrites_everything(run)
    intent = Entry(run.batch, scenario.runs[index].cut if anew else entry.cut, run.tasks, False)
    if any(type(part) is Prepared for part in run.tasks):
        yield from _decide(world, scenario, index, run, intent)
    elif "in" not in run.tasks and scenario.has("empty batches"):
        yield from _mark_done(world, scenario, index, run._replace(view=(intent,)))
    else:
        yield f"run {index}: P2 has nothing to commit", with_run(world, index, run._replace(phase="committed"))


def _difference(scenario: Scenario, index: int, run: Run) -> str | None:
    """Between the replay's rows and the entry's: in total when all is in, task by task when some of it is rewritten."""
    entry, cut = run.view[0], CUTS[scenario.runs[index].cut]
    if "in" not in run.tasks or entry.batch != run.batch or not scenario.has("replay checksum"):
        return None
    if not run.missing:
        same = sorted(sum(cut, ())) == sorted(sum(CUTS[entry.cut], ()))
        return None if same else "other rows"
    others = [task for task in range(len(cut)) if task not in run.missing]
    return "other rows in the tasks that are in" if any(cut[t] != CUTS[entry.cut][t] for t in others) else None


def _decide(world: World, scenario: Scenario, index: int, run: Run, intent: Entry) -> Steps:
    todo = frozenset(task for task, part in enumerate(run.tasks) if type(part) is Prepared)
    ending = run._replace(phase="ending", todo=todo, view=(intent,))
    if not scenario.has("intent first"):
        yield f"run {index}: P2 ends transactions before the intent stands", with_run(world, index, ending)
        return
    if not holds_fence(world, scenario, index) and scenario.has("intent's EndTxn"):
        yield f"run {index}: P2 is fenced at the intent", raises(world, scenario, index, run)
        return
    decided = _record(world, scenario, index, intent)
    yield f"run {index}: P2 records the intent for batch {run.batch}", with_run(decided, index, ending)
    if world.left.lost_answers:
        unsure = with_run(spend(decided, "lost_answers"), index, ending._replace(phase="unsure"))
        yield f"run {index}: P2 records the intent for batch {run.batch}, the answer is lost", unsure
    if world.left.timeouts:
        late = raises(spend(world._replace(fence=None), "timeouts"), scenario, index, run)
        yield f"run {index}: the broker times out the intent's own transaction", late


def _record(world: World, scenario: Scenario, index: int, intent: Entry) -> World:
    key = ledger_key(scenario, scenario.runs[index].query)
    return world._replace(ledger=put(world.ledger, key, intent))


def ask_again(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """The same EndTxn once more. Fenced says nothing of what became of the first: whoever comes next reads the ledger.

    Raising is all that may be done then: aborting here what the messages name could undo a decision.
    """
    if holds_fence(world, scenario, index):
        yield f"run {index}: P2 asks again, the intent stands", with_run(world, index, run._replace(phase="ending"))
        return
    if not scenario.has("unsure raises"):
        for task in run.todo:
            prepared = run.tasks[task]
            world = abort_exactly(world, scenario.slot(task, prepared.attempt), prepared)
    yield f"run {index}: P2 asks again and is fenced", raises(world, scenario, index, run)


def end_transactions(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    for task in run.todo:
        answer, after = end(world, scenario, task, run.tasks[task])
        what = f"run {index}: P2 ends task {task}: {answer}"
        if answer in ("gone", "no telling"):
            yield what, raises(after, scenario, index, run)
        else:
            yield what, with_run(after, index, run._replace(todo=run.todo - {task}))
    if not run.todo:
        yield from _mark_done(world, scenario, index, run)


def _mark_done(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    if not holds_fence(world, scenario, index):
        yield f"run {index}: P2 is fenced at done", raises(world, scenario, index, run)
        return
    after = done(world, scenario, scenario.runs[index].query, run.view[0])
    yield f"run {index}: P2 marks batch {run.batch} done", with_run(after, index, run._replace(phase="committed"))


def spark_commits(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """Spark's commit file (a batch job: it reports success). Only now must every row of the batch be in."""
    plan = scenario.runs[index]
    believed = world.checkpoint[plan.query]
    if world.aborts[index] != UNCALLED:
        return
    if scenario.kind == "stream" and believed != run.batch - 1:
        yield f"run {index}: Spark finds another at work", with_run(world, index, Run("dead"))
        return
    lost = batch_bits(scenario, plan.query, run.batch, plan.cut) & ~world.visible
    verdict = f"batch {run.batch} of query {plan.query} is lost, and Spark believes it committed" if lost else None
    more = scenario.kind == "stream" and run.batch + 1 < scenario.batches
    following = Run("planned", run.batch + 1) if more else Run("over")
    after = world._replace(
        checkpoint=put(world.checkpoint, plan.query, max(believed, run.batch)), broken=world.broken or verdict
    )
    yield f"run {index}: Spark commits batch {run.batch}", with_run(after, index, following)
