"""One state of everything: Kafka, Spark's checkpoint, every process. And what a broker does when it is asked.

Epochs only ever say whether an id still belongs to the process that initialised it last, so a state names the holder
instead: holders compare equal or not, as (producer id, epoch) pairs do, and are never ordered.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from tests.model.scenario import CUTS, TASKS, Replaces, Scenario

ROWS = 3  # of a batch, see CUTS
LAG = 2  # records of the ledger that a stale read may miss
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

    attempts: tuple[Literal["new", "initialised", "writing", "over"], ...]


class Entry(NamedTuple):
    """The ledger's last word on a query: the intent, or that it is done.

    ``cut`` stands for every task's checksum. ``topics``: those that it was written to, with their incarnations.
    ``ledger``: the incarnation of the ledger that the batch was planned with, see ``Scenario.ledger_losses``. ``turn``:
    how often its query has been given the name. ``newest``: no other entry of its name came after it.
    """

    batch: int
    cut: str
    parts: tuple[Part, ...]
    done: bool
    topics: frozenset[tuple[int, int]] = frozenset()
    ledger: int = 0
    turn: int = 1
    newest: bool = True

    @property
    def stands(self) -> bool:
        return not self.done


class Fence(NamedTuple):
    """Who holds a driver's id, a run or ~run for its abort, and what the run has recorded under it since planning.

    With transactions v2 each record bumps the epoch, so the last record that a reader finds tells whether the fence
    that it takes comes right after it.
    """

    who: int
    recorded: Literal["nothing", "intent", "done"] = "nothing"


class Txn(NamedTuple):
    """A transactional id of the tasks at its coordinator."""

    holder: Prepared | None  # None: its last holder has no part in this any more
    # partial: opened again under its epoch (v1), by an attempt whose first rows were aborted
    state: Literal["none", "open", "partial", "committed"]
    marked: bool = True  # the ledger that there is has the task's marker

    def is_of(self, holder: Prepared, state: str) -> bool:
        return self.holder == holder and self.state == state

    @property
    def is_open(self) -> bool:
        return self.state in ("open", "partial")


class Log(NamedTuple):
    """What the partitions know of a task's producer id, where they do not ask its coordinator (``unverified``).

    ``writing``: an attempt in mid-write, if its epoch is the newest they have seen. ``stray``: an attempt whose rows
    came after its transaction was ended; the next control record of this producer id decides them.
    """

    writing: Prepared | None = None
    stray: Prepared | None = None


class Left(NamedTuple):
    """What may still happen, see Scenario."""

    timeouts: int
    retries: int
    late_inits: int
    lost_answers: int
    late_ends: int
    stale_reads: int
    crashes: int
    failures: int
    late_rows: int
    ledger_losses: int
    deletions: int
    restores: int


class Who(NamedTuple):
    """A process, by its run."""

    run: int
    what: str = "run"

    def __str__(self) -> str:
        return f"{self.what} {self.run}"


class LateEnd(NamedTuple):
    """An EndTxn that a broker gets later: commit or abort of the transaction of one producer id and epoch.

    ``who`` sent it. ``slot`` and ``holder``: of a task's transaction; None: of the intent ``entry`` of a run.
    """

    who: Who
    what: Literal["commit", "abort", "intent"]
    run: int
    task: int = 0
    slot: int | None = None
    holder: Prepared | None = None
    entry: Entry | None = None


class Run(NamedTuple):
    """A driver run: P1, the tasks, P2's commit, Spark. ``listed`` is what P1 saw open, ``view`` what it read.

    P1 reads every entry of its name; the tasks, then P2, have their query's alone. ``kept``: P1's session has planned
    the batch before. ``barrier``: its next read of the ledger misses nothing. ``found``: it has found an entry.
    ``topics``: those that its tasks' messages name. ``ledger``: the incarnation that P1 has read. ``turn``: that of its
    query, which its entry gets.
    """

    phase: str
    batch: int = 0
    listed: frozenset = frozenset()
    view: tuple[Entry | None, ...] = ()
    tasks: tuple[Part | Waiting, ...] = ()
    todo: frozenset = frozenset()
    missing: frozenset = frozenset()
    kept: bool = False
    barrier: bool = True
    found: bool = False
    swept: bool = False
    topics: frozenset[tuple[int, int]] = frozenset()
    ledger: int = 0
    turn: int = 1


class Abort(NamedTuple):
    """P2's abort: a process of its own, beside whatever is left of the run. ``sure``: it has ended all itself.
    ``found``: its run has found an entry."""

    phase: str
    batch: int = 0
    messages: tuple[Part | None, ...] = ()
    listed: frozenset = frozenset()
    todo: frozenset = frozenset()
    sure: bool = True
    found: bool = False


class World(NamedTuple):
    checkpoint: tuple[int, ...]  # per query: the last batch Spark (the scheduler of a batch job) believes committed
    fences: tuple[Fence | None, ...]  # per name; None after a timeout
    ledger: tuple[Entry | None, ...]
    past: tuple[tuple[Entry | None, ...], ...]  # what it was before its last records, where reads may be stale
    txns: tuple[Txn, ...]
    logs: tuple[Log, ...]  # per id, where partitions do not ask the coordinator
    visible: int  # a bit per row that read_committed readers see
    buried: int  # rows that were visible in a topic when it was deleted
    topics: tuple[int, ...]  # where they may be deleted: 2 × incarnation, + 1 while there is none
    markers: tuple[tuple[Prepared | None, ...], ...]  # per entry and task: whose marker is the last that is visible
    sleepers: tuple[
        tuple[int, int], ...
    ]  # (id, run) of zombie attempts that will initialise it, -1: if they have looked
    late: frozenset[LateEnd]  # EndTxn requests that are on their way, and whose response nobody waits for
    clock: int  # 1: the deadline for an intent has passed; 2: the oldest transactions time out
    left: Left
    runs: tuple[Run, ...]
    aborts: tuple[Abort, ...]
    handed: frozenset[tuple[int, Replaces]] = frozenset()  # (query, the hand-over that it has made use of)
    broken: str | None = None  # a promise that a step has just broken


IDLE, GONE = Run("idle"), Run("dead")
NOBODYS = Txn(None, "none")
UNCALLED, OVER, TOLD = Abort("uncalled"), Abort("over"), "told"  # the phase: that nothing is visible


def first(scenario: Scenario) -> World:
    entries = 1 + max(scenario.entries)
    return World(
        checkpoint=(-1,) * scenario.queries,
        fences=(None,) * (1 + max(scenario.drivers)),
        ledger=(None,) * entries,
        past=(),
        txns=(NOBODYS,) * scenario.slots,
        logs=(Log(),) * scenario.slots if scenario.protocol == "unverified" else (),
        visible=0,
        buried=0,
        topics=(0,) * scenario.topics if scenario.deletions else (),
        markers=((None,) * TASKS,) * entries,
        sleepers=(),
        late=frozenset(),
        clock=0,
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


def breaks(world: World, promise: str) -> World:
    return world._replace(broken=world.broken or promise)


def on_its_way(world: World, end: LateEnd) -> World:
    return spend(world, "late_ends")._replace(late=world.late | {end})


def late_commit(world: World, scenario: Scenario, task: int, prepared: Prepared, who: Who) -> World:
    slot = scenario.slot(prepared.run, task)
    return on_its_way(world, LateEnd(who, "commit", prepared.run, task, slot, prepared))


def late_abort(world: World, slot: int, prepared: Prepared, who: Who) -> World:
    return on_its_way(world, LateEnd(who, "abort", prepared.run, slot % TASKS, slot, prepared))


def row_bits(scenario: Scenario, query: int, batch: int, rows: tuple[int, ...]) -> int:
    return sum(1 << ((query * (scenario.batches + 1) + batch) * ROWS + row) for row in rows)


def batch_bits(scenario: Scenario, query: int, batch: int, cut: str) -> int:
    return sum(row_bits(scenario, query, batch, rows) for rows in CUTS[cut])


# ------------------------------------------------------------------------------------------- the driver's id


def holds_fence(world: World, scenario: Scenario, index: int) -> bool:
    fence = world.fences[scenario.drivers[index]]
    return (fence is not None and fence.who == index) or not scenario.has("fence")


def fenced_by(world: World, scenario: Scenario, index: int, fence: Fence | None) -> World:
    """The id of this run's driver belongs to ``fence`` now. An EndTxn of before, still on its way, will be refused."""
    if not scenario.has("fence"):
        return world
    driver = scenario.drivers[index]
    late = frozenset(end for end in world.late if end.what != "intent" or scenario.drivers[end.run] != driver)
    after = world._replace(fences=put(world.fences, driver, fence), late=late)
    bumped = scenario.protocol == "v2" or fence is None or fence.recorded == "nothing"
    if not bumped or not scenario.has("look at the driver"):
        return after
    sleepers = [(slot, run if run < 0 or scenario.drivers[run] != driver else -1) for slot, run in world.sleepers]
    awake = [(slot, run) for slot, run in sleepers if run >= 0 or world.left.late_inits]
    return after._replace(sleepers=tuple(sorted(awake)))


