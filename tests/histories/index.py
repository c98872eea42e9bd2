"""A history by what it is about: writes, attempts, transactions and the views of readers. Judges nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import NamedTuple

from tests.histories.claims import claim_of
from tests.histories.events import Event, number_of, start_of, workload_of, write_of

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
_SHOWN_OF_ID = 8


class Partition(NamedTuple):
    """``incarnation`` "": the history does not say which, because the topic had only one."""

    topic: str
    number: int
    incarnation: str = ""

    def __str__(self) -> str:
        which = f" of {self.incarnation[:_SHOWN_OF_ID]}" if self.incarnation else ""
        return f"{self.topic}-{self.number}{which}"


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
    Spark handed them to this attempt. ``start`` None: the history does not say of which driver it is."""

    task: Task
    name: str
    start: str | None
    at: float
    rows: dict[str, int] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Report:
    """``topics``: all that the task wrote to, with their incarnations, as far as the sink knows them. Those that no
    place is in have dead letters."""

    at: float
    attempt: Attempt
    transaction: Transaction | None
    places: tuple[Place, ...]
    topics: frozenset[tuple[str, str]] = frozenset()

    @property
    def task(self) -> Task:
        return self.attempt.task

    @property
    def rows(self) -> dict[str, int]:
        return self.attempt.rows

    @property
    def all_topics(self) -> set[tuple[str, str]]:
        """Those of its places as well: each with its incarnation."""
        return {*self.topics, *((place.partition.topic, place.partition.incarnation) for place in self.places)}


@dataclass(frozen=True)
class Intent:
    """``outcome``: asked if the process died before it had another one."""

    at: float
    start: str | None
    transactions: frozenset[Transaction]
    outcome: str

    @property
    def may_be_decided(self) -> bool:
        return self.outcome != "not decided"


class Verdict(NamedTuple):
    """``claim``: what its error says about the decision."""

    at: float
    start: str | None
    by: str
    outcome: str
    claim: str


class GivenUp(NamedTuple):
    """What the sink's abort has said. ``start`` None: the history does not say in which driver."""

    at: float
    start: str | None
    claim: str


class Run(NamedTuple):
    """A run of a write by a driver, which lasts until this driver begins the write again. ``start`` None: the history
    does not say by which driver."""

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


class Workload(NamedTuple):
    """``rows``: how many Spark has for each of its writes, None if the history does not say so. ``topic``: where its
    rows belong, None likewise. ``dead_letters``: those that belong to ``dead_letter_topic``, by number."""

    exactly_once: bool
    repeats: bool
    rows: int | None = None
    topic: str | None = None
    dead_letter_topic: str = ""
    dead_letters: frozenset[int] = frozenset()

    def topic_of(self, row: str) -> str | None:
        """Where the row belongs."""
        number = number_of(row)
        is_letter = (number % self.rows if self.rows else number) in self.dead_letters
        return self.dead_letter_topic if is_letter else self.topic


