"""The topics of the rows, which may be deleted and created again at any moment: what is lost, and what is noticed.

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

LOOKED = ("checked", "unsure", "ending", "committed")
SILENT = "rows are gone with their topic, and nobody is told"


def delete(world: World, scenario: Scenario) -> Steps:
    """What is lost by it after the last look before the decision was the user's to keep; so is what was committed."""
    if not world.left.deletions:
        return
    for topic, state in enumerate(world.topics):
        if state % 2:
            continue
        rows = _bits_of_topic(scenario, topic)
        buried = rows & (world.visible | _promised(world, scenario))
        after = world._replace(visible=world.visible & ~rows, buried=world.buried | buried)
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


def _promised(world: World, scenario: Scenario) -> int:
    """Rows in open transactions that are decided, or whose run has looked at the topics and is about to decide."""
    parts = {part for entry in world.ledger if entry is not None and entry.stands for part in entry.parts}
    parts.update(part for run in world.runs if run.phase in LOOKED for part in run.tasks)
    return _in_open_transactions(world, scenario, parts)


def _in_open_transactions(world: World, scenario: Scenario, parts: Collection[object]) -> int:
    bits = 0
    for txn in world.txns:
        if txn.is_open and txn.holder in parts:
            there = tuple(
                row for row, incarnation in txn.rows if world.topics[row % scenario.topics] == 2 * incarnation
            )
            bits |= row_bits(scenario, scenario.runs[txn.holder.run].query, txn.holder.batch, there)
    return bits


def written_anew(world: World, scenario: Scenario, index: int, run: Run) -> World:
    """What is decided must be there in the end, also where it was once lost with a topic."""
    return (
        world._replace(buried=world.buried & ~_in_open_transactions(world, scenario, run.tasks))
        if world.buried
        else world
    )


# ---------------------------------------------------------------------------------------------- a task


def lacks(world: World, scenario: Scenario, rows: Collection[int]) -> bool:
    return any(world.topics[row % scenario.topics] % 2 for row in rows) if world.topics else False


def written(world: World, scenario: Scenario, slot: int, rows: tuple[int, ...], state: str) -> World:
    """The first row, in mid-write, or all that are left. Each is in its topic as it is now.

    The task notes a topic before its first row in it: what it notes after that may be another incarnation.
    """
    if not world.topics:
        return world
    txn, last = world.txns[slot], state == "writing" or not scenario.mid_write
    due = rows[len(txn.rows) :] if last else rows[:1]
    placed = txn.rows + tuple((row, world.topics[row % scenario.topics] // 2) for row in due)
    noted = dict(txn.noted)
    if last or scenario.has("topics before their rows"):
        for row, _ in placed:
            topic = row % scenario.topics
            noted.setdefault(topic, world.topics[topic] // 2)
    noting = txn._replace(rows=placed, noted=tuple(sorted(noted.items())))
    return world._replace(txns=put(world.txns, slot, noting))


# --------------------------------------------------------------------------------------------- P2's commit


def changed(world: World, scenario: Scenario, written_to: Topics) -> bool:
    """Whether one of them is missing, or was created again."""
    return any(_missing(world, topic) for topic, _ in written_to) or _created_again(world, scenario, written_to)


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
    return _unless_told(
        world, scenario, index, run.batch, told, [task for task, part in enumerate(run.tasks) if part == "in"]
    )


def commit_told(world: World, scenario: Scenario, index: int, run: Run) -> World:
    """After the last EndTxn P2 looks again, and warns."""
    if not world.topics:
        return world
    told = scenario.has("topics after the commit") and changed(world, scenario, run.topics)
    own = [task for task, part in enumerate(run.tasks) if type(part) is Prepared]
    return _unless_told(world, scenario, index, run.batch, told, own)


def _unless_told(world: World, scenario: Scenario, index: int, batch: int, told: bool, tasks: Collection[int]) -> World:
    query = scenario.runs[index].query
    bits = sum(row_bits(scenario, query, batch, scenario.rows(index, task)) for task in tasks)
    if told or not bits & ~world.visible or (query, batch) in scenario.answered_for:
        return world
    return breaks(world, f"batch {batch} of query {query}: {SILENT}")