def is_current(world: World, scenario: Scenario, index: int) -> bool:
    """Whether the driver's id is as planning left it. With transactions v2 the run's own intent bumps its epoch."""
    fence = world.fences[scenario.drivers[index]]
    held = fence is not None and fence.who == index and (fence.recorded == "nothing" or scenario.protocol != "v2")
    return held or not scenario.has("fence")


def may_begin(world: World, scenario: Scenario, index: int) -> bool:
    """A task's look at the driver's id, just before it initialises its own."""
    return is_current(world, scenario, index) or not scenario.has("look at the driver")


def record(world: World, scenario: Scenario, index: int, entry: Entry) -> World:
    """An entry under the fence of this run."""
    world = claimed(world, scenario, index)
    after = fenced_by(world, scenario, index, Fence(index, "done" if entry.done else "intent"))
    return with_entry(after, scenario, scenario.entries[index], entry)


def with_entry(world: World, scenario: Scenario, key: int, entry: Entry | None) -> World:
    past = (world.ledger, *world.past)[:LAG] if scenario.stale_reads else ()
    others = scenario.of_its_name[key] - {key}
    ledger = [e and e._replace(newest=e.newest and other not in others) for other, e in enumerate(world.ledger)]
    return world._replace(ledger=put(tuple(ledger), key, entry and entry._replace(newest=True)), past=past)


