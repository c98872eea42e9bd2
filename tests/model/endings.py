"""How a run ends before its time: it raises, and what its tasks' attempts still do is left to the zombies."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.scenario import Scenario
from tests.model.world import (
    GONE,
    NOBODYS,
    UNCALLED,
    Abort,
    Entry,
    Part,
    Prepared,
    Run,
    Waiting,
    Who,
    World,
    breaks,
    holds_fence,
    late_commit,
    may_begin,
    with_abort,
    with_run,
)

Steps = Iterator[tuple[str, World]]


def verdict_on(scenario: Scenario, index: int, run: Run, task: int) -> str:
    """What a task does once it knows its batch id and what P1 read.

    "write", "empty" (no rows to write), "in" (a replay: write nothing), "refuse", or, where no restart helps,
    "unknown" (the entry lacks the batch before) or "gone" (transactions of an earlier batch).
    """
    entry = run.view[0]
    rows = scenario.rows(index, task)
    write = "write" if rows else "empty"
    if _unknown(scenario, index, run):
        return "unknown"
    if entry is None:
        return write
    if entry.batch > run.batch:
        if scenario.has("older refused"):
            return "refuse"
        return write if scenario.kinds[index] == "stream" else "in"
    if entry.batch < run.batch:
        if run.missing:  # the older version of a batch job may still be run again, a stream's batch never
            return "gone" if scenario.kinds[index] == "stream" else "refuse"
        return write
    accepted = scenario.trusts(index, "ledger", run.batch) and not run.missing
    if not scenario.has("skip") or (_all_missing(entry, run) and not accepted):
        return write
    if not run.missing:
        return "in"
    if scenario.has("replay checksum") and len(entry.parts) != len(scenario.tasks(index)):
        return "refuse"
    return write if task in run.missing else "in"


def _unknown(scenario: Scenario, index: int, run: Run) -> bool:
    """Whether the ledger ought to know of a batch after its entry: Spark's numbers do not skip."""
    if scenario.kinds[index] != "stream" or scenario.trusts(index, "checkpoint", run.batch):
        return False
    entry = run.view[0]
    if entry is None:
        return run.batch > 0 and scenario.has("ledger start")
    return entry.batch < run.batch - 1 and scenario.has("gap refused")


def _all_missing(entry: Entry, run: Run) -> bool:
    """Nothing of the batch is in Kafka: it may be written as if for the first time, in any cut."""
    return all(part == "empty" or task in run.missing for task, part in enumerate(entry.parts))


def rewrites_everything(run: Run) -> bool:
    entry = run.view[0]
    return entry is None or entry.batch != run.batch or _all_missing(entry, run)


def zombies(world: World, scenario: Scenario, index: int, run: Run, task: int) -> World:
    """Attempts of a task that have not begun, and whose message nobody waits for: they may wake at any time.

    All that a zombie can do is initialise its id: no intent will name what it writes. One that has done so already can
    do nothing any more (but see ``late_rows``); what it has open stays so.
    """
    waiting = run.tasks[task]
    if type(waiting) is not Waiting or verdict_on(scenario, index, run, task) != "write":
        return world
    sleepers, txns = list(world.sleepers), list(world.txns)
    begins = may_begin(world, scenario, index)
    for attempt, state in enumerate(waiting.attempts):
        slot = scenario.slot(index, task)
        if state == "new" and (begins or world.left.late_inits):
            sleepers.append((slot, index if begins else -1))
        elif txns[slot].is_of(Prepared(index, run.batch, attempt), "none"):
            txns[slot] = NOBODYS
    return world._replace(sleepers=tuple(sorted(sleepers)), txns=tuple(txns))


def raises(world: World, scenario: Scenario, index: int, run: Run, told: bool = True) -> World:
    """The run ends with an error, before or after its tasks were started. Spark may call abort for the latter, with the
    messages of the tasks that have finished, unless they are lost with the job (not ``told``)."""
    for task in range(len(run.tasks)):
        world = zombies(world, scenario, index, run, task)
    if not scenario.aborts or not run.tasks or world.aborts[index] != UNCALLED:
        return with_run(world, index, GONE)
    messages: tuple[Part | None, ...] = tuple(
        part if told and type(part) is not Waiting else None for part in run.tasks
    )
    if not any(message is None or type(message) is Prepared for message in messages):
        return with_run(world, index, GONE)
    return with_abort(with_run(world, index, GONE), index, called(world, scenario, index, run, messages))


def unanswered(world: World, scenario: Scenario, index: int, run: Run, task: int, prepared: Prepared) -> Steps:
    """The EndTxn(commit) of a task's transaction is on its way, and the run hears nothing of it."""
    if world.left.late_ends:
        sent = late_commit(world, scenario, task, prepared, Who(index))
        what = f"run {index}: {'P1' if run.phase == 'finishing' else 'P2'} gets no answer to the end of task {task}"
        yield f"{what} and asks again", sent
        yield f"{what} and raises", raises(sent, scenario, index, run)


def called(world: World, scenario: Scenario, index: int, run: Run, messages: tuple[Part | None, ...]) -> Abort:
    """Spark calls abort, which knows its run: from a report, a batch job's pickled writer, or what a stream's planning
    has noted. What such a note says of another run, see "abort for its own run".
    """
    return Abort("called", run.batch, messages, found=run.found)


def gone_for_good(world: World, scenario: Scenario, index: int, run: Run) -> World:
    """As raises, and no restart will help: the protocol promises that this comes from lost ledgers alone."""
    after = raises(world, scenario, index, run)
    if holds_fence(world, scenario, index) and not scenario.entries_may_lack:
        return breaks(after, "the query cannot go on: the ledger lacks what it should hold")
    return after
