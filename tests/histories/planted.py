"""Correct histories of a sink that exists on paper only, and the faults that are planted into them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.histories.events import Event
from tests.histories.findings import Kind
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
            self.tell("workload", name=name, exactly_once=exactly_once, repeats=repeats)
            self._create(name)

    def recreate(self, topic: str) -> None:
        """Deletes the topic and creates it again; what was written to it is gone."""
        self._gone |= {each.write for each in self.attempts if _topic(each.write) == topic}
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
            topic = _topic(write)
            for index, row in enumerate(rows):
                partition = index % _PARTITIONS
                offsets[partition].append(self.append(topic, partition, row, visible=False))
        incarnation = self.incarnations[_topic(write)]
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
        topic = _topic(attempt.write)
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
        return self.logs[_topic(attempt.write), partition, attempt.incarnation]

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


def _topic(write: str) -> str:
    return write.split("/", maxsplit=1)[0]


def _reported(paper: Paper, write: str) -> list[Attempt]:
    """Writes all rows of a batch in two tasks, which report."""
    attempts = [paper.task(write, number) for number in range(2)]
    for attempt in attempts:
        paper.report(attempt)
    return attempts


def _commit(paper: Paper, attempts: list[Attempt]) -> None:
    """Decides what the tasks have reported, and ends their transactions."""
    paper.intent(attempts, "asked", "decided")
    for attempt in attempts:
        paper.end(attempt, commit=True)


def committed(paper: Paper, write: str) -> None:
    """Nothing happens to the batch."""
    paper.begin(write)
    attempts = _reported(paper, write)
    _commit(paper, attempts)
    paper.verdict(write, "committed")
    paper.clean.append(write)


def task_retried(paper: Paper, write: str) -> None:
    """An attempt dies; the broker aborts what it has written when the next one begins."""
    paper.begin(write)
    paper.task(write, 0)
    attempts = _reported(paper, write)
    _commit(paper, attempts)
    paper.verdict(write, "committed")


def task_retried_with_rows_in_another_order(paper: Paper, write: str) -> None:
    """The source gives the next attempt the same rows, but not in the same order."""
    paper.begin(write)
    paper.task(write, 0)
    attempts = [paper.task(write, number, turned=number == 0) for number in range(2)]
    for attempt in attempts:
        paper.report(attempt)
    _commit(paper, attempts)
    paper.verdict(write, "committed")


def failed_and_repeated(paper: Paper, write: str) -> None:
    """The decision is refused, abort ends the transactions, and the next run commits."""
    _refused(paper, write)
    paper.verdict(write, "failed", NOT_DECIDED)
    committed(paper, write)


def driver_died_after_the_decision(paper: Paper, write: str) -> None:
    """The next planning commits the batch, and its replay writes nothing."""
    paper.begin(write)
    attempts = _reported(paper, write)
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
    attempts = _reported(paper, write)
    paper.intent(attempts, "asked", "decided")
    paper.end(attempts[0], commit=True)
    paper.verdict(write, "failed", STILL_OPEN)


def job_not_confirmed(paper: Paper, write: str) -> None:
    """No broker confirms the decision, and the process that commits dies; somebody commits the job."""
    paper.begin(write)
    attempts = _reported(paper, write)
    paper.intent(attempts, "asked", "unknown")
    for attempt in attempts:
        paper.end(attempt, commit=True)
    paper.verdict(write, "failed", paper.random.choice((UNCONFIRMED, COMMITTER_DIED)))


def topic_recreated_before_the_commit(paper: Paper, write: str) -> None:
    """Nothing is decided: the next run writes the rows into the new topic."""
    paper.begin(write)
    attempts = _reported(paper, write)
    paper.recreate(_topic(write))
    for attempt in attempts:
        paper.end(attempt, commit=False)
    paper.verdict(write, "failed", NOT_DECIDED)
    paper.begin(write)
    again = _reported(paper, write)
    _commit(paper, again)
    paper.verdict(write, "committed")


def topic_recreated_after_the_commit(paper: Paper, write: str) -> None:
    """The driver dies before it knows of the commit. The next run is refused, and the one after it is given
    ``ledgerStart``."""
    paper.begin(write)
    attempts = _reported(paper, write)
    _commit(paper, attempts)
    paper.recreate(_topic(write))
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
    attempts = _reported(paper, write)
    paper.intent(attempts, "asked", "decided")
    paper.end(attempts[0], commit=True)
    paper.die()


def job_decided_by_abort(paper: Paper, write: str) -> None:
    """The process that commits is killed after the decision; Spark's abort finishes the job and logs that."""
    paper.begin(write)
    attempts = _reported(paper, write)
    _commit(paper, attempts)
    entry = f"entry-{write}"
    paper.tell("gave up", entry=entry, start=str(paper.start), text=spoken_of(entry, FINISHED))
    paper.verdict(write, "failed", NOT_DECIDED)


