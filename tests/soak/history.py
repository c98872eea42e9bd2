"""A history by what it is about: writes, attempts, transactions and the views of readers. Judges nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import NamedTuple

from tests.soak.claims import claim_of
from tests.soak.events import COMMITTED, Event, number_of, start_of, workload_of, write_of


class Partition(NamedTuple):
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Task(NamedTuple):
    write: str
    number: int

    def __str__(self) -> str:
        return f"task {self.number} of {self.write}"


class Transaction(NamedTuple):
    id: str
    producer_id: int
    epoch: int


class Place(NamedTuple):
    """What a receipt says: so many rows of an attempt lie between two offsets."""

    partition: Partition
    first: int
    last: int
    count: int

    def covers(self, spot: Spot) -> bool:
        return self.partition == spot.partition and self.first <= spot.offset <= self.last


@dataclass(eq=False)
class Attempt:
    """An attempt of a task. ``at``: when it got its first rows. ``rows``: each with its place in the order in which
    this attempt was handed them."""

    task: Task
    name: str
    start: str
    at: float
    rows: dict[str, int] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Report:
    at: float
    attempt: Attempt
    transaction: Transaction | None
    places: tuple[Place, ...]

    @property
    def task(self) -> Task:
        return self.attempt.task

    @property
    def rows(self) -> dict[str, int]:
        return self.attempt.rows


@dataclass(frozen=True)
class Intent:
    """``outcome``: asked if the process died before it had another one."""

    at: float
    start: str
    transactions: frozenset[Transaction]
    outcome: str

    @property
    def may_be_decided(self) -> bool:
        return self.outcome != "not decided"


class Verdict(NamedTuple):
    """``claim``: what its error says about the decision. ``start`` None: a query has noted it in its checkpoint."""

    at: float
    start: str | None
    by: str
    outcome: str
    claim: str


class GivenUp(NamedTuple):
    """What the sink's abort has said."""

    at: float
    start: str
    claim: str


class Run(NamedTuple):
    """A run of a write by a driver, which lasts until this driver begins the write again. ``start`` None: that of any
    driver."""

    start: str | None
    began: float
    ended: float

    def has(self, at: float, start: str | None) -> bool:
        return self.began <= at < self.ended and _may_be_same(self.start, start)


class Spot(NamedTuple):
    """Where a reader saw a row."""

    row: str
    partition: Partition
    offset: int

    @property
    def where(self) -> str:
        return f"{self.partition} at {self.offset}"


class Workload(NamedTuple):
    """``rows``: how many there are for each of its writes. ``topic``: where its rows belong. ``dead_letters``: those
    that belong to ``dead_letter_topic``, by number modulo ``rows``."""

    exactly_once: bool
    repeats: bool
    rows: int
    topic: str
    dead_letter_topic: str
    dead_letters: frozenset[int]

    def topic_of(self, row: str) -> str:
        """Where the row belongs."""
        is_letter = number_of(row) % self.rows in self.dead_letters
        return self.dead_letter_topic if is_letter else self.topic


_NO_WORKLOAD = Workload(True, True, 1, "", "", frozenset())


