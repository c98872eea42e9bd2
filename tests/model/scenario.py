"""What may happen in one exploration: who runs what, how much trouble there is, and which safeguards are taken out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

# How one reading of a batch cuts its rows into tasks. A batch has the rows 0 and 1, and row 2 only where it was
# planned anew over a longer range, from an older copy of the checkpoint.
CUTS: dict[str, tuple[tuple[int, ...], ...]] = {
    "halves": ((0,), (1,)),
    "swapped": ((1,), (0,)),  # as many tasks, other rows in each
    "one task": ((0, 1),),  # fewer tasks
    "one empty": ((0, 1), ()),  # as many tasks, one of which opens no transaction
    "nothing": ((), ()),  # a batch without rows
    "longer": ((0,), (1, 2)),  # not the same batch
}

# The name of each safeguard, and what is left when it is taken out.
SAFEGUARDS: dict[str, str] = {
    "fence": "P1 and abort do not initialise the driver's id: nobody is ever fenced at the ledger",
    "intent's EndTxn": "the intent counts as soon as it is appended, whoever holds the fence",
    "intent first": "the tasks' transactions are committed before the intent stands",
    "unsure raises": "P2, fenced when it repeats the intent's EndTxn, takes it for undecided and aborts",
    "skip": "a replay of a batch whose intent stands writes it again",
    "older refused": "a batch older than the ledger's is written (a batch job's older version: passed over)",
    "ledger start": "a batch > 0 without an entry is written",
    "empty batches": "a batch without rows leaves no entry in the ledger",
    "query key": "ledger entries are kept by prefix, not by (prefix, query)",
    "marker": "tasks write no marker into their transaction",
    "ask the marker": "whatever EndTxn says is gone counts as missing and is rewritten",
    "ask with the intent": "the marker's absence is believed even where the intent is no longer in the ledger",
    "replay checksum": "rows of a replay are not compared with those of the ledger's entry",
    "resolved reads": "the ledger is read as read_committed gives it: entries behind an open transaction are not seen",
    "abort reads": "abort does not look for a standing intent",
    "abort fence": "abort takes no fence of its own",
    "sweep": "P1 leaves alone what earlier runs left open",
    "sweep what is listed": "P1 sweeps the ids that the ledger's entry names, however many there were since",
    "list before the fence": "P1 lists what is open after it has read the ledger, and aborts it by id",
}

TASKS = 2  # at most, per batch
ATTEMPTS = 2  # at most, per task


@dataclass(frozen=True)
class Plan:
    """One run of a driver: a query's process from its start, or one run of a batch job, or of the recovery command."""

    query: int = 0
    cut: str = "halves"
    version: int | None = None  # batch jobs: the txnVersion asked for, instead of the first not yet reported as written


@dataclass(frozen=True)
class Scenario:
    """Bounds of one exploration. A number is a budget: so often it may happen, at any time, in every history."""

    runs: tuple[Plan, ...] = (Plan(), Plan())
    batches: int = 1
    # stream: a query from a checkpoint. versions: batch jobs with txnAppId and txnVersion, rerun until one succeeds.
    # once: a batch job without them, which nobody reruns; later runs are the recovery command.
    kind: Literal["stream", "versions", "once"] = "stream"
    ids: Literal["partition", "attempt"] = "partition"  # transactional ids: <prefix>-<partition>, or one per attempt
    orderly: bool = False  # a run starts when the earlier ones and their aborts have ended: no zombie drivers
    aborts: bool = True  # Spark may give a batch up at any time and start abort beside whatever still runs
    timeouts: int = 0  # the broker aborts an open transaction (a task's, or the intent's)
    retries: int = 0  # Spark starts a second attempt of a task while the first may live on
    lost_answers: int = 0  # the intent's EndTxn is carried out, its answer lost
    crashes: int = 0  # a run with all its processes is gone for good (a run that takes no step is always possible)
    ledger_losses: int = 0  # the ledger topic is deleted and created anew
    first_batch_too: bool = False  # the ledger may be lost before every query is past its first batch
    restores: int = 0  # a checkpoint is replaced by an older copy
    without: frozenset[str] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        if unknown := self.without - SAFEGUARDS.keys():
            raise ValueError(f"no such safeguard: {', '.join(sorted(unknown))} (there are: {', '.join(SAFEGUARDS)})")

    def has(self, safeguard: str) -> bool:
        return safeguard not in self.without

    @property
    def queries(self) -> int:
        return 1 + max(plan.query for plan in self.runs)

    @property
    def slots(self) -> int:
        """Transactional ids that tasks may use."""
        return TASKS if self.ids == "partition" else TASKS * ATTEMPTS

    def slot(self, task: int, attempt: int) -> int:
        return task if self.ids == "partition" else task + TASKS * attempt

    def rows(self, run: int, task: int) -> tuple[int, ...]:
        return CUTS[self.runs[run].cut][task]

    def tasks(self, run: int) -> range:
        return range(len(CUTS[self.runs[run].cut]))
