"""What the protocol leaves out: the commit of a plain job takes its decision back, so that nothing of it is visible.

With every precaution that the ledger offers: before its first EndTxn, by a record under the fence of the intent, and
nothing is aborted before that record is confirmed. A history tears the batch all the same (``test_safeguards.LIMITS``):
another process has read the intent, and EndTxn of a task's transaction knows no fence of drivers.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.endings import raises
from tests.model.scenario import Scenario
from tests.model.world import (
    Fence,
    Prepared,
    Run,
    Who,
    World,
    abort_exactly,
    fenced_by,
    holds_fence,
    with_entry,
    with_run,
)

Steps = Iterator[tuple[str, World]]


def undo(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    """Fenced or unconfirmed, the batch stays decided."""
    untouched = len(run.todo) == sum(type(part) is Prepared for part in run.tasks)
    if not scenario.undoes or not untouched:
        return
    if not holds_fence(world, scenario, index):
        yield f"run {index}: P2 is fenced at the undoing", raises(world, scenario, index, run)
        return
    undone = with_entry(world, scenario, scenario.entries[index], run.view[0]._replace(undone=True))
    undone = fenced_by(undone, scenario, index, Fence(index, "done"))
    yield f"run {index}: P2 undoes batch {run.batch}", with_run(undone, index, run._replace(phase="undoing"))


def abort_transactions(world: World, scenario: Scenario, index: int, run: Run) -> Steps:
    for task in run.todo:
        prepared = run.tasks[task]
        slot = scenario.slot(index, task, prepared.attempt)
        after = abort_exactly(world, scenario, slot, prepared, Who(index, "P2 of run"))
        left = run._replace(todo=run.todo - {task})
        ended = with_run(after, index, left) if left.todo else raises(after, scenario, index, left)
        yield f"run {index}: P2 aborts task {task}", ended
