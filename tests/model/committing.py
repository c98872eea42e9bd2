"""P2's commit: the intent, then every prepared transaction, then done. And Spark's own commit after it."""

from __future__ import annotations

from tests.model import topics
from tests.model.endings import Steps, raises, rewrites_everything, unanswered
from tests.model.planning import planned
from tests.model.scenario import CUTS, Scenario
from tests.model.world import (
    UNCALLED,
    Entry,
    Fence,
    LateEnd,
    Prepared,
    Run,
    Waiting,
    Who,
    World,
    abort_exactly,
    batch_bits,
    breaks,
    claimed,
    done,
    end,
    fenced_by,
    holds_fence,
    on_its_way,
    open_transactions,
    put,
    record,
    spend,
    with_run,
)

REFUSED = "and its replay is refused"


def commit(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """Every task has sent its message: compare a replay with what the ledger says, then decide."""
    if any(type(part) is Waiting for part in run.tasks):
        return
    if difference := _difference(scenario, index, run):
        yield f"run {index}: P2 raises, the replay has {difference}", _refused(world, scenario, index, run)
        return
    if topics.replay_differs(world, scenario, index, run):
        yield f"run {index}: P2 raises, a topic of the batch was created again", raises(world, scenario, index, run)
        return
    world = topics.replay_told(world, scenario, index, run)
    intent = _intent(scenario, index, run)
    if any(type(part) is Prepared for part in run.tasks):
        if world.clock:
            yield f"run {index}: P2 raises, the deadline has passed", raises(world, scenario, index, run)
        elif scenario.has("look at what is prepared") and _gone(world, scenario, index, run):
            yield f"run {index}: P2 raises, a transaction is gone", raises(world, scenario, index, run)
        elif scenario.clock or scenario.late_inits:
            yield (
                f"run {index}: P2 finds nothing against a decision",
                with_run(world, index, run._replace(phase="checked")),
            )
        else:
            yield from _decide(world, scenario, index, run, intent)
    elif "in" not in run.tasks and scenario.has("empty batches"):
        yield from _decide_empty(world, scenario, index, run, intent)
    else:
        yield f"run {index}: P2 has nothing to commit", with_run(world, index, run._replace(phase="committed"))


def _gone(world: World, scenario: Scenario, index: int, run: Run) -> bool:
    parts = [(task, part) for task, part in enumerate(run.tasks) if type(part) is Prepared]
    named = {(scenario.slot(index, task), part) for task, part in parts}
    return not named <= open_transactions(world, scenario, index)


def decide(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """Between the look at the clock and the intent's EndTxn time may pass: at the deadline it is not sent any more."""
    if world.clock and scenario.has("deadline"):
        yield f"run {index}: P2 sends no EndTxn after the deadline", raises(world, scenario, index, run)
    else:
        yield from _decide(world, scenario, index, run, _intent(scenario, index, run))


def _intent(scenario: Scenario, index: int, run: Run) -> Entry:
    cut = scenario.runs[index].cut if rewrites_everything(run) else run.view[0].cut
    written = topics.decided(scenario, run)
    return Entry(run.batch, cut, run.tasks, False, topics=written, ledger=run.ledger, turn=run.turn)


def _refused(world: World, scenario: Scenario, index: int, run: Run) -> World:
    after = raises(world, scenario, index, run)
    accepted = scenario.trusts(index, "ledger", run.batch)
    return breaks(after, f"batch {run.batch} is accepted by ledgerStart, {REFUSED}") if accepted else after


def _difference(scenario: Scenario, index: int, run: Run) -> str | None:
    """Between the replay's rows and the entry's: in total when all is in, task by task when some of it is rewritten."""
    entry, cut = run.view[0], CUTS[scenario.runs[index].cut]
    if "in" not in run.tasks or entry.batch != run.batch or not scenario.has("replay checksum"):
        return None
    if not run.missing:
        same = sorted(sum(cut, ())) == sorted(sum(CUTS[entry.cut], ()))
        return None if same or scenario.trusts(index, "ledger", run.batch) else "other rows"
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
    if (run.phase == "tasks" or world.clock) and _gone(world, scenario, index, run):
        world = breaks(world, f"batch {run.batch} is decided, and a transaction of it is gone")
    decided = topics.written_anew(record(world, scenario, index, intent), scenario, index, run)
    yield f"run {index}: P2 records the intent for batch {run.batch}", with_run(decided, index, ending)
    if world.left.lost_answers:
        unsure = with_run(spend(decided, "lost_answers"), index, ending._replace(phase="unsure"))
        yield f"run {index}: P2 records the intent for batch {run.batch}, the answer is lost", unsure
    if world.left.late_ends:
        sent = on_its_way(world, LateEnd(Who(index), "intent", index, entry=intent))
        unsure = with_run(sent, index, ending._replace(phase="unsure"))
        yield f"run {index}: P2 waits in vain for the end of the intent for batch {run.batch}", unsure
    if world.left.timeouts:
        unfenced = fenced_by(spend(world, "timeouts"), scenario, index, None)
        yield f"run {index}: the broker times out the intent's own transaction", raises(unfenced, scenario, index, run)


def _decide_empty(world: World, scenario: Scenario, index: int, run: Run, entry: Entry) -> Steps:
    """A batch without rows is decided and done in one record."""
    if not holds_fence(world, scenario, index):
        yield f"run {index}: P2 is fenced at done", raises(world, scenario, index, run)
        return
    yield from _mark_done(claimed(world, scenario, index), scenario, index, run._replace(view=(entry,)))


def ask_again(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """The same EndTxn once more. Fenced says nothing of what became of the first: the next process reads the ledger.

    Raising is all that may be done then: aborting here what the messages name could undo a decision.
    """
    if world.clock and scenario.has("deadline"):
        yield f"run {index}: P2 does not ask again after the deadline", raises(world, scenario, index, run)
        return
    if holds_fence(world, scenario, index):
        stands = world.ledger[scenario.entries[index]] == run.view[0]
        after = world if stands else record(world, scenario, index, run.view[0])
        yield f"run {index}: P2 asks again, the intent stands", with_run(after, index, run._replace(phase="ending"))
        return
    if not scenario.has("unsure raises"):
        for task in run.todo:
            prepared = run.tasks[task]
            slot = scenario.slot(index, task)
            world = abort_exactly(world, scenario, slot, prepared, Who(index, "P2 of run"))
    yield f"run {index}: P2 asks again and is fenced", raises(world, scenario, index, run)


def end_transactions(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    for task in run.todo:
        for answer, after in end(world, scenario, task, run.tasks[task]):
            what = f"run {index}: P2 ends task {task}: {answer}"
            if answer in ("gone", "no telling"):
                yield what, raises(after, scenario, index, run)
            else:
                yield what, with_run(after, index, run._replace(todo=run.todo - {task}))
        yield from unanswered(world, scenario, index, run, task, run.tasks[task])
    if not run.todo:
        yield from _mark_done(world, scenario, index, run)


def _mark_done(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """All of the batch is visible: from here on nothing raises, also where the fence is lost."""
    finished = run._replace(phase="committed")
    if not holds_fence(world, scenario, index):
        yield f"run {index}: P2 is fenced at done, and warns", with_run(world, index, finished)
        return
    after = done(world, scenario, scenario.entries[index], scenario.runs[index].query, run.view[0])
    after = fenced_by(after, scenario, index, Fence(index, "done"))
    yield f"run {index}: P2 marks batch {run.batch} done", with_run(after, index, finished)


def spark_commits(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """Spark's commit file (a batch job: it reports success). Only now must every row of the batch be in."""
    plan = scenario.runs[index]
    believed = world.checkpoint[plan.query]
    if world.aborts[index] != UNCALLED:
        return
    if scenario.kinds[index] == "stream" and believed != run.batch - 1:
        yield f"run {index}: Spark finds another at work", with_run(world, index, Run("dead"))
        return
    lost = batch_bits(scenario, plan.query, run.batch, plan.cut) & ~world.visible & ~world.buried
    if (plan.query, run.batch) in scenario.answered_for:
        lost = 0
    verdict = f"batch {run.batch} of query {plan.query} is lost, and Spark believes it committed" if lost else None
    after = world._replace(
        checkpoint=put(world.checkpoint, plan.query, max(believed, run.batch)), broken=world.broken or verdict
    )
    following = _following(after, scenario, index, run)
    yield f"run {index}: Spark commits batch {run.batch}", with_run(after, index, following)


def _following(world: World, scenario: Scenario, index: int, run: Run) -> Run:
    plan = scenario.runs[index]
    if scenario.kinds[index] != "stream" or run.batch + 1 >= scenario.batches or run.batch == plan.until:
        return Run("over", found=run.found)
    if plan.at_least_once:
        return Run("at least once", run.batch + 1)
    return planned(world, scenario, index, run.batch + 1, run)