def written_twice_at_least_once(paper: Paper, write: str) -> None:
    """At least once: a task is retried after its rows were acknowledged."""
    for _ in range(2):
        attempt = paper.task(write, 0)
        paper.show(attempt, visible=True)
    paper.report(attempt, exactly_once=False)
    paper.verdict(write, "committed")


def _refused(paper: Paper, write: str) -> None:
    paper.begin(write)
    attempts = _reported(paper, write)
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


def _one_of_a_whole_write(paper: Paper, *writes: str) -> tuple[Place, int]:
    """Where a visible row of a committed write is; of one of ``writes``, if there are any."""
    write = paper.random.choice(writes or paper.whole)
    places = [
        (place, offset)
        for place, log in paper.logs.items()
        for offset, record in log.items()
        if record.visible and record.row.startswith(f"{write}/") and place[2] == paper.incarnations[place[0]]
    ]
    return paper.random.choice(places)


def lose_a_row(paper: Paper) -> list[Event]:
    place, offset = _one_of_a_whole_write(paper)
    paper.logs[place][offset].visible = False
    return paper.events()


def lose_a_row_of_the_control(paper: Paper) -> list[Event]:
    lost = paper.random.choice([each for each in paper.attempts if each.write.startswith(CONTROL)]).rows[0]
    for place, log in paper.logs.items():
        paper.logs[place] = {offset: record for offset, record in log.items() if record.row != lost}
    return paper.events()


def double_a_row(paper: Paper) -> list[Event]:
    place, offset = _one_of_a_whole_write(paper)
    paper.append(*place[:2], paper.logs[place][offset].row, visible=True)
    return paper.events()


def lose_a_row_in_a_topic_that_was_created_again(paper: Paper) -> list[Event]:
    write = f"{STREAM}/100"
    topic_recreated_before_the_commit(paper, write)
    place, offset = _one_of_a_whole_write(paper, write)
    paper.logs[place][offset].visible = False
    return paper.events()


def double_a_row_of_a_topic_that_was_deleted(paper: Paper) -> list[Event]:
    """It was visible there, and is in the new topic as well."""
    deleted = [
        (place, record.row)
        for place, log in paper.logs.items()
        for record in log.values()
        if record.visible and place[2] != paper.incarnations[place[0]]
    ]
    place, row = paper.random.choice(deleted)
    paper.append(*place[:2], row, visible=True)
    return paper.events()


def show_what_was_aborted(paper: Paper) -> list[Event]:
    paper.show(paper.random.choice(paper.aborted), visible=True)
    return paper.events()


def show_an_undecided_job(paper: Paper) -> list[Event]:
    """Its EndTxns are not in the history."""
    write = paper.random.choice(paper.failed)
    for attempt in paper.attempts:
        if attempt.write == write:
            paper.show(attempt, visible=True)
    told = paper.events()
    return [event for event in told if event.kind != "end"]


def show_a_batch_in_part(paper: Paper) -> list[Event]:
    """A task of a decided batch stays invisible; no EndTxn says more than that it was asked for."""
    hidden = paper.random.choice(_written(paper, paper.random.choice(paper.clean)))
    paper.show(hidden, visible=False)
    return [event for event in paper.events() if event.kind != "end"]


def _written(paper: Paper, write: str) -> list[Attempt]:
    """The attempts of the write whose rows are visible."""

    def is_visible(attempt: Attempt) -> bool:
        places = ((partition, at) for partition, offsets in attempt.offsets.items() for at in offsets)
        return bool(attempt.offsets) and all(paper.log_of(attempt, partition)[at].visible for partition, at in places)

    return [each for each in paper.attempts if each.write == write and is_visible(each)]


def swap_two_rows(paper: Paper) -> list[Event]:
    """Of one task in one partition."""
    attempt = paper.random.choice(_written(paper, paper.random.choice(paper.whole)))
    first, *_, last = attempt.offsets[0]
    log = paper.log_of(attempt, 0)
    log[first].row, log[last].row = log[last].row, log[first].row
    return paper.events()


