"""Correct histories of a sink that exists on paper only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.histories.events import Event
from tests.histories.index import COMMITTED, UNCOMMITTED

ACTOR = "paper"
STREAM, ONCE, CONTROL = "stream", "once", "control"
_PARTITIONS = 2
_READERS = (("live", COMMITTED), ("raw", UNCOMMITTED), ("fresh", COMMITTED))

NOT_DECIDED = "job is not committed: no broker responds. None of its rows becomes visible: run the job again."
STILL_OPEN = (
    "Batch {number} of {query} (name job) is decided, but 1 of its 2 transactions could not be committed yet: no broker"
)
UNCONFIRMED = (
    "txnVersion {number} of txnAppId {query} (name job) may or may not be decided, because no broker confirms it: no "
    "broker responds"
)
ALL_LOST = (
    "Batch {number} of {query} (name job) is decided, but the transactions of task 0-1 are gone: they timed out. None "
    "of its rows is visible, and none becomes visible: run the job again."
)
SAYS_NOTHING = "An error occurred while calling o1.save. : java.lang.InterruptedException"
NONE_VISIBLE = "write aborted; none of its rows is visible: 2 prepared transactions aborted"
RECREATED = (
    "micro-batch {number} of query {query} (name job) was committed into topic t (topic id x), which was deleted and "
    "created again since: what was written to it is gone"
)
FINISHED = "write aborted, but batch {number} of {query} had been decided and is committed"
WORKER_DIED = "Job aborted due to stage failure: Python worker exited unexpectedly (crashed): EOFException"
COMMITTER_DIED = (
    "Python worker exited unexpectedly (crashed). at PythonPlannerRunner.runInPython at commitWriteInPython"
)
"""What errors and lines of abort say, in the words of the sink and of Spark. ``spoken_of`` fills in the entry."""


def spoken_of(entry: str, text: str) -> str:
    query, number = entry.rsplit("/", 1)
    return text.format(query=query, number=number)


Place = tuple[str, int, str]
"""A partition: topic, number and incarnation."""


@dataclass
class Record:
    row: str
    visible: bool


@dataclass
class Attempt:
    """An attempt of a task that has written all of its rows. ``offsets``: partition → those of its rows.
    ``incarnation``: of its topic."""

    write: str
    incarnation: str
    task: int
    name: str
    transaction: list[object]
    rows: list[str]
    offsets: dict[int, list[int]]


@dataclass
class Paper:
    """Makes a history: batches are told as a sink would live through them, and ``events`` adds what readers saw."""

    random: Random
    told: list[Event] = field(default_factory=list)
    logs: dict[Place, dict[int, Record]] = field(default_factory=lambda: defaultdict(dict))
    incarnations: dict[str, str] = field(default_factory=dict)
    """Topic → its id."""
    attempts: list[Attempt] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)
    """Exactly-once writes that were told committed, and whose topic is still there."""
    clean: list[str] = field(default_factory=list)
    """Those of them whose last run met with nothing."""
    aborted: list[Attempt] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    start: int = 1
    """Of the driver that runs."""
    _ends: dict[Place, int] = field(default_factory=lambda: defaultdict(int))
    _gone: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for name, exactly_once, repeats in ((STREAM, True, True), (ONCE, True, False), (CONTROL, False, True)):
            where = {"topic": name, "dead_letter_topic": "", "dead_letters": []}
            self.tell("workload", name=name, exactly_once=exactly_once, repeats=repeats, **where)
            self._create(name)

    def recreate(self, topic: str) -> None:
        """Deletes the topic and creates it again; what was written to it is gone."""
        self._gone |= {each.write for each in self.attempts if topic_of(each.write) == topic}
        for writes in (self.whole, self.clean, self.failed):
            writes[:] = [write for write in writes if write not in self._gone]
        self.aborted = [each for each in self.aborted if each.write not in self._gone]
        self.tell("topic", topic=topic, incarnation=self.incarnations[topic], phase="deleted")
        self._create(topic)

    def _create(self, topic: str) -> None:
        self.incarnations[topic] = f"{topic}, created at {len(self.told)}"
        self.tell("topic", topic=topic, incarnation=self.incarnations[topic], phase="created")

    def tell(self, kind: str, **fields: Any) -> None:
        at = float(len(self.told))
        self.told.append(Event(at, at, ACTOR, kind, fields))

    def begin(self, write: str) -> None:
        """Nobody tells when a query begins a micro-batch."""
        if not write.startswith(STREAM):
            self.tell("began", write=write, start=str(self.start))

    def die(self) -> None:
        """The driver, and another one is started."""
        self.start += 1
        self.tell("driver", workload=ACTOR, start=str(self.start), phase="started")

    def task(self, write: str, number: int, action: str = "write", *, turned: bool = False) -> Attempt:
        """An attempt that writes its rows, or only has them handed over if it skips them. ``turned``: they are handed
        over in the opposite order."""
        rows = [f"{write}/{10 * number + index}" for index in range(self.random.randint(3, 5))]
        if earlier := [each for each in self.attempts if (each.write, each.task) == (write, number)]:
            rows = earlier[0].rows[:: -1 if turned else 1]
        name = f"{self.start}-{len(self.attempts)}"
        self.tell("handed", write=write, task=number, attempt=name, rows=rows)
        offsets: dict[int, list[int]] = defaultdict(list)
        if action == "write":
            topic = topic_of(write)
            for index, row in enumerate(rows):
                partition = index % _PARTITIONS
                offsets[partition].append(self.append(topic, partition, row, visible=False))
        incarnation = self.incarnations[topic_of(write)]
        attempt = Attempt(
            write, incarnation, number, name, [f"{write}-{number}", 1, len(self.attempts)], rows, dict(offsets)
        )
        self.attempts.append(attempt)
        return attempt

    def append(self, topic: str, partition: int, row: str, *, visible: bool) -> int:
        place = topic, partition, self.incarnations[topic]
        self._ends[place] += self.random.choice((0, 0, 1))  # a control record now and then
        offset = self._ends[place]
        self._ends[place] += 1
        self.logs[place][offset] = Record(row, visible)
        return offset

    def report(self, attempt: Attempt, *, exactly_once: bool = True) -> None:
        topic = topic_of(attempt.write)
        self.tell(
            "reported",
            write=attempt.write,
            entry=f"entry-{attempt.write}" if exactly_once else None,
            task=attempt.task,
            attempt=attempt.name,
            action="write" if attempt.offsets else "skip",
            transaction=attempt.transaction if exactly_once and attempt.offsets else None,
            places=[[topic, partition, each[0], each[-1], len(each)] for partition, each in attempt.offsets.items()],
            topics={topic: attempt.incarnation} if exactly_once and attempt.offsets else {},
        )

    def intent(self, attempts: list[Attempt], *outcomes: str) -> None:
        for outcome in outcomes:
            self.tell(
                "intent",
                entry=f"entry-{attempts[0].write}",
                start=attempts[0].name.partition("-")[0],
                state="intent",
                transactions=[each.transaction for each in attempts],
                outcome=outcome,
            )

    def end(self, attempt: Attempt, *, commit: bool) -> None:
        outcome = "committed" if commit else "aborted"
        for said in ("asked", outcome):
            self.tell("end", transaction=attempt.transaction, commit=commit, outcome=said)
        self.show(attempt, visible=commit)
        if not commit:
            self.aborted.append(attempt)

    def show(self, attempt: Attempt, *, visible: bool) -> None:
        for partition, offsets in attempt.offsets.items():
            for offset in offsets:
                self.log_of(attempt, partition)[offset].visible = visible

    def log_of(self, attempt: Attempt, partition: int) -> dict[int, Record]:
        return self.logs[topic_of(attempt.write), partition, attempt.incarnation]

    def verdict(self, write: str, outcome: str, error: str = "") -> None:
        told = spoken_of(f"entry-{write}", error)
        self.tell("verdict", write=write, start=str(self.start), by="spark", outcome=outcome, error=told)
        if outcome == "committed" and not write.startswith(CONTROL) and write not in self._gone:
            self.whole.append(write)

    def events(self) -> list[Event]:
        """What was told, and what three readers saw of the logs: the last one only of topics that were not deleted."""
        told = list(self.told)
        for reader, isolation in _READERS:
            for (topic, partition, incarnation), log in self.logs.items():
                if reader == "fresh" and incarnation != self.incarnations[topic]:
                    continue
                rows = [[at, each.row] for at, each in log.items() if each.visible or isolation == UNCOMMITTED]
                common = {"reader": reader, "isolation": isolation, "topic": topic, "partition": partition}
                common["incarnation"] = incarnation
                at = float(len(told))
                told.append(Event(at, at, reader, "seen", {**common, "rows": rows}))
                passed = self._ends[topic, partition, incarnation]
                told.append(Event(at, at, reader, "passed", {**common, "offset": passed}))
        return told


def topic_of(write: str) -> str:
    return write.split("/", maxsplit=1)[0]


def reported(paper: Paper, write: str) -> list[Attempt]:
    """Writes all rows of a batch in two tasks, which report."""
    attempts = [paper.task(write, number) for number in range(2)]
    for attempt in attempts:
        paper.report(attempt)
    return attempts


def commit(paper: Paper, attempts: list[Attempt]) -> None:
    """Decides what the tasks have reported, and ends their transactions."""
    paper.intent(attempts, "asked", "decided")
    for attempt in attempts:
        paper.end(attempt, commit=True)


def committed(paper: Paper, write: str) -> None:
    """Nothing happens to the batch."""
    paper.begin(write)
    attempts = reported(paper, write)
    commit(paper, attempts)
    paper.verdict(write, "committed")
    paper.clean.append(write)


def task_retried(paper: Paper, write: str) -> None:
    """An attempt dies; the broker aborts what it has written when the next one begins."""
    paper.begin(write)
    paper.task(write, 0)
    attempts = reported(paper, write)
    commit(paper, attempts)
    paper.verdict(write, "committed")


def task_retried_with_rows_in_another_order(paper: Paper, write: str) -> None:
    """The source gives the next attempt the same rows, but not in the same order."""
    paper.begin(write)
    paper.task(write, 0)
    attempts = [paper.task(write, number, turned=number == 0) for number in range(2)]
    for attempt in attempts:
        paper.report(attempt)
    commit(paper, attempts)
    paper.verdict(write, "committed")


def failed_and_repeated(paper: Paper, write: str) -> None:
    """The decision is refused, abort ends the transactions, and the next run commits."""
    _refused(paper, write)
    paper.verdict(write, "failed", NOT_DECIDED)
    committed(paper, write)


def driver_died_after_the_decision(paper: Paper, write: str) -> None:
    """The next planning commits the batch, and its replay writes nothing."""
    paper.begin(write)
    attempts = reported(paper, write)
    paper.intent(attempts, "asked")
    paper.die()
    paper.begin(write)
    for attempt in attempts:
        paper.end(attempt, commit=True)
    for number in range(2):
        paper.report(paper.task(write, number, "skip"))
    paper.verdict(write, "committed")


def torn_and_repaired(paper: Paper, write: str) -> None:
    """A transaction of the decided batch is lost, the error says so, and the replay writes its rows again."""
    job_torn_and_told(paper, write)
    paper.begin(write)
    again = paper.task(write, 1)
    paper.report(again)
    paper.intent([again], "asked", "decided")
    paper.end(again, commit=True)
    paper.verdict(write, "committed")


def job_torn_and_told(paper: Paper, write: str) -> None:
    """One of two EndTxns has no outcome, the error says so, and the transaction times out."""
    paper.begin(write)
    attempts = reported(paper, write)
    paper.intent(attempts, "asked", "decided")
    paper.end(attempts[0], commit=True)
    paper.verdict(write, "failed", STILL_OPEN)


def job_not_confirmed(paper: Paper, write: str) -> None:
    """No broker confirms the decision, and the process that commits dies; somebody commits the job."""
    paper.begin(write)
    attempts = reported(paper, write)
    paper.intent(attempts, "asked", "unknown")
    for attempt in attempts:
        paper.end(attempt, commit=True)
    paper.verdict(write, "failed", paper.random.choice((UNCONFIRMED, COMMITTER_DIED)))


def topic_recreated_before_the_commit(paper: Paper, write: str) -> None:
    """Nothing is decided: the next run writes the rows into the new topic."""
    paper.begin(write)
    attempts = reported(paper, write)
    paper.recreate(topic_of(write))
    for attempt in attempts:
        paper.end(attempt, commit=False)
    paper.verdict(write, "failed", NOT_DECIDED)
    paper.begin(write)
    again = reported(paper, write)
    commit(paper, again)
    paper.verdict(write, "committed")


def topic_recreated_after_the_commit(paper: Paper, write: str) -> None:
    """The driver dies before it knows of the commit. The next run is refused, and the one after it is given
    ``ledgerStart``."""
    paper.begin(write)
    attempts = reported(paper, write)
    commit(paper, attempts)
    paper.recreate(topic_of(write))
    for outcome, error in (("failed", RECREATED), ("committed", "")):
        paper.die()
        paper.begin(write)
        for number in range(2):
            paper.report(paper.task(write, number, "skip"))
        paper.verdict(write, outcome, error)
        if outcome == "failed":
            paper.tell("trusted", write=write, ledger_start="trust-ledger")


def job_failed(paper: Paper, write: str) -> None:
    """A job that is not repeated fails before its decision."""
    _refused(paper, write)
    paper.verdict(write, "failed", paper.random.choice((NOT_DECIDED, WORKER_DIED)))
    paper.failed.append(write)


def job_died_torn(paper: Paper, write: str) -> None:
    """The driver of a job that is not repeated dies between two EndTxns, and the other transaction times out."""
    paper.begin(write)
    attempts = reported(paper, write)
    paper.intent(attempts, "asked", "decided")
    paper.end(attempts[0], commit=True)
    paper.die()


def job_decided_by_abort(paper: Paper, write: str) -> None:
    """Spark's driver is interrupted after the decision; its abort finishes the job and logs that."""
    paper.begin(write)
    attempts = reported(paper, write)
    commit(paper, attempts)
    entry = f"entry-{write}"
    paper.tell("gave up", entry=entry, start=str(paper.start), text=spoken_of(entry, FINISHED))
    paper.verdict(write, "failed", SAYS_NOTHING)