@dataclass
class View:
    """What a reader saw: offset → row in each partition, and below which offset it has seen everything."""

    reader: str
    isolation: str
    rows: dict[Partition, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    passed: dict[Partition, int] = field(default_factory=dict)

    def has_passed(self, place: Place) -> bool:
        return self.passed.get(place.partition, 0) > place.last

    def spots(self) -> Iterator[Spot]:
        return (Spot(row, where, offset) for where, rows in self.rows.items() for offset, row in rows.items())

    def between(self, place: Place) -> Iterator[tuple[int, str]]:
        rows = self.rows[place.partition]
        return ((offset, rows[offset]) for offset in range(place.first, place.last + 1) if offset in rows)


class History:
    """Everything that a checker looks up. Lists are in the order of time."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.workloads: dict[str, Workload] = {}
        self.rows: dict[str, dict[str, Task]] = defaultdict(dict)
        """Write → its rows, each with the task that it was handed to last."""
        self.attempts: dict[Task, dict[str, Attempt]] = defaultdict(dict)
        """Task → name → attempt."""
        self.attempts_of: dict[str, list[Attempt]] = defaultdict(list)
        """Row → the attempts that it was handed to."""
        self.reports: list[Report] = []
        self.intents: dict[str, list[Intent]] = defaultdict(list)
        self.ends: dict[Transaction, set[tuple[bool, str]]] = defaultdict(set)
        self.verdicts: dict[str, list[Verdict]] = defaultdict(list)
        self.gave_up: dict[str, list[GivenUp]] = defaultdict(list)
        self.views: dict[str, View] = {}
        self.nameless: list[str] = []
        """Intents, verdicts and lines of abort whose entry no report names, so that nobody knows their write."""
        self._began: dict[str, list[tuple[float, str | None]]] = defaultdict(list)
        ordered = sorted(events, key=lambda event: event["at"])
        self._tells_runs = {workload_of(event["write"]) for event in ordered if event["kind"] == "began"}
        reported = [event for event in ordered if event["kind"] == "reported" and event["entry"]]
        self._writes = {event["entry"]: event["write"] for event in reported if event["write"]}
        self._entries: dict[str, list[str]] = defaultdict(list)
        for entry, write in self._writes.items():
            self._entries[write].append(entry)
        self._without_rows = {event["entry"] for event in reported} - self._writes.keys()
        take = {
            "workload": self._workload,
            "began": lambda event: self._began[event["write"]].append((event["at"], event["start"])),
            "handed": self._handed,
            "reported": self._reported,
            "intent": self._intent,
            "end": self._end,
            "verdict": self._verdict,
            "gave up": self._gave_up,
            "seen": self._seen,
            "passed": self._passed,
        }
        for event in ordered:
            if event["kind"] in take:
                take[event["kind"]](event)
        decided = (intent for intents in self.intents.values() for intent in intents if intent.may_be_decided)
        self.decided = {transaction for intent in decided for transaction in intent.transactions}
        """The transactions that an intent names which is decided, or may be."""
        self.topics = {place.partition.topic for report in self.reports for place in report.places}
        """Those that receipts name. Others hold dead letters."""
        self.by_transaction = {each.transaction: each for each in self.reports if each.transaction is not None}

    def of_kind(self, isolation: str) -> list[View]:
        return [view for view in self.views.values() if view.isolation == isolation]

    def workload(self, write: str) -> Workload:
        """Of a row from nowhere as well, which has none: then everything is forbidden."""
        return self.workloads.get(workload_of(write), _NO_WORKLOAD)

    def authors(self, spot: Spot) -> list[Report]:
        """The reports that the row there can be of: it was handed to their attempts, and their receipts have rows
        there. Of several, those whose transaction may be decided, because no other is visible.

        Dead letters have no receipts: they can be of any attempt that has reported. Of several, those whose transaction
        was not aborted.
        """
        reports = [
            report
            for attempt in self.attempts_of.get(spot.row, ())
            for report in attempt.reports
            if spot.partition.topic not in self.topics or any(place.covers(spot) for place in report.places)
        ]
        if len(reports) < 2:
            return reports
        reports = [report for report in reports if report.transaction in self.decided] or reports
        if spot.partition.topic in self.topics:
            return reports
        return [report for report in reports if not self.is_aborted(report.transaction)] or reports

    def is_aborted(self, transaction: Transaction | None) -> bool:
        """Whether the sink has aborted it, and not committed it."""
        ends = set() if transaction is None else self.ends.get(transaction, set())
        return (False, "aborted") in ends and (True, "committed") not in ends

    def visible(self, writes: Collection[str]) -> dict[str, set[Spot]]:
        """Write → where any read_committed reader saw rows of it."""
        found: dict[str, set[Spot]] = defaultdict(set)
        for view in self.of_kind(COMMITTED):
            for spot in view.spots():
                if (write := write_of(spot.row)) in writes:
                    found[write].add(spot)
        return found

    def run(self, write: str, at: float, start: str | None) -> Run:
        """The one that the driver was in."""
        began = [each for each, by in self._began[write] if _may_be_same(by, start)]
        before, after = [each for each in began if each <= at], [each for each in began if each > at]
        return Run(start, before[-1] if before else -inf, after[0] if after else inf)

    def begun(self) -> Iterator[str]:
        """The first write that has begun of each workload."""
        first: dict[str, str] = {}
        for write in (write for write, runs in self._began.items() if runs):
            known = first.setdefault(workload_of(write), write)
            first[workload_of(write)] = min(known, write, key=number_of)
        return iter(first.values())

    def began_after(self, write: str, at: float) -> bool:
        """Whether a run of the write began later."""
        return any(began > at for began, _ in self._began[write])

    def attempts_in(self, write: str, run: Run) -> set[Attempt]:
        attempts = {each for row in self.rows[write] for each in self.attempts_of[row]}
        return {each for each in attempts if run.has(each.at, each.start)}

    def committed_verdict(self, write: str) -> bool:
        return any(verdict.outcome == "committed" for verdict in self.verdicts[write])

    @cached_property
    def visible_at_last(self) -> set[str]:
        """The rows of the read_committed reader that began last, which has read from the start; with one reader, of
        that one."""
        views = self.of_kind(COMMITTED)
        return {row for rows in views[-1].rows.values() for row in rows.values()} if views else set()

    def told_failed(self, write: str) -> list[Verdict]:
        """The errors of failed runs. What the job was told is what counts: if it was told about a run, what the sink
        has told Spark is left out."""
        failed = [each for each in self.verdicts.get(write, ()) if each.outcome == "failed"]
        runs = [self.run(write, each.at, each.start) for each in failed if each.by == "job"]
        return [each for each in failed if each.by == "job" or not any(run.has(each.at, each.start) for run in runs)]

    @cached_property
    def last_committed(self) -> dict[str, int]:
        """The highest number of each workload that was told committed."""
        last: dict[str, int] = {}
        for write in list(self.verdicts):
            if self.committed_verdict(write):
                last[workload_of(write)] = max(number_of(write), last.get(workload_of(write), -1))
        return last

    def is_due(self, write: str) -> bool:
        """Whether all of its rows must be visible: it was told committed, or is repeated and a later number of its
        workload was."""
        before = number_of(write) < self.last_committed.get(workload_of(write), -1)
        return self.committed_verdict(write) or (before and self.workload(write).repeats)

    def _workload(self, event: Event) -> None:
        self.workloads[event["name"]] = Workload(
            event["exactly_once"],
            event["repeats"],
            event["rows"],
            event["topic"],
            event["dead_letter_topic"],
            frozenset(event["dead_letters"]),
        )

    def _handed(self, event: Event) -> None:
        task = Task(event["write"], event["task"])
        attempt = self._attempt(event)
        if workload_of(task.write) not in self._tells_runs and self._is_new_run(task.write, attempt.start):
            self._began[task.write].append((event["at"], attempt.start))
        for row in event["rows"]:
            attempt.rows[row] = len(attempt.rows)
            self.rows[write_of(row)][row] = task
            if attempt not in self.attempts_of[row]:
                self.attempts_of[row].append(attempt)

    def _attempt(self, event: Event) -> Attempt:
        task, name = Task(event["write"], event["task"]), event["attempt"]
        return self.attempts[task].setdefault(name, Attempt(task, name, start_of(name), event["at"]))

    def _is_new_run(self, write: str, start: str | None) -> bool:
        """Of a query, whose runs nobody tells: whether it is the first, or the one before has come to its end."""
        began = self.run(write, inf, start).began
        ended = (*self.intents.get(write, ()), *self.verdicts.get(write, ()), *self.gave_up.get(write, ()))
        return began == -inf or any(each.at > began and _may_be_same(each.start, start) for each in ended)

    def _reported(self, event: Event) -> None:
        transaction = None if event["transaction"] is None else Transaction(*event["transaction"])
        if event["write"] is None:
            return
        places = tuple(Place(Partition(*each[:2]), *each[2:]) for each in event["places"])
        report = Report(event["at"], self._attempt(event), transaction, places)
        report.attempt.reports.append(report)
        self.reports.append(report)

    def _intent(self, event: Event) -> None:
        write = self._write(event)
        if write is None:
            return
        transactions = frozenset(Transaction(*each) for each in event["transactions"])
        intent = Intent(event["at"], event["start"], transactions, event["outcome"])
        said = self.intents[write]
        if intent.outcome != "asked":  # of two drivers, each has the answer to its own question
            asked = [each for each in said if each.outcome == "asked" and each.transactions == intent.transactions]
            if asked:
                said[said.index(asked[-1])] = replace(asked[-1], outcome=intent.outcome)
                return
        said.append(intent)

    def _end(self, event: Event) -> None:
        self.ends[Transaction(*event["transaction"])].add((event["commit"], event["outcome"]))

    def _verdict(self, event: Event) -> None:
        write = event.get("write") or self._write(event)
        if write is not None:
            claim = claim_of(event["error"], self._entries[write])
            self.verdicts[write].append(Verdict(event["at"], event.get("start"), event["by"], event["outcome"], claim))

    def _gave_up(self, event: Event) -> None:
        write = self._write(event)
        if write is not None:
            claim = claim_of(event["text"], self._entries[write])
            self.gave_up[write].append(GivenUp(event["at"], event["start"], claim))

    def _write(self, event: Event) -> str | None:
        """By its entry. Without one, the write is at least once, or no task of it had reported."""
        entry = event.get("entry")
        if entry and entry not in self._writes and entry not in self._without_rows:
            self.nameless.append(f"{event['kind']} of {entry}")
        return self._writes.get(entry or "")

    def _seen(self, event: Event) -> None:
        view = self._view(event)
        partition = Partition(event["topic"], event["partition"])
        view.rows[partition].update((offset, row) for offset, row in event["rows"])

    def _passed(self, event: Event) -> None:
        passed = self._view(event).passed
        partition = Partition(event["topic"], event["partition"])
        passed[partition] = max(passed.get(partition, 0), event["offset"])

    def _view(self, event: Event) -> View:
        return self.views.setdefault(event["reader"], View(event["reader"], event["isolation"]))


def _may_be_same(one: str | None, other: str | None) -> bool:
    """Whether two starts are of one driver, as far as the history says it."""
    return one is None or other is None or one == other