def taken_by(scenario: Scenario, ledger: tuple[Entry | None, ...], index: int) -> tuple[int, int] | None:
    """The query that has the run's name, and its turn, if that is another query: it has the name's last entry."""
    keys = scenario.of_its_name[scenario.entries[index]] - {scenario.entries[index]}
    return next(((scenario.query_of[key], each.turn) for key in keys if (each := ledger[key]) and each.newest), None)


def claimed(world: World, scenario: Scenario, index: int) -> World:
    """A batch of this run is decided. Its name belongs to its query, or is handed over, once, by the query that had it
    last."""
    plan, before = scenario.runs[index], taken_by(scenario, world.ledger, index)
    if before is None:
        return world
    claim = plan.query, plan.replaces
    if plan.replaces is None or plan.replaces.query != before[0] or claim in world.handed:
        return breaks(world, f"run {index}: query {plan.query} {UNASKED} of query {before[0]}")
    return world._replace(handed=world.handed | {claim})


UNASKED = "writes under the name"


# ----------------------------------------------------------------------------------------- the tasks' ids


def initialise(world: World, slot: int, holder: Prepared | None) -> World:
    """InitProducerId: the id belongs to ``holder`` now. An open transaction is aborted under a newer epoch."""
    after = _fenced_log(world, slot) if world.txns[slot].is_open else world
    return after._replace(txns=put(world.txns, slot, NOBODYS if holder is None else Txn(holder, "none")))


def take(world: World, scenario: Scenario, index: int, slot: int, holder: Prepared | None) -> World:
    """InitProducerId of a task of this run."""
    after, txn = initialise(world, slot, holder), world.txns[slot]
    if scenario.late_inits or not txn.is_open or txn.holder is None or is_current(world, scenario, index):
        return after
    fence, decided = world.fences[scenario.drivers[index]], (slot % TASKS, txn.holder) in decided_now(world)
    if decided or (fence is not None and fence.who == txn.holder.run):
        return breaks(after, f"a task of run {index} takes a transaction of run {txn.holder.run}: {TAKEN}")
    return after


def opened(world: World, slot: int, prepared: Prepared) -> World:
    """The first row of a transaction."""
    logs = put(world.logs, slot, Log(prepared, world.logs[slot].stray)) if world.logs else ()
    return world._replace(txns=put(world.txns, slot, Txn(prepared, "open", marked=False)), logs=logs)