def written_twice_at_least_once(paper: Paper, write: str) -> None:
    """At least once: a task is retried after its rows were acknowledged."""
    for _ in range(2):
        attempt = paper.task(write, 0)
        paper.show(attempt, visible=True)
    paper.report(attempt, exactly_once=False)
    paper.verdict(write, "committed")


def _refused(paper: Paper, write: str) -> None:
    paper.begin(write)
    attempts = reported(paper, write)
    paper.intent(attempts, "asked", "not decided")
    for attempt in attempts:
        paper.end(attempt, commit=False)


BATCHES: dict[str, tuple[Callable[[Paper, str], None], ...]] = {
    STREAM: (
        committed,
        task_retried,
        task_retried_with_rows_in_another_order,
        failed_and_repeated,
        driver_died_after_the_decision,
        torn_and_repaired,
        topic_recreated_before_the_commit,
        topic_recreated_after_the_commit,
    ),
    ONCE: (
        committed,
        task_retried,
        job_failed,
        job_died_torn,
        job_torn_and_told,
        job_not_confirmed,
        job_decided_by_abort,
    ),
    CONTROL: (written_twice_at_least_once,),
}


def correct_history(seed: int) -> Paper:
    """Each kind of batch once, and some more, in random order."""
    random = Random(seed)
    paper = Paper(random)
    for workload, batches in BATCHES.items():
        chosen = [*batches, *random.choices(batches, k=3)]
        random.shuffle(chosen)
        for number, batch in enumerate(chosen):
            batch(paper, f"{workload}/{number}")
    return paper
