"""The topics of the rows, which may be deleted and created again between writes: what is lost, and what is noticed.

A deleted topic takes its rows along, whoever has committed them. Its name does not tell: only the topic's id, here its
incarnation, tells whether what was written to it can still be there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tests.model.endings import rewrites_everything
from tests.model.scenario import Scenario
from tests.model.world import Prepared, Run, World, breaks, put, row_bits, spend

Steps = Iterator[tuple[str, World]]
Topics = frozenset[tuple[int, int]]  # which, in which incarnation

SILENT = "rows are gone with their topic, and nobody is told"


def delete(world: World, scenario: Scenario) -> Steps:
    """Not while a task writes: nobody is told then that its rows are gone."""
    if not world.left.deletions or any(txn.is_open for txn in world.txns):
        return
    for topic, state in enumerate(world.topics):
        if state % 2:
            continue
        rows = world.visible & _bits_of_topic(scenario, topic)
        after = world._replace(visible=world.visible & ~rows, buried=world.buried | rows)
        yield f"topic {topic} is deleted", spend(_now(after, topic), "deletions")


def create(world: World, scenario: Scenario) -> Steps:
    for topic, state in enumerate(world.topics):
        if state % 2:
            yield f"topic {topic} is created again", _now(world, topic)


def _now(world: World, topic: int) -> World:
    return world._replace(topics=put(world.topics, topic, world.topics[topic] + 1))


def _bits_of_topic(scenario: Scenario, topic: int) -> int:
    rows = tuple(row for row in range(3) if row % scenario.topics == topic)
    queries, batches = range(scenario.queries), range(scenario.batches)
    return sum(row_bits(scenario, query, batch, rows) for query in queries for batch in batches)


def written_anew(world: World, scenario: Scenario, index: int, run: Run) -> World:
    """What is decided must be there in the end, also where it was once lost with a topic."""
    tasks = [task for task, part in enumerate(run.tasks) if type(part) is Prepared]
    bits = sum(row_bits(scenario, scenario.runs[index].query, run.batch, scenario.rows(index, task)) for task in tasks)
    return world._replace(buried=world.buried & ~bits)


# ---------------------------------------------------------------------------------------------- a task


def lacks(world: World, scenario: Scenario, rows: Collection[int]) -> bool:
    return any(world.topics[row % scenario.topics] % 2 for row in rows) if world.topics else False


def noted(world: World, scenario: Scenario, rows: Collection[int]) -> Topics:
    """What a task's message says of the topics of its rows."""
    if not world.topics:
        return frozenset()
    return frozenset((topic, world.topics[topic] // 2) for topic in (row % scenario.topics for row in rows))


# --------------------------------------------------------------------------------------------- P2's commit


def _missing(world: World, topic: int) -> bool:
    return world.topics[topic] % 2 == 1


def _created_again(world: World, scenario: Scenario, written_to: Topics) -> bool:
    by_id = scenario.has("topics by id")
    return by_id and any(world.topics[topic] % 2 == 0 and world.topics[topic] != 2 * old for topic, old in written_to)


def decided(scenario: Scenario, run: Run) -> Topics:
    """Of the intent: the topics of the tasks' messages and, in a repair, those of the rows that are in already."""
    if rewrites_everything(run) or not scenario.has("topics of both runs"):
        return run.topics
    names = {topic for topic, _ in run.topics}
    return run.topics | {each for each in run.view[0].topics if each[0] not in names}


def _replays(world: World, scenario: Scenario, index: int, run: Run) -> bool:
    entry = run.view[0]
    replays = bool(world.topics) and "in" in run.tasks and entry is not None and entry.batch == run.batch
    return replays and not scenario.trusts(index, "ledger", run.batch)


def replay_differs(world: World, scenario: Scenario, index: int, run: Run) -> bool:
    """Whether rows of the batch are in a topic that was created again: raising is all that is left."""
    if not _replays(world, scenario, index, run) or not scenario.has("topics of a replay"):
        return False
    return _created_again(world, scenario, run.view[0].topics)


def replay_told(world: World, scenario: Scenario, index: int, run: Run) -> World:
    """A topic that is missing is a warning; what else the rows that are in lack nobody is told."""
    if not _replays(world, scenario, index, run):
        return world
    told = scenario.has("topics of a replay") and any(_missing(world, topic) for topic, _ in run.view[0].topics)
    tasks = [task for task, part in enumerate(run.tasks) if part == "in"]
    query, batch = scenario.runs[index].query, run.batch
    bits = sum(row_bits(scenario, query, batch, scenario.rows(index, task)) for task in tasks)
    if told or not bits & ~world.visible or (query, batch) in scenario.answered_for:
        return world
    return breaks(world, f"batch {batch} of query {query}: {SILENT}")
