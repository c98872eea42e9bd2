"""One state of everything: Kafka, Spark's checkpoint, every process. And what a broker does when it is asked.

Epochs only ever say whether an id still belongs to whoever initialised it last, so a state names the holder instead:
holders compare equal or not, as (producer id, epoch) pairs do, and are never ordered.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from tests.model.scenario import ATTEMPTS, CUTS, TASKS, Scenario

ROWS = 3  # of a batch, see CUTS
UNDECIDED = "rows are visible before anything was decided"


class Prepared(NamedTuple):
    """One attempt of a task: what its commit message names, and the holder of its transactional id."""

    run: int
    batch: int
    attempt: int


# A task in an intent: a transaction to commit · nothing to do, its rows are in · nothing to do, it has no rows.
Part = Prepared | Literal["in", "empty"]


class Waiting(NamedTuple):
    """A task without a message yet, and how far each of its attempts is."""

    attempts: tuple[Literal["new", "initialised", "over"], ...]


class Entry(NamedTuple):
    """The ledger's last word on a query: the intent, or that it is done. ``cut`` stands for every task's checksum."""

    batch: int
    cut: str
    parts: tuple[Part, ...]
    done: bool


class Txn(NamedTuple):
    """A transactional id of the tasks at its coordinator."""

    holder: Prepared | None  # None: whoever it was holds no part in this any more
    state: Literal["none", "open", "committed"]


class Left(NamedTuple):
    """What may still happen, see Scenario."""

    timeouts: int
    retries: int
    lost_answers: int
    crashes: int
    ledger_losses: int
    restores: int


class Run(NamedTuple):
    """A driver run: P1, the tasks, P2's commit, Spark. ``listed`` is what P1 saw open, ``view`` what it read.

    P1 reads the entries of every query; the tasks, then P2, have that of their own.
    """

    phase: str
    batch: int = 0
    listed: frozenset = frozenset()
    view: tuple[Entry | None, ...] = ()
    tasks: tuple[Part | Waiting, ...] = ()
    todo: frozenset = frozenset()
    missing: frozenset = frozenset()


class Abort(NamedTuple):
    """P2's abort: a process of its own, beside whatever is left of the run."""

    phase: str
    batch: int = 0
    messages: tuple[Part | None, ...] = ()
    todo: frozenset = frozenset()


class World(NamedTuple):
    checkpoint: tuple[int, ...]  # per query: the last batch Spark (the scheduler of a batch job) believes committed
    fence: int | None  # who holds the driver's id: a run, ~run for its abort, None after a timeout
    ledger: tuple[Entry | None, ...]
    txns: tuple[Txn, ...]
    visible: int  # a bit per row that read_committed readers see
    markers: tuple[tuple[int, ...], ...]  # per query and task: the last batch whose marker is visible
    sleepers: tuple[int, ...]  # per id: zombie attempts that will initialise it when they wake
    left: Left
    runs: tuple[Run, ...]
    aborts: tuple[Abort, ...]
    broken: str | None = None  # a promise that a step has just broken


IDLE, GONE = Run("idle"), Run("dead")
NOBODYS = Txn(None, "none")
UNCALLED, OVER = Abort("uncalled"), Abort("over")


def first(scenario: Scenario) -> World:
    return World(
        checkpoint=(-1,) * scenario.queries,
        fence=None,
        ledger=(None,) * scenario.queries,
        txns=(NOBODYS,) * scenario.slots,
        visible=0,
        markers=((-1,) * TASKS,) * scenario.queries,
        sleepers=(0,) * scenario.slots,
        left=Left(**{name: getattr(scenario, name) for name in Left._fields}),
        runs=(IDLE,) * len(scenario.runs),
        aborts=(UNCALLED,) * len(scenario.runs),
    )


def put(values: tuple, index: int, value: object) -> tuple:
    return (*values[:index], value, *values[index + 1 :])


def with_run(world: World, index: int, run: Run, **changes: object) -> World:
    return world._replace(runs=put(world.runs, index, run), **changes)


def with_abort(world: World, index: int, abort: Abort, **changes: object) -> World:
    return world._replace(aborts=put(world.aborts, index, abort), **changes)


