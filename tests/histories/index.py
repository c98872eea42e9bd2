"""A history by what it is about: writes, attempts, transactions and the views of readers. Judges nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tests.histories.events import Event, workload_of, write_of

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


@dataclass(frozen=True)
class Report:
    task: Task
    attempt: str
    transaction: Transaction | None
    places: tuple[Place, ...]


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
    at: float
    start: str | None
    by: str
    outcome: str
    claim: str


class Begin(NamedTuple):
    """Of a run. ``start`` None: the history does not say of which driver."""

    at: float
    start: str | None


class Workload(NamedTuple):
    """``rows``: how many Spark has for each of its writes, None if the history does not say so."""

    exactly_once: bool
    repeats: bool
    rows: int | None = None


@dataclass
class View:
    """What a reader saw: offset → row in each partition, and below which offset it has seen everything."""

    reader: str
    isolation: str
    rows: dict[Partition, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    passed: dict[Partition, int] = field(default_factory=dict)

    def has_passed(self, place: Place) -> bool:
        return self.passed.get(place.partition, 0) > place.last

    def between(self, place: Place) -> Iterator[tuple[int, str]]:
        rows = self.rows[place.partition]
        return ((offset, rows[offset]) for offset in range(place.first, place.last + 1) if offset in rows)


class History:
    """Everything that a checker looks up. Lists are in the order of time."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.workloads: dict[str, Workload] = {}
        self.rows: dict[str, dict[str, Task]] = defaultdict(dict)
        """Write → its rows, each with the task that it was handed to last."""
        self.attempts: dict[Task, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
        """Task → attempt → its rows, each with its place in the order in which Spark handed them over."""
        self.reports: list[Report] = []
        self.intents: dict[str, list[Intent]] = defaultdict(list)
        self.ends: dict[Transaction, set[tuple[bool, str]]] = defaultdict(set)
        self.verdicts: dict[str, list[Verdict]] = defaultdict(list)
        self.began: dict[str, list[Begin]] = defaultdict(list)
        self.gave_up: dict[str, list[tuple[float, str]]] = defaultdict(list)
        self.views: dict[str, View] = {}
        self._deleted: set[tuple[str, str]] = set()
        self._created: dict[str, str] = {}
        ordered = sorted(events, key=lambda event: event.at)
        self._writes = {
            event["entry"]: event["write"] for event in ordered if event.kind == "reported" and event["entry"]
        }
        take = {
            "workload": self._workload,
            "began": lambda event: self.began[event["write"]].append(Begin(event.at, event.get("start"))),
            "handed": self._handed,
            "reported": self._reported,
            "intent": self._intent,
            "end": self._end,
            "verdict": self._verdict,
            "gave up": self._gave_up,
            "topic": self._topic,
            "seen": self._seen,
            "passed": self._passed,
        }
        for event in ordered:
            if event.kind in take:
                take[event.kind](event)

    def of_kind(self, isolation: str) -> list[View]:
        return [view for view in self.views.values() if view.isolation == isolation]

    def workload(self, write: str) -> Workload:
        return self.workloads.get(workload_of(write), Workload(exactly_once=True, repeats=True))

    def handed(self, report: Report) -> dict[str, int]:
        """The rows of the attempt that has reported."""
        return self.attempts[report.task].get(report.attempt, {})

    def committed_verdict(self, write: str) -> bool:
        return any(verdict.outcome == "committed" for verdict in self.verdicts[write])

    def is_deleted(self, partition: Partition) -> bool:
        return (partition.topic, partition.incarnation) in self._deleted

    def _workload(self, event: Event) -> None:
        self.workloads[event["name"]] = Workload(event["exactly_once"], event["repeats"], event.get("rows"))

    def _handed(self, event: Event) -> None:
        task = Task(event["write"], event["task"])
        intents, began = self.intents.get(task.write), self.began[task.write]
        if intents and (not began or began[-1].at < intents[-1].at):  # a replay: the next run has begun
            began.append(Begin(event.at, None))
        rows = self.attempts[task][event["attempt"]]
        for row in event["rows"]:
            rows[row] = len(rows)
            self.rows[write_of(row)][row] = task

    def _reported(self, event: Event) -> None:
        if event["write"] is None:
            return
        found, topics = event["transaction"], event.get("topics") or {}
        places = tuple(
            Place(self._partition(topic, partition, topics.get(topic)), first, last, count)
            for topic, partition, first, last, count in event["places"]
        )
        self.reports.append(
            Report(
                Task(event["write"], event["task"]),
                event["attempt"],
                None if found is None else Transaction(*found),
                places,
            )
        )

    def _intent(self, event: Event) -> None:
        write = self._writes.get(event["entry"])
        if write is None:  # a batch without rows
            return
        transactions = frozenset(Transaction(*each) for each in event["transactions"])
        intent = Intent(event.at, event.get("start"), transactions, event["outcome"])
        said = self.intents[write]
        if intent.outcome != "asked":  # of two drivers, each has the answer to its own question
            asked = [each for each in said if each.outcome == "asked" and each.transactions == intent.transactions]
            if asked:
                said[said.index(asked[-1])] = replace(asked[-1], outcome=intent.outcome)
                return
        said.append(intent)

    def _end(self, event: Event) -> None:
        if event["outcome"] != "asked":
            self.ends[Transaction(*event["transaction"])].add((event["commit"], event["outcome"]))

    def _verdict(self, event: Event) -> None:
        write = event.get("write") or self._writes.get(event.get("entry") or "")
        if write is not None:
            found = Verdict(event.at, event.get("start"), event["by"], event["outcome"], event["claim"])
            self.verdicts[write].append(found)

    def _gave_up(self, event: Event) -> None:
        write = self._writes.get(event["entry"] or "")
        if write is not None:
            self.gave_up[write].append((event.at, event["claim"]))

    def _topic(self, event: Event) -> None:
        if event["phase"] == "deleted":
            self._deleted.add((event["topic"], event["incarnation"]))
        else:
            self._created[event["topic"]] = event["incarnation"]

    def _partition(self, topic: str, number: int, incarnation: str | None) -> Partition:
        """Without an incarnation, the one of that time: at-least-once tasks report none."""
        return Partition(topic, number, incarnation or self._created.get(topic, ""))

    def _seen(self, event: Event) -> None:
        rows = self._view(event).rows[self._partition(event["topic"], event["partition"], event.get("incarnation"))]
        rows.update((offset, row) for offset, row in event["rows"])

    def _passed(self, event: Event) -> None:
        passed = self._view(event).passed
        partition = self._partition(event["topic"], event["partition"], event.get("incarnation"))
        passed[partition] = max(passed.get(partition, 0), event["offset"])

    def _view(self, event: Event) -> View:
        return self.views.setdefault(event["reader"], View(event["reader"], event["isolation"]))