def flushed(world: World, slot: int) -> World:
    """All rows of the transaction are in the log, none can arrive late."""
    return world._replace(logs=put(world.logs, slot, Log(None, world.logs[slot].stray))) if world.logs else world


def abort_exactly(
    world: World, scenario: Scenario, slot: int, prepared: Prepared, who: Who, by_end: bool = False
) -> World:
    """A sweep, or an abort, ends the transaction of one producer id and epoch: it touches no other attempt's.

    EndTxn(abort), which bumps the epoch with v2 and does not with v1. Before 3.6 (unverified), unless ``by_end``,
    InitProducerId with this identity: the coordinator aborts under the next epoch, and while a transaction is open it
    compares only the producer id. So it looks before whether it is fenced; if it comes late, it may abort a
    successor's, whose replay writes the rows again.
    """
    holder, init = world.txns[slot].holder, _aborts_by_init(scenario) and not by_end
    if not world.txns[slot].is_open or (holder != prepared and not init):
        return world
    late, fence = scenario.late_inits or scenario.late_ends, world.fences[scenario.drivers[who.run]]
    looks = init and not late and scenario.has("look before a sweep")
    if looks and (fence is None or fence.who not in (who.run, ~who.run)):
        return world
    after = world
    if scenario.names[holder.run] != scenario.names[who.run]:
        after = breaks(after, f"{who} aborts a transaction of run {holder.run}: {ANOTHERS}")
    decided = (slot % TASKS, holder) in decided_now(world)
    if decided and (holder == prepared or not late or scenario.protocol != "unverified"):
        after = breaks(after, f"{who} aborts a transaction of run {holder.run}, batch {holder.batch}: {DECIDED}")
    bumps = scenario.protocol == "v2" or init
    left = NOBODYS if bumps else Txn(prepared, "none")
    in_the_log = bumps and (scenario.protocol == "v2" or scenario.has("init what is open"))
    after = _fenced_log(after, slot) if in_the_log else _aborted_log(after, slot)
    return after._replace(txns=put(world.txns, slot, left))


def _aborts_by_init(scenario: Scenario) -> bool:
    if scenario.protocol == "unverified":
        return scenario.has("fence what is swept")
    return scenario.protocol == "v1" and not scenario.has("abort one epoch")


TAKEN = "its driver has been replaced, or has decided"
DECIDED = "it was decided, and nobody else may end it"
ANOTHERS = "it has another name"


def _fenced_log(world: World, slot: int) -> World:
    return world._replace(logs=put(world.logs, slot, Log())) if world.logs else world


def _aborted_log(world: World, slot: int) -> World:
    return world._replace(logs=put(world.logs, slot, Log(world.logs[slot].writing))) if world.logs else world


def end(world: World, scenario: Scenario, task: int, prepared: Prepared) -> list[tuple[str, World]]:
    """EndTxn(commit), and the marker where the answer says gone: "committed", "in", "gone" or "no telling"."""
    slot = scenario.slot(prepared.run, task)
    txn = world.txns[slot]
    if txn.holder != prepared or txn.state == "none":
        return _ask_the_marker(world, scenario, task, prepared)
    if txn.state == "committed":
        return [("committed", world)]
    key, query = scenario.entries[prepared.run], scenario.runs[prepared.run].query
    if txn.state == "partial":
        world = breaks(world, f"the first rows of task {task} were aborted, and the others are committed")
    decided = world.ledger[key]
    early = not scenario.ledger_losses and (decided is None or decided.batch < prepared.batch)
    bits = row_bits(scenario, query, prepared.batch, scenario.rows(prepared.run, task))
    twice = world.visible & bits and (query, prepared.batch) not in scenario.answered_for
    after = world
    if early:
        after = breaks(after, UNDECIDED)
    if twice:
        after = breaks(after, f"batch {prepared.batch} of query {query}: a row of task {task} is in twice")
    if world.aborts[prepared.run].phase == TOLD:
        after = breaks(after, f"abort of run {prepared.run} said that nothing is visible, and now a row of it is")
    if world.logs and world.logs[slot].stray is not None:
        after = breaks(after, f"rows of an ended transaction are committed with task {task}: a row is in twice")
    markers = world.markers
    if scenario.has("marker") and txn.marked:
        markers = put(markers, key, put(markers[key], task, prepared))
    after = _aborted_log(after, slot)  # a control record, under the epoch as it is
    return [
        (
            "committed",
            after._replace(
                txns=put(world.txns, slot, Txn(prepared, "committed")), visible=world.visible | bits, markers=markers
            ),
        )
    ]


