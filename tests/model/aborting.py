"""P2's abort: Spark gives a batch up while its commit may still be running in another process."""

from __future__ import annotations

from tests.model.endings import Steps, called, raises
from tests.model.scenario import Scenario
from tests.model.world import (
    OVER,
    TOLD,
    UNCALLED,
    Abort,
    Fence,
    Prepared,
    Run,
    Waiting,
    Who,
    World,
    abort_exactly,
    breaks,
    end,
    fenced_by,
    initialise,
    is_prepared_in,
    late_abort,
    late_commit,
    open_transactions,
    read,
    standing,
    with_abort,
)

GIVEN_UP = ("tasks", "checked", "unsure", "ending", "committed")


def give_up(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """A task failed: the run is over. With every message in, commit may be running, and live on beside the abort."""
    if not scenario.aborts or scenario.runs[index].at_least_once or world.aborts[index] != UNCALLED:
        return
    if any(type(part) is Waiting for part in run.tasks):
        after = raises(world, scenario, index, run)
        if scenario.kinds[index] != "stream":  # write_kafka: the messages of its finished tasks are lost with the job
            yield f"run {index}: its job fails, and its caller gives it up", raises(world, scenario, index, run, False)
    else:
        after = with_abort(world, index, called(world, scenario, index, run, run.tasks))
    yield f"run {index}: Spark gives batch {run.batch} up", after


def take_fence(world: World, scenario: Scenario, index: int, abort: Abort) -> Steps:
    """EndTxn(abort) and InitProducerId with the identity that the run was planned with, then, after the list, with its
    own. Fenced, it ends what its tasks have reported, unless its own run has decided that before.
    """
    listing = abort.phase == "called" and _lists(scenario, index, abort)
    fenced = abort._replace(phase="listing" if listing else "fenced")
    if not (scenario.has("fence") and scenario.has("abort fence")):
        yield f"abort of run {index} starts", with_abort(world, index, fenced)
        return
    held = world.fences[scenario.drivers[index]]
    if scenario.has("abort for its own run") and not _is_own(scenario, index, held):
        own = abort._replace(phase="out" if scenario.has("a fenced abort ends its own") else "over", listed=frozenset())
        yield f"abort of run {index} is fenced", with_abort(world, index, own)
        return
    after = fenced_by(world, scenario, index, Fence(~index))
    if held is not None and held.who > index and world.runs[held.who].phase not in ("dead", "over"):
        after = breaks(after, f"the abort of run {index} stops run {held.who}, which has taken its place")
    yield f"abort of run {index} takes the fence", with_abort(after, index, fenced)


def _lists(scenario: Scenario, index: int, abort: Abort) -> bool:
    """A reduction: without a silent task a stream's run has nothing open that is not reported."""
    return scenario.kinds[index] != "stream" or None in abort.messages


def _is_own(scenario: Scenario, index: int, held: Fence | None) -> bool:
    """With v2 two records after planning have bumped the epoch beyond what abort knows."""
    if held is None or held.who != index:
        return held == Fence(~index)
    return held.recorded != "done" or scenario.protocol != "v2"


def list_open(world: World, scenario: Scenario, index: int, abort: Abort) -> Steps:
    """What is open under the fence; whether another run came between, the next bump of the epoch tells. Without an
    entry another ledger may have decided what has no marker in this one.
    """
    listed = open_transactions(world, scenario, index)
    if not abort.found and scenario.has("abort in its own ledger"):
        listed = frozenset(each for each in listed if is_prepared_in(world, scenario, index, each[0]))
    phase = "listed" if scenario.has("abort fences what it lists") else "fenced"
    yield (
        f"abort of run {index} lists what is open",
        with_abort(world, index, abort._replace(phase=phase, listed=listed)),
    )


def read_ledger(world: World, scenario: Scenario, index: int, abort: Abort) -> Steps:
    """Whatever stands under the name, of any query, it finishes."""
    for how, view, after in read(world, scenario, index, scenario.has("abort barrier")):
        found = standing(view) if scenario.has("abort reads") else ()
        todo = frozenset((task, view[key].parts[task]) for key, task in found)
        entry = view[scenario.entries[index]]
        sure = entry is None or entry.batch < abort.batch or not scenario.has("abort reads")
        knows = abort._replace(sure=sure, listed=_own(scenario, abort))
        if todo:
            finishing = knows._replace(phase="finishing", todo=todo)
            yield f"abort of run {index} finds an intent{how} and finishes it", with_abort(after, index, finishing)
        else:
            yield f"abort of run {index} finds no intent{how}", _aborting(after, scenario, index, knows)


def end_own(world: World, scenario: Scenario, index: int, abort: Abort) -> Steps:
    """After one read of the ledger, EndTxn(abort) for exactly what was reported: never InitProducerId."""
    who, over = Who(index, "abort of run"), abort._replace(phase="over")
    for how, view, ended in read(world, scenario, index, scenario.has("abort barrier")):
        decided = standing(view) if scenario.has("a fenced abort reads") else ()
        named = {(task, view[key].parts[task]) for key, task in decided}
        for task, part in enumerate(abort.messages):
            if type(part) is Prepared and (task, part) not in named:
                slot = scenario.slot(index, task)
                ended = abort_exactly(ended, scenario, slot, part, who, by_end=True)  # noqa: PLW2901
        yield f"abort of run {index} ends its own transactions{how}", with_abort(ended, index, over)


def _own(scenario: Scenario, abort: Abort) -> frozenset[tuple[int, Prepared | None]]:
    """What no other ledger can have decided, see ``list_open``."""
    return abort.listed if scenario.has("abort what is listed") else frozenset()


def finish(world: World, scenario: Scenario, index: int, abort: Abort) -> Steps:
    for item in abort.todo:
        task, prepared = item
        for answer, after in end(world, scenario, task, prepared):
            left = abort._replace(todo=abort.todo - {item})
            over = with_abort(after, index, left) if left.todo else _aborting(after, scenario, index, left)
            yield f"abort of run {index} finishes task {task}: {answer}", over
        if world.left.late_ends:
            sent = late_commit(world, scenario, task, prepared, Who(index, "abort of run"))
            yield f"abort of run {index} gets no answer to the end of task {task}", with_abort(sent, index, OVER)


def _aborting(world: World, scenario: Scenario, index: int, abort: Abort) -> World:
    """What is left to end: (id, whose transaction), or (id, None) for its holder by then."""
    by_identity = scenario.has("abort by identity")
    todo: set[tuple[int, Prepared | None]] = set(abort.listed) if by_identity else set()
    for task, message in enumerate(abort.messages):
        if type(message) is Prepared:
            todo.add((scenario.slot(index, task), message))
        elif message is None and not by_identity:
            todo.add((scenario.slot(index, task), None))
    return _next(world, scenario, index, abort._replace(phase="aborting", todo=frozenset(todo), listed=frozenset()))


def abort_transactions(world: World, scenario: Scenario, index: int, abort: Abort) -> Steps:
    for item in abort.todo:
        slot, prepared = item
        after, sure = world, abort.sure
        if prepared is not None:
            after = abort_exactly(world, scenario, slot, prepared, Who(index, "abort of run"))
            own = after is not world and world.txns[slot].is_open and world.txns[slot].holder == prepared
            sure = sure and (own or not scenario.has("abort tells what it ended"))
        else:
            holder = world.txns[slot].holder
            after = initialise(world, slot, None)
            if holder is not None and holder.run > index:
                after = breaks(after, f"the abort of run {index} stops run {holder.run}, which has taken its place")
        left = abort._replace(todo=abort.todo - {item}, sure=sure)
        yield f"abort of run {index} ends id {slot}", _next(after, scenario, index, left)
        if prepared is not None and world.left.late_ends:
            sent = late_abort(world, slot, prepared, Who(index, "abort of run"))
            yield f"abort of run {index} gets no answer to the abort of id {slot}", with_abort(sent, index, OVER)


def _next(world: World, scenario: Scenario, index: int, abort: Abort) -> World:
    """In the end it says that nothing that this run has written is visible, or, where it cannot know, does not."""
    if abort.todo:
        return with_abort(world, index, abort)
    if not abort.sure:
        return with_abort(world, index, OVER)
    after = with_abort(world, index, Abort(TOLD, found=abort.found))
    if any(
        type(part) is Prepared and world.txns[scenario.slot(index, task)].is_of(part, "committed")
        for task, part in enumerate(abort.messages)
    ):
        return breaks(after, f"abort of run {index} says that nothing of it is visible, and rows of it are")
    return after