def keep_the_order_of_an_earlier_attempt(paper: Paper) -> list[Event]:
    """The attempt that wrote the rows was handed them in the opposite order."""
    write = f"{STREAM}/100"
    task_retried_with_rows_in_another_order(paper, write)
    attempt = next(each for each in _written(paper, write) if each.task == 0)
    for partition, offsets in attempt.offsets.items():
        log = paper.log_of(attempt, partition)
        for offset, row in zip(offsets, [log[at].row for at in reversed(offsets)], strict=True):
            log[offset].row = row
    return paper.events()


def show_what_a_failed_run_wrote(paper: Paper) -> list[Event]:
    """A later run of the write has written the rows again, decided them, and is told that they are committed. But what
    readers see are those of the run before, whose EndTxns are not in the history."""
    write = f"{STREAM}/100"
    failed_and_repeated(paper, write)
    _show_instead(paper, *[each for each in paper.attempts if each.write == write])
    return [event for event in paper.events() if event.kind != "end"]


def show_an_attempt_that_no_intent_names(paper: Paper) -> list[Event]:
    """It has reported, as its successor has; the intent names the successor."""
    write = f"{STREAM}/100"
    lost = paper.task(write, 0)
    paper.report(lost)
    committed(paper, write)
    _show_instead(paper, lost, next(each for each in _written(paper, write) if each.task == 0))
    return [event for event in paper.events() if event.kind != "end"]