def _ask_the_marker(world: World, scenario: Scenario, task: int, prepared: Prepared) -> list[tuple[str, World]]:
    key = scenario.entries[prepared.run]
    if not scenario.has("ask the marker"):
        return [("gone", world)]
    if not scenario.has("marker"):
        return [("no telling", world)]
    entry, marker = world.ledger[key], world.markers[key][task]
    if entry is not None and entry.done and entry.batch == prepared.batch:
        return [("in", world)]  # another process has carried the batch out
    own = marker == prepared or not scenario.has("marker of its own transaction")
    if marker is not None and marker.batch == prepared.batch and own:
        stale = world.left.stale_reads and not scenario.has("read past the marker")
        return [("in", world), *([("gone", spend(world, "stale_reads"))] if stale else [])]
    if scenario.has("markers of this ledger") and entry is not None and entry.ledger != incarnation(world, scenario):
        return [("no telling", world)]
    # Whatever lost the intent lost the markers with it: their absence says nothing.
    if scenario.has("ask with the intent") and (entry is None or entry.batch < prepared.batch):
        return [("no telling", world)]
    return [("gone", world)]


# --------------------------------------------------------------------------------------------- the ledger


def incarnation(world: World, scenario: Scenario) -> int:
    """How often the ledger was lost."""
    return scenario.ledger_losses - world.left.ledger_losses


def done(world: World, scenario: Scenario, key: int, query: int, entry: Entry) -> World:
    """Mark an intent done; its transactions need no name any more. A stream keeps no markers of tasks it had before."""
    parts: tuple[Part, ...] = tuple("empty" if part == "empty" else "in" for part in entry.parts)
    after = with_entry(world, scenario, key, entry._replace(parts=parts, done=True))
    kept = tuple(marker if task < len(parts) else None for task, marker in enumerate(world.markers[key]))
    after = after._replace(markers=put(world.markers, key, kept))
    bits = batch_bits(scenario, query, entry.batch, entry.cut)
    if bits & ~world.visible & ~world.buried and (query, entry.batch) not in scenario.answered_for:
        after = breaks(after, f"batch {entry.batch} of query {query} is done, but rows are lost")
    return after


def read(world: World, scenario: Scenario, index: int, exact: bool) -> list[tuple[str, tuple, World]]:
    """What a run's process may find of its name in the ledger: how it came to it, the entries, what is left."""
    found = [("", world.ledger, world)]
    if not exact and world.left.stale_reads:
        found += [(", up to an old high watermark", past, spend(world, "stale_reads")) for past in world.past]
    ours = scenario.found[index]
    return [
        (how, tuple(entry if key in ours else None for key, entry in enumerate(ledger)), after)
        for how, ledger, after in found
    ]


def standing(ledger: tuple[Entry | None, ...]) -> frozenset[tuple[int, int]]:
    """(key, task) of every transaction that a standing intent names."""
    return frozenset(
        (key, task)
        for key, entry in enumerate(ledger)
        if entry is not None and entry.stands
        for task, part in enumerate(entry.parts)
        if type(part) is Prepared
    )


def decided_now(world: World) -> frozenset[tuple[int, Prepared]]:
    """(task, transaction) of every standing intent."""
    return frozenset((task, world.ledger[key].parts[task]) for key, task in standing(world.ledger))


def is_prepared_in(world: World, scenario: Scenario, index: int, slot: int) -> bool:
    """Whether the transaction has its marker in the ledger of a run: then no other ledger can have decided it."""
    txn = world.txns[slot]
    return txn.marked and scenario.runs[txn.holder.run].ledger == scenario.runs[index].ledger


def open_transactions(world: World, scenario: Scenario, index: int) -> frozenset[tuple[int, Prepared | None]]:
    """What ListTransactions shows under the prefix of a run: ids, with producer ids and epochs."""
    slots = scenario.listed_slots(index)
    return frozenset((slot, world.txns[slot].holder) for slot in slots if world.txns[slot].is_open)