def spend(world: World, budget: str) -> World:
    return world._replace(left=world.left._replace(**{budget: getattr(world.left, budget) - 1}))


def row_bits(scenario: Scenario, query: int, batch: int, rows: tuple[int, ...]) -> int:
    return sum(1 << ((query * (scenario.batches + 1) + batch) * ROWS + row) for row in rows)


def batch_bits(scenario: Scenario, query: int, batch: int, cut: str) -> int:
    return sum(row_bits(scenario, query, batch, rows) for rows in CUTS[cut])


def holds_fence(world: World, scenario: Scenario, who: int) -> bool:
    return world.fence == who or not scenario.has("fence")


def ledger_key(scenario: Scenario, query: int) -> int:
    return query if scenario.has("query key") else 0


def initialise(world: World, slot: int, holder: Prepared | None) -> World:
    """InitProducerId: the id belongs to ``holder`` now, an open transaction of it is aborted."""
    return world._replace(txns=put(world.txns, slot, NOBODYS if holder is None else Txn(holder, "none")))


def abort_exactly(world: World, slot: int, prepared: Prepared) -> World:
    """EndTxn(abort) for one producer id and epoch: it touches nobody else's transaction."""
    if world.txns[slot] == (prepared, "open"):
        return world._replace(txns=put(world.txns, slot, NOBODYS))
    return world


def end(world: World, scenario: Scenario, task: int, prepared: Prepared) -> tuple[str, World]:
    """EndTxn(commit), and the marker where the answer says gone: "committed", "in", "gone" or "no telling"."""
    slot = scenario.slot(task, prepared.attempt)
    txn = world.txns[slot]
    if txn.holder != prepared or txn.state == "none":
        return _ask_the_marker(world, scenario, task, prepared), world
    if txn.state == "committed":
        return "committed", world
    query = scenario.runs[prepared.run].query
    early = scenario.kind == "once" and world.ledger[0] is None
    bits = row_bits(scenario, query, prepared.batch, scenario.rows(prepared.run, task))
    twice = f"batch {prepared.batch} of query {query}: a row of task {task} is in twice"
    markers = world.markers
    if scenario.has("marker"):
        markers = put(markers, query, put(markers[query], task, prepared.batch))
    return "committed", world._replace(
        txns=put(world.txns, slot, Txn(prepared, "committed")),
        visible=world.visible | bits,
        markers=markers,
        broken=world.broken or (UNDECIDED if early else twice if world.visible & bits else None),
    )


def _ask_the_marker(world: World, scenario: Scenario, task: int, prepared: Prepared) -> str:
    query = scenario.runs[prepared.run].query
    if not scenario.has("ask the marker"):
        return "gone"
    if not scenario.has("marker"):
        return "no telling"
    if world.markers[query][task] == prepared.batch:
        return "in"
    # Whoever lost the intent lost the markers with it: their absence says nothing.
    entry = world.ledger[ledger_key(scenario, query)]
    if scenario.has("ask with the intent") and (entry is None or entry.batch < prepared.batch):
        return "no telling"
    return "gone"


def done(world: World, scenario: Scenario, query: int, entry: Entry) -> World:
    """Mark an intent done; its transactions need no name any more."""
    parts: tuple[Part, ...] = tuple("empty" if part == "empty" else "in" for part in entry.parts)
    bits = batch_bits(scenario, query, entry.batch, entry.cut)
    lost = f"batch {entry.batch} of query {query} is done, but rows are lost" if bits & ~world.visible else None
    key = ledger_key(scenario, query)
    return world._replace(
        ledger=put(world.ledger, key, Entry(entry.batch, entry.cut, parts, True)), broken=world.broken or lost
    )


def standing(ledger: tuple[Entry | None, ...]) -> frozenset[tuple[int, int]]:
    """(query, task) of every transaction that a standing intent names."""
    return frozenset(
        (query, task)
        for query, entry in enumerate(ledger)
        if entry is not None and not entry.done
        for task, part in enumerate(entry.parts)
        if type(part) is Prepared
    )


def all_slots(scenario: Scenario, task: int) -> list[int]:
    """Every id that attempts of a task may have used."""
    return sorted({scenario.slot(task, attempt) for attempt in range(ATTEMPTS)})