def _show_instead(paper: Paper, *attempts: Attempt) -> None:
    """The first half of the attempts instead of the others."""
    for index, attempt in enumerate(attempts):
        paper.show(attempt, visible=index < len(attempts) // 2)


def tear_what_a_later_intent_does_not_mend(paper: Paper) -> list[Event]:
    """The rows that the replay writes again are not visible, either. No EndTxn is in the history."""
    write = f"{STREAM}/100"
    torn_and_repaired(paper, write)
    paper.show(paper.attempts[-1], visible=False)
    return [event for event in paper.events() if event.kind != "end"]


def tear_a_job_whose_driver_lives(paper: Paper) -> list[Event]:
    """It has no verdict, and no other driver is started after it."""
    job_died_torn(paper, f"{ONCE}/100")
    told = paper.events()
    started = [event for event in told if event.kind == "driver"][-1]
    return [event for event in told if event is not started]


def commit_and_abort(paper: Paper) -> list[Event]:
    """Nobody knows whether the intent is decided, but its transaction was committed, and aborted."""
    write = f"{ONCE}/100"
    job_not_confirmed(paper, write)
    chosen = paper.random.choice([each for each in paper.attempts if each.write == write])
    paper.tell("end", transaction=chosen.transaction, commit=False, outcome="aborted")
    return paper.events()


def tell_a_committed_job_that_it_failed(paper: Paper) -> list[Event]:
    return _told_that_it_failed(paper, NOT_DECIDED)


def tell_a_committed_job_that_a_worker_died(paper: Paper) -> list[Event]:
    """The worker of a task, after which nothing is decided."""
    return _told_that_it_failed(paper, WORKER_DIED)


def _told_that_it_failed(paper: Paper, error: str) -> list[Event]:
    write = paper.random.choice([each for each in paper.whole if each.startswith(ONCE)])
    return [
        replace(event, fields={**event.fields, "outcome": "failed", "error": error})
        if event.kind == "verdict" and event["write"] == write
        else event
        for event in paper.events()
    ]


def tell_a_failed_job_that_it_is_committed(paper: Paper) -> list[Event]:
    write = paper.random.choice(paper.failed)
    return [
        replace(event, fields={**event.fields, "outcome": "committed"})
        if event.kind == "verdict" and event["write"] == write
        else event
        for event in paper.events()
    ]


def hide_what_end_txn_committed(paper: Paper) -> list[Event]:
    attempt = paper.random.choice(_written(paper, paper.random.choice(paper.whole)))
    paper.show(attempt, visible=False)
    return paper.events()


def abort_what_was_decided(paper: Paper) -> list[Event]:
    intents = [each for each in paper.told if each.kind == "intent" and each["outcome"] == "decided"]
    transaction = paper.random.choice(paper.random.choice(intents)["transactions"])
    paper.tell("end", transaction=transaction, commit=False, outcome="aborted")
    return paper.events()


def commit_before_the_intent(paper: Paper) -> list[Event]:
    """A transaction of a batch is committed before the batch is decided."""
    attempts = _reported(paper, f"{ONCE}/100")
    paper.end(attempts[0], commit=True)
    _commit(paper, attempts)
    return paper.events()


def forget_a_report(paper: Paper) -> list[Event]:
    """Of a transaction that an intent names, while another task of the batch has reported."""
    write = paper.random.choice(paper.clean)
    lost = paper.random.choice(_written(paper, write))
    return [event for event in paper.events() if event.kind != "reported" or event["attempt"] != lost.name]


def shift_a_receipt(paper: Paper) -> list[Event]:
    return _with_another_place(paper, lambda place: [*place[:2], place[2] + 1, *place[3:]])


def miscount_a_receipt(paper: Paper) -> list[Event]:
    return _with_another_place(paper, lambda place: [*place[:4], place[4] + 1])


def _with_another_place(paper: Paper, change: Callable[[list[Any]], list[Any]]) -> list[Event]:
    told = paper.events()
    chosen = paper.random.choice([index for index, each in enumerate(told) if each.get("places")])
    places = told[chosen]["places"]
    told[chosen] = replace(told[chosen], fields={**told[chosen].fields, "places": [change(places[0]), *places[1:]]})
    return told


def write_a_row_that_was_not_handed_over(paper: Paper) -> list[Event]:
    paper.append(STREAM, 0, f"{STREAM}/0/99", visible=True)
    return paper.events()


def show_a_row_to_one_reader_only(paper: Paper) -> list[Event]:
    """Of a topic that both have read."""
    told = paper.events()
    shown = [index for index, each in enumerate(told) if each.kind == "seen" and each["reader"] == "live"]
    there = [index for index in shown if told[index]["incarnation"] == paper.incarnations[told[index]["topic"]]]
    chosen = paper.random.choice([index for index in there if told[index]["rows"]])
    told[chosen] = replace(told[chosen], fields={**told[chosen].fields, "rows": told[chosen]["rows"][1:]})
    return told


FAULTS: dict[Callable[[Paper], list[Event]], Kind] = {
    lose_a_row: Kind.LOST,
    lose_a_row_of_the_control: Kind.LOST,
    lose_a_row_in_a_topic_that_was_created_again: Kind.LOST,
    double_a_row: Kind.DOUBLED,
    double_a_row_of_a_topic_that_was_deleted: Kind.DOUBLED,
    show_what_was_aborted: Kind.ABORTED_READ,
    show_an_undecided_job: Kind.FAILED_BUT_VISIBLE,
    show_a_batch_in_part: Kind.PARTLY_VISIBLE,
    swap_two_rows: Kind.OUT_OF_ORDER,
    keep_the_order_of_an_earlier_attempt: Kind.OUT_OF_ORDER,
    show_what_a_failed_run_wrote: Kind.FAILED_BUT_VISIBLE,
    show_an_attempt_that_no_intent_names: Kind.ABORTED_READ,
    tear_what_a_later_intent_does_not_mend: Kind.PARTLY_VISIBLE,
    tear_a_job_whose_driver_lives: Kind.PARTLY_VISIBLE,
    commit_and_abort: Kind.DECIDED_BUT_ABORTED,
    tell_a_committed_job_that_it_failed: Kind.FAILED_BUT_VISIBLE,
    tell_a_committed_job_that_a_worker_died: Kind.FAILED_BUT_VISIBLE,
    tell_a_failed_job_that_it_is_committed: Kind.COMMITTED_BUT_INVISIBLE,
    hide_what_end_txn_committed: Kind.COMMITTED_BUT_INVISIBLE,
    abort_what_was_decided: Kind.DECIDED_BUT_ABORTED,
    commit_before_the_intent: Kind.COMMITTED_TOO_EARLY,
    forget_a_report: Kind.NOT_REPORTED,
    shift_a_receipt: Kind.RECEIPT_CONTRADICTED,
    miscount_a_receipt: Kind.RECEIPT_CONTRADICTED,
    write_a_row_that_was_not_handed_over: Kind.FOREIGN_ROW,
    show_a_row_to_one_reader_only: Kind.READERS_DISAGREE,
}
"""What each fault must be found as; it may be found as something else as well."""
