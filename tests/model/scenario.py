"""What may happen in one exploration: who runs what, how much trouble there is, and which safeguards are taken out."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

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
    "fence": "P1 and abort do not initialise the driver's id: no driver is ever fenced at the ledger",
    "intent's EndTxn": "the intent counts as soon as it is appended, whichever driver holds the fence",
    "intent first": "the tasks' transactions are committed before the intent stands",
    "unsure raises": "P2, fenced when it repeats the intent's EndTxn, takes it for undecided and aborts",
    "deadline": "P2 compares the age of the oldest transaction once, and sends the intent's EndTxn however late",
    "look at the driver": "a task initialises its id without a look at who holds its driver's id",
    "look at what is prepared": "P2 decides without a look at the transactions that it names",
    "skip": "a replay of a batch whose intent stands writes it again",
    "older refused": "a batch older than the ledger's is written (a batch job's older version: passed over)",
    "ledger start": "a batch > 0 without an entry is written",
    "gap refused": "a batch beyond the one after the ledger's is written",
    "trust for one batch": "ledgerStart holds for every batch, not for the one that it names",
    "accepted with its loss": "ledgerStart=trust-ledger leaves a torn batch to its replay, which may be refused",
    "empty batches": "a batch without rows leaves no entry in the ledger",
    "one query for each name": "a query writes under a name whose last entry in the ledger is another query's",
    "one turn for each hand-over": "ledgerStart=replaces holds for each turn of the other query, not for the one named",
    "query key": "ledger entries are kept by name, not by (name, query)",
    "a driver id for each name": "all writes of the cluster have one driver id",
    "entries of its own name": "planning and abort finish what stands in the ledger under any name",
    "the whole name": "listed is what begins with the name, so what a neighbour has open, too",
    "marker": "tasks write no marker into their transaction",
    "ask the marker": "a transaction that EndTxn does not know any more counts as missing and is rewritten",
    "marker of its own transaction": "a marker of the batch and the task counts, whichever transaction it is of",
    "ask with the intent": "the marker's absence is believed even where the intent is no longer in the ledger",
    "read past the marker": "the marker's absence is believed before the log is read past the marker's offset",
    "markers of this ledger": "an intent does not say in which incarnation of the ledger its markers are",
    "topics of a replay": "a replay does not compare the topics with those that the batch was committed to",
    "topics of both runs": "the entry of a repaired batch has only the topics that the repair wrote to",
    "topics by id": "topics are compared by name: one that was created again counts as the old one",
    "replay checksum": "rows of a replay are not compared with those of the ledger's entry",
    "resolved reads": "the ledger is read as read_committed gives it: entries behind an open transaction are not seen",
    "read under the fence": "planning reads the ledger, then takes the fence",
    "barrier": "planning reads the ledger up to the high watermark of one Fetch, and appends no barrier",
    "continuous fence": "a kept session that finds its last batch done appends no barrier, whoever had the fence since",
    "abort barrier": "abort reads the ledger up to the high watermark of one Fetch, and appends no barrier",
    "abort reads": "abort does not look for a standing intent",
    "abort fence": "abort takes no fence of its own",
    "abort for its own run": "abort takes the fence, whichever run holds it",
    "abort by identity": "abort initialises the ids of tasks without a report, whichever attempt holds them",
    "abort fences what it lists": "abort bumps the driver's epoch before its list, and not after it",
    "abort what is listed": "abort ends only the transactions that were reported",
    "abort in its own ledger": "of a run whose planning found no entry, abort ends also what is prepared elsewhere",
    "a fenced abort ends its own": "an abort that was fenced leaves open what its tasks have reported",
    "a fenced abort reads": "an abort that was fenced ends what its tasks have reported, decided or not",
    "abort tells what it ended": "abort says that nothing is visible whenever it finds no entry of the batch",
    "failing tasks abort": "a task that fails leaves its transaction open",
    "sweep": "P1 leaves alone what earlier runs left open",
    "sweep what is listed": "P1 sweeps the ids that the ledger's entry names, however many there were since",
    "list before the fence": "P1 lists what is open after it has read the ledger, and aborts it by id",
    "sweep under an entry": "P1 sweeps a name of which this ledger has no entry",
    "sweep at the first entry": "a session sweeps at its first planning or never",
    "abort one epoch": "with transactions v1 a sweep sends InitProducerId, which ends what a successor has open",
    "fence what is swept": "before 3.6 a sweep sends EndTxn(abort), which leaves the epoch as it is",
    "look before a sweep": "before 3.6 a sweep sends InitProducerId without a look at the driver's id",
    "end by identity": "an EndTxn that arrives late ends whatever its id has open by then",
    "init what is open": "before 3.6 a sweep sends EndTxn(abort) and then InitProducerId",
}

TASKS = 2  # at most, per batch
ATTEMPTS = 2  # at most, per task


# stream: a query from a checkpoint. versions: batch jobs with txnAppId and txnVersion, rerun until one succeeds.
Kind = Literal["stream", "versions"]


class Trust(NamedTuple):
    """ledgerStart, for one batch: trust-checkpoint:N (it is not in Kafka) or trust-ledger:N (what is there is it)."""

    what: Literal["checkpoint", "ledger"]
    batch: int


class Replaces(NamedTuple):
    """ledgerStart=replaces: the name is handed over from this query, whose turn it is."""

    query: int
    turn: int = 1


@dataclass(frozen=True)
class Plan:
    """One run of a driver: a query's process from its start, or one run of a batch job.

    ``write``: whose run it is. Each has a name of its own (a stream's prefix, a txnAppId), and all have one ledger, one
    topic and one cluster, which lists every transaction. The name of each is the beginning of the next one's: "a",
    "a-1".
    """

    query: int = 0
    write: int = 0
    kind: Kind | None = None  # None: the scenario's
    cut: str = "halves"
    version: int | None = None  # batch jobs: the txnVersion asked for, instead of the first not yet reported as written
    ledger: int = 0  # which ledgerTopic the run is given
    trust: Trust | None = None
    replaces: Replaces | None = None
    at_least_once: bool = False  # the query runs with the other guarantee this time
    until: int | None = None  # the query is stopped after this batch


@dataclass(frozen=True)
class Scenario:
    """Bounds of one exploration. A number is a budget: so often it may happen, at any time, in every history."""

    runs: tuple[Plan, ...] = (Plan(), Plan())
    batches: int = 1
    kind: Kind = "stream"
    # v2: EndTxn bumps the epoch. v1: it does not. unverified: v1 before Kafka 3.6, where a partition accepts rows of a
    # transaction that its coordinator has ended.
    protocol: Literal["v2", "v1", "unverified"] = "v2"
    orderly: bool = False  # a run starts when the earlier ones and their aborts have ended: no zombie drivers
    aborts: bool = True  # Spark may give a batch up at any time and start abort beside whatever still runs
    timeouts: int = 0  # the broker aborts an open transaction (a task's, or the intent's)
    retries: int = 0  # Spark starts a second attempt of a task while the first may live on
    late_inits: int = 0  # a task's InitProducerId comes long after its look at the driver
    lost_answers: int = 0  # the intent's EndTxn is carried out, its answer lost
    late_ends: int = 0  # an EndTxn is on its way while its sender has given it up, or sent it again
    stale_reads: int = 0  # a Fetch's high watermark lags: a read misses the ledger's last records, or a marker
    crashes: int = 0  # a run with all its processes is gone for good (a run that takes no step is always possible)
    mid_write: bool = False  # between a task's first row and its last, other processes may take steps
    failures: int = 0  # a task fails in mid-write, and can still act
    late_rows: int = 0  # unverified: a Produce of an attempt arrives after its transaction was ended
    clock: bool = False  # transactions time out when they are old: first the deadline passes, then the timeout
    ledger_losses: int = 0  # the ledger topic is deleted and created anew
    deletions: int = 0  # a topic of the rows is deleted while nobody writes, and may be created again later
    topics: int = 1  # row r of a batch is in topic r % topics
    first_batch_too: bool = False  # what a query's entry must be there for may happen in its first batch too
    restores: int = 0  # a checkpoint is replaced by an older copy
    tidy: bool = False  # no process dies in this scenario: in the end nothing may be left open
    without: frozenset[str] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        if unknown := self.without - SAFEGUARDS.keys():
            raise ValueError(f"no such safeguard: {', '.join(sorted(unknown))} (there are: {', '.join(SAFEGUARDS)})")

    def has(self, safeguard: str) -> bool:
        return safeguard not in self.without

    @cached_property
    def queries(self) -> int:
        return 1 + max(plan.query for plan in self.runs)

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(plan.kind or self.kind for plan in self.runs)

    @cached_property
    def names(self) -> tuple[int, ...]:
        """Per run: what its ids and its ledger entries are named by."""
        return tuple(plan.write for plan in self.runs)

    @cached_property
    def drivers(self) -> tuple[int, ...]:
        """Per run: the transactional id of its driver."""
        return self.names if self.has("a driver id for each name") else (0,) * len(self.runs)

    def earlier(self, run: int) -> list[int]:
        """The runs of the same name before this one."""
        return [each for each in range(run) if self.names[each] == self.names[run]]

    @cached_property
    def _places(self) -> tuple[tuple[int, int, int], ...]:
        queries = [plan.query if self.has("query key") else 0 for plan in self.runs]
        return tuple(zip((plan.ledger for plan in self.runs), self.names, queries, strict=True))

    @cached_property
    def entries(self) -> tuple[int, ...]:
        """Per run: where in the ledger its entry is."""
        distinct = sorted(set(self._places))
        return tuple(map(distinct.index, self._places))

    @cached_property
    def of_its_name(self) -> tuple[frozenset[int], ...]:
        """Per entry: those of all queries of its name, in its ledger."""
        places = sorted(set(self._places))
        return tuple(frozenset(entry for entry, place in enumerate(places) if place[:2] == own[:2]) for own in places)

    @cached_property
    def query_of(self) -> tuple[int, ...]:
        """Per entry: the query that it is of."""
        return tuple(self.runs[self.entries.index(entry)].query for entry in range(len(set(self._places))))

    @cached_property
    def of_other_kind(self) -> tuple[frozenset[int], ...]:
        """Per run: the entries of its name that are of the other kind of write."""
        entries = list(zip(self.entries, self.names, self.kinds, strict=True))
        return tuple(
            frozenset(entry for entry, its_name, its_kind in entries if its_name == name and its_kind != kind)
            for name, kind in zip(self.names, self.kinds, strict=True)
        )

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Per entry of the ledger: which query it is of."""
        several = len({plan.ledger for plan in self.runs}) > 1
        return tuple(
            f"query {query}" + (f", ledger {ledger}" if several else "")
            for ledger, _, query in sorted(set(self._places))
        )

    @cached_property
    def found(self) -> tuple[frozenset[int], ...]:
        """Per run: the entries of its name, in its ledger topic."""
        return tuple(
            frozenset(
                entry
                for entry, place in zip(self.entries, self._places, strict=True)
                if place[0] == ledger and (place[1] == name or not self.has("entries of its own name"))
            )
            for ledger, name, _ in self._places
        )

    @cached_property
    def slots(self) -> int:
        """Transactional ids that tasks may use."""
        return TASKS * (1 + max(self.names))

    def slots_of(self, run: int) -> range:
        return range(self.slot(run, 0), self.slot(run, TASKS))

    def listed_slots(self, run: int) -> range:
        """The ids that the run picks from the cluster's list."""
        return self.slots_of(run) if self.has("the whole name") else range(self.slot(run, 0), self.slots)

    def slot(self, run: int, task: int) -> int:
        return TASKS * self.names[run] + task

    def rows(self, run: int, task: int) -> tuple[int, ...]:
        return CUTS[self.runs[run].cut][task]

    def tasks(self, run: int) -> range:
        return range(len(CUTS[self.runs[run].cut]))

    def trusts(self, run: int, what: str, batch: int) -> bool:
        trust = self.runs[run].trust
        if trust is None or trust.what != what:
            return False
        return trust.batch == batch or not self.has("trust for one batch")

    @cached_property
    def answered_for(self) -> frozenset[tuple[int, int]]:
        """(query, batch) whose rows a user has answered for, by ledgerStart: no promise is made of them."""
        return frozenset((plan.query, plan.trust.batch) for plan in self.runs if plan.trust is not None)

    @cached_property
    def entries_may_lack(self) -> bool:
        """Whether a query may rightly be stopped because its ledger does not know the batch before."""
        switched = any(plan.at_least_once or plan.ledger for plan in self.runs)
        return bool(self.ledger_losses or switched)