@dataclass
class View:
    """What a reader saw: offset → row in each partition, and below which offset it has seen everything. ``told``: what
    each of its events said and when, as ``[offset, row]``. ``contradictions``: where it saw another row than before, or
    one where it had passed none, each with a clause that says so."""

    reader: str
    isolation: str
    rows: dict[Partition, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    passed: dict[Partition, int] = field(default_factory=dict)
    told: list[tuple[float, Partition, list[tuple[int, str]]]] = field(default_factory=list)
    contradictions: list[tuple[Partition, str]] = field(default_factory=list)

    def see(self, partition: Partition, offset: int, row: str) -> None:
        known = self.rows[partition].get(offset)
        if known is None and offset < self.passed.get(partition, 0):
            self.contradictions.append((partition, f"saw {row} at {offset}, after it had passed it"))
        if known not in (None, row):
            self.contradictions.append((partition, f"saw {known} and later {row} at {offset}"))
        self.rows[partition][offset] = row

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
        self.reported: set[Transaction] = set()
        """The transactions of all tasks, also of those without rows."""
        self.intents: dict[str, list[Intent]] = defaultdict(list)
        self.ends: dict[Transaction, set[tuple[bool, str]]] = defaultdict(set)
        self.commits: dict[Transaction, float] = {}
        """Transaction → when the sink first asked a broker to commit it."""
        self.verdicts: dict[str, list[Verdict]] = defaultdict(list)
        self.gave_up: dict[str, list[GivenUp]] = defaultdict(list)
        self.views: dict[str, View] = {}
        self.nameless: list[str] = []
        """Intents, verdicts and lines of abort whose entry no report names, so that nobody knows their write, and
        verdicts of failed exactly-once writes without an entry."""
        self._without_entry: list[str] = []
        self._of_unknown_writes: list[Intent] = []
        self._began: dict[str, list[tuple[float, str | None]]] = defaultdict(list)
        self._starts: dict[str, list[tuple[float, str]]] = defaultdict(list)
        self._actors: dict[str, str] = {}
        self._faults: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
        self._deleted: dict[tuple[str, str], float] = {}
        self._recreated: dict[tuple[str, str], float] = {}
        self._created: dict[str, str] = {}
        ordered = sorted(events, key=lambda event: event.at)
        self._tells_runs = {workload_of(event["write"]) for event in ordered if event.kind == "began"}
        reported = [event for event in ordered if event.kind == "reported" and event["entry"]]
        self._writes = {event["entry"]: event["write"] for event in reported if event["write"]}
        self._entries: dict[str, list[str]] = defaultdict(list)
        for entry, write in self._writes.items():
            self._entries[write].append(entry)
        self._without_rows = {event["entry"] for event in reported} - self._writes.keys()
        take = {
            "workload": self._workload,
            "driver": self._driver,
            "began": lambda event: self._began[event["write"]].append((event.at, event.get("start"))),
            "handed": self._handed,
            "reported": self._reported,
            "intent": self._intent,
            "end": self._end,
            "verdict": self._verdict,
            "gave up": self._gave_up,
            "topic": self._topic,
            "fault": self._fault,
            "seen": self._seen,
            "passed": self._passed,
        }
        for event in ordered:
            if event.kind in take:
                take[event.kind](event)
        self.nameless += [f"verdict of {actor}" for actor in self._without_entry if self._is_exactly_once(actor)]
        known = [each for intents in self.intents.values() for each in intents]
        self.decided = set(_first_named(known))
        """The transactions that an intent names which is decided, or may be."""
        self.first_named = _first_named([*known, *self._of_unknown_writes])
        """Transaction → when the first such intent was asked for, also one whose write is not known."""
        self.topics = {place.partition.topic for report in self.reports for place in report.places}
        """Those that receipts name. Others hold dead letters."""
        self.reports_of: dict[Transaction, list[Report]] = defaultdict(list)
        for report in self.reports:
            if report.transaction is not None:
                self.reports_of[report.transaction].append(report)
        self.by_transaction = {each.transaction: each for each in self.reports if each.transaction is not None}

    def of_kind(self, isolation: str) -> list[View]:
        return [view for view in self.views.values() if view.isolation == isolation]

    def workload(self, write: str) -> Workload:
        return self.workloads.get(workload_of(write), Workload(exactly_once=True, repeats=True))

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
        """Write → where any read_committed reader saw rows of it, also in topics that were deleted since."""
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

    def died(self, write: str, at: float, start: str | None) -> bool:
        """Whether the driver of the write is known to have ended after that time: another one was started."""
        starts = self._starts[self._actors.get(workload_of(write), "")]
        return any(later > at and not _may_be_same(each, start) for later, each in starts)

    def committed_verdict(self, write: str) -> bool:
        return any(verdict.outcome == "committed" for verdict in self.verdicts[write])

    @cached_property
    def visible_at_last(self) -> set[str]:
        """The rows of the read_committed reader that began last, which has read from the start; with one reader, of
        that one."""
        views = self.of_kind(COMMITTED)
        return {row for rows in views[-1].rows.values() for row in rows.values()} if views else set()

    @cached_property
    def gone(self) -> set[str]:
        """The rows that went with a deleted topic.

        A row went with it if its task's decided transaction wrote it to the topic: the one that the last decided intent
        names, or one that a later intent names whose outcome is not known.
        """
        decided: dict[Task, list[Report]] = {}
        for intents in self.intents.values():
            for intent in intents:
                named = [self.by_transaction[each] for each in intent.transactions if each in self.by_transaction]
                for report in named if intent.may_be_decided else ():
                    before = [] if intent.outcome == "decided" else decided.get(report.task, [])
                    decided[report.task] = [*before, report]
        reports = [report for of_task in decided.values() for report in of_task]
        room = {report: count for report in reports if (count := self._count_deleted(report))}
        kept, deleted = self._seen_of(room)
        gone = set()
        for report, count in room.items():
            there = deleted[report]
            unseen = [row for row in report.rows if row not in there and row not in kept[report]]
            gone |= {*there, *unseen[: max(0, count - len(there))]}
        return gone

    def _count_deleted(self, report: Report) -> int:
        """How many rows the report's task wrote to deleted topics. What no receipt counts are dead letters."""
        places = {place: self.is_deleted(place.partition.topic, place.partition.incarnation) for place in report.places}
        count = sum(place.count for place, is_deleted in places.items() if is_deleted)
        with_places = {place.partition.topic for place in places}
        if any(self.is_deleted(*topic) for topic in report.topics if topic[0] not in with_places):
            count += len(report.rows) - sum(place.count for place in places)
        return count

    def _seen_of(self, reports: Collection[Report]) -> tuple[dict[Report, set[str]], dict[Report, set[str]]]:
        """The rows of the reports that any reader saw where they were written: in topics that are still there, and in
        deleted ones."""
        kept: dict[Report, set[str]] = defaultdict(set)
        deleted: dict[Report, set[str]] = defaultdict(set)
        rows = {row for report in reports for row in report.rows}
        for view in self.views.values():
            for spot in view.spots():
                if spot.row in rows:
                    is_deleted = self.is_deleted(spot.partition.topic, spot.partition.incarnation)
                    for report in self.authors(spot):
                        (deleted if is_deleted else kept)[report].add(spot.row)
        return kept, deleted

    def told_failed(self, write: str) -> list[Verdict]:
        """The errors of failed runs that the job has got. What Spark says is what counts: if it has told the job about
        a run, what the sink has told Spark is left out."""
        failed = [each for each in self.verdicts.get(write, ()) if each.outcome == "failed"]
        runs = [self.run(write, each.at, each.start) for each in failed if each.by == "spark"]
        return [each for each in failed if each.by == "spark" or not any(run.has(each.at, each.start) for run in runs)]

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

    def is_deleted(self, topic: str, incarnation: str, before: float = inf) -> bool:
        return self._deleted.get((topic, incarnation), inf) < before

    def replaced(self, topic: str, incarnation: str) -> tuple[float, float] | None:
        """When the topic was deleted, and created again; None if it was not."""
        place = topic, incarnation
        return (self._deleted[place], self._recreated[place]) if place in self._recreated else None

    def meets_a_fault(self, write: str, since: float, until: float) -> bool:
        """Whether a fault struck the workload of the write at any time in between."""
        faults = self._faults[self._actors.get(workload_of(write), "")]
        return any(began <= until and ended >= since for began, ended, _ in faults)

    def _workload(self, event: Event) -> None:
        self.workloads[event["name"]] = Workload(
            event["exactly_once"],
            event["repeats"],
            event.get("rows"),
            event.get("topic"),
            event.get("dead_letter_topic") or "",
            frozenset(event.get("dead_letters") or ()),
        )

    def _driver(self, event: Event) -> None:
        if event["phase"] == "started":
            self._starts[event["workload"]].append((event.at, event["start"]))

    def _handed(self, event: Event) -> None:
        task = Task(event["write"], event["task"])
        self._actors[workload_of(task.write)] = event.actor
        attempt = self._attempt(event)
        if workload_of(task.write) not in self._tells_runs and self._is_new_run(task.write, attempt.start):
            self._began[task.write].append((event.at, attempt.start))
        for row in event["rows"]:
            attempt.rows[row] = len(attempt.rows)
            self.rows[write_of(row)][row] = task
            if attempt not in self.attempts_of[row]:
                self.attempts_of[row].append(attempt)

    def _attempt(self, event: Event) -> Attempt:
        task, name = Task(event["write"], event["task"]), event["attempt"]
        return self.attempts[task].setdefault(name, Attempt(task, name, start_of(name), event.at))

    def _is_new_run(self, write: str, start: str | None) -> bool:
        """Of a query, whose runs nobody tells: whether it is the first, or the one before has come to its end."""
        began = self.run(write, inf, start).began
        ended = (*self.intents.get(write, ()), *self.verdicts.get(write, ()), *self.gave_up.get(write, ()))
        return began == -inf or any(each.at > began and _may_be_same(each.start, start) for each in ended)

    def _reported(self, event: Event) -> None:
        transaction = None if event["transaction"] is None else Transaction(*event["transaction"])
        if transaction is not None:
            self.reported.add(transaction)
        if event["write"] is None:
            return
        topics = event.get("topics") or {}
        places = tuple(
            Place(self._partition(topic, partition, topics.get(topic)), first, last, count)
            for topic, partition, first, last, count in event["places"]
        )
        report = Report(event.at, self._attempt(event), transaction, places, frozenset(topics.items()))
        report.attempt.reports.append(report)
        self.reports.append(report)

    def _intent(self, event: Event) -> None:
        write = self._write(event)
        transactions = frozenset(Transaction(*each) for each in event["transactions"])
        intent = Intent(event.at, event.get("start"), transactions, event["outcome"])
        said = self._of_unknown_writes if write is None else self.intents[write]
        if intent.outcome != "asked":  # of two drivers, each has the answer to its own question
            asked = [each for each in said if each.outcome == "asked" and each.transactions == intent.transactions]
            if asked:
                said[said.index(asked[-1])] = replace(asked[-1], outcome=intent.outcome)
                return
        said.append(intent)

    def _end(self, event: Event) -> None:
        transaction = Transaction(*event["transaction"])
        if event["commit"]:
            self.commits.setdefault(transaction, event.at)
        if event["outcome"] != "asked":
            self.ends[transaction].add((event["commit"], event["outcome"]))

    def _verdict(self, event: Event) -> None:
        write = event.get("write") or self._write(event)
        if write is not None:
            claim = claim_of(event["error"], self._entries[write])
            self.verdicts[write].append(Verdict(event.at, event.get("start"), event["by"], event["outcome"], claim))
        elif not event.get("entry") and event["outcome"] == "failed":
            self._without_entry.append(event.actor)

    def _is_exactly_once(self, actor: str) -> bool:
        """Whether any write of the actor is, or may be."""
        names = [name for name, by in self._actors.items() if by == actor]
        return not names or any(self.workload(f"{name}/0").exactly_once for name in names)

    def _gave_up(self, event: Event) -> None:
        write = self._write(event)
        if write is not None:
            claim = claim_of(event["text"], self._entries[write])
            self.gave_up[write].append(GivenUp(event.at, event.get("start"), claim))

    def _write(self, event: Event) -> str | None:
        """By its entry. Without one, the write is at least once, or no task of it had reported."""
        entry = event.get("entry")
        if entry and entry not in self._writes and entry not in self._without_rows:
            self.nameless.append(f"{event.kind} of {entry}")
        return self._writes.get(entry or "")

    def _topic(self, event: Event) -> None:
        topic = event["topic"]
        if event["phase"] == "deleted":
            self._deleted[topic, event["incarnation"]] = event.at
            return
        self._created[topic] = event["incarnation"]
        for each in self._deleted:
            if each[0] == topic:
                self._recreated.setdefault(each, event.at)

    def _fault(self, event: Event) -> None:
        faults = self._faults[event["workload"]]
        if event["phase"] == "begins":
            faults.append((event.at, inf, event["name"]))
            return
        for number, (began, ended, name) in enumerate(faults):
            if (ended, name) == (inf, event["name"]):
                faults[number] = (began, event.at, name)

    def _partition(self, topic: str, number: int, incarnation: str | None) -> Partition:
        """Without an incarnation, the one of that time: at-least-once tasks report none."""
        return Partition(topic, number, incarnation or self._created.get(topic, ""))

    def _seen(self, event: Event) -> None:
        view = self._view(event)
        partition = self._partition(event["topic"], event["partition"], event.get("incarnation"))
        for offset, row in event["rows"]:
            view.see(partition, offset, row)
        view.told.append((event.at, partition, event["rows"]))

    def _passed(self, event: Event) -> None:
        passed = self._view(event).passed
        partition = self._partition(event["topic"], event["partition"], event.get("incarnation"))
        passed[partition] = max(passed.get(partition, 0), event["offset"])

    def _view(self, event: Event) -> View:
        return self.views.setdefault(event["reader"], View(event["reader"], event["isolation"]))


def _first_named(intents: Iterable[Intent]) -> dict[Transaction, float]:
    """The transactions that intents name which are decided, or may be, each with the time of the first of them."""
    found: dict[Transaction, float] = {}
    for intent in intents:
        for transaction in intent.transactions if intent.may_be_decided else ():
            found[transaction] = min(intent.at, found.get(transaction, inf))
    return found


def _may_be_same(one: str | None, other: str | None) -> bool:
    """Whether two starts are of one driver, as far as the history says it."""
    return one is None or other is None or one == other
