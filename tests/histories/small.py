"""Histories of a few events: what each actor tells, and the parts that many of them have."""

from __future__ import annotations

from tests.histories.events import Event
from tests.histories.paper import spoken_of

PLANNER_DIED = (
    "Python worker exited unexpectedly (crashed). at PythonPlannerRunner.runInPython at createWriteInfoInPython"
)

LEDGER_RECREATED = (
    "Batch {number} of {query} (name job) is decided, but ledgerTopic l was deleted and created again after its "
    "tasks had written to it, so it does not say whether the rows of task 0 are committed."
)
OVERTAKEN = "Batch {number} of {query} (name job) was overtaken: another driver is at batch 9. Stop the run."
LEDGER_GONE = "ledgerTopic l was deleted and made again while it was read: it cannot say what was decided"
OTHERS_FINISHED = "write aborted, but batch 1 of another had been decided and is committed"

T0, T1 = ["job-0", 7, 0], ["job-1", 8, 0]


def workload(name="job", exactly_once=True, repeats=False, rows=None):
    return {"kind": "workload", "name": name, "exactly_once": exactly_once, "repeats": repeats, "rows": rows}


def placed(topic, dead_letter_topic="", *dead_letters, **more):
    """A workload that says where its rows belong."""
    where = {"topic": topic, "dead_letter_topic": dead_letter_topic, "dead_letters": [*dead_letters]}
    return {**workload(**more), **where}


def to_topic(event, topic):
    """The event, with its receipts in this topic."""
    return {**event, "places": [[topic, *place[1:]] for place in event["places"]]} if "places" in event else event


def handed(task, *rows, write="job/1", attempt="a"):
    return {
        "kind": "handed",
        "write": write,
        "task": task,
        "attempt": f"{attempt}{task}",
        "rows": [f"{write}/{row}" for row in rows],
    }


def reported(task, transaction, *places, write="job/1", attempt="a", incarnation="", entry=None):
    return {
        "kind": "reported",
        "write": write,
        "entry": entry if transaction is None else f"ledger:{write}",
        "task": task,
        "attempt": f"{attempt}{task}",
        "action": "write",
        "transaction": transaction,
        "places": [["t", *place] for place in places],
        "topics": {"t": incarnation} if incarnation else {},
    }


def intent(outcome, *transactions, write="job/1", start="1"):
    found = {"entry": f"ledger:{write}", "state": "intent", "transactions": [*transactions], "outcome": outcome}
    return {"kind": "intent", "start": start, **found}


def end(transaction, outcome="committed"):
    return {"kind": "end", "transaction": transaction, "commit": outcome == "committed", "outcome": outcome}


def verdict(outcome, error="", write="job/1", start="1", by="spark"):
    told = spoken_of(f"ledger:{write}", error)
    return {"kind": "verdict", "start": start, "write": write, "by": by, "outcome": outcome, "error": told}


def without_entry(outcome):
    """What the sink has told Spark about a write that it could not name."""
    return {"kind": "verdict", "entry": None, "start": "1", "by": "sink", "outcome": outcome, "error": "x"}


def gave_up(text, start="1"):
    entry = "ledger:job/1"
    return {"kind": "gave up", "entry": entry, "start": start, "text": spoken_of(entry, text)}


def began(start="1"):
    return {"kind": "began", "write": "job/1", "start": start}


def started(start, workload="test"):
    return {"kind": "driver", "workload": workload, "start": start, "phase": "started"}


def topic(incarnation, phase, name="t"):
    return {"kind": "topic", "topic": name, "incarnation": incarnation, "phase": phase}


def fault(phase, workload="test"):
    return {"kind": "fault", "name": "topic recreated", "workload": workload, "phase": phase}


def read(rows, reader="fresh", isolation="read_committed", partition=0, passed=10, incarnation="", topic="t"):
    """``rows``: offset → row of job/1. Without an incarnation, as readers told it before topics were created again."""
    where = {"reader": reader, "isolation": isolation, "topic": topic, "partition": partition}
    if incarnation:
        where["incarnation"] = incarnation
    seen = [[offset, row if isinstance(row, str) else f"job/1/{row}"] for offset, row in rows.items()]
    return [{"kind": "seen", **where, "rows": seen}, {"kind": "passed", **where, "offset": passed}]


def raw(rows, partition=0, incarnation=""):
    return read(rows, "raw", "read_uncommitted", partition, incarnation=incarnation)


def history(*told):
    flat = [each for one in told for each in (one if isinstance(one, list) else [one])]
    return [
        Event(float(at), float(at), "test", each["kind"], {name: each[name] for name in each if name != "kind"})
        for at, each in enumerate(flat)
    ]


# One job of two tasks, whose rows lie in one partition: 0 and 1 at the offsets 0 and 1, 2 and 3 at 2 and 3.
TASKS = [handed(0, 0, 1), handed(1, 2, 3), reported(0, T0, (0, 0, 1, 2)), reported(1, T1, (0, 2, 3, 2))]
DECIDED = [intent("asked", T0, T1), intent("decided", T0, T1)]
ENDED = [end(T0), end(T1)]
ROWS = {0: 0, 1: 1, 2: 2, 3: 3}
HALF = {0: 0, 1: 1}
WRITTEN = [workload(), *TASKS, *DECIDED, *ENDED]

# What a replay writes that finds the rows of the second task gone.
T2, T3 = ["job-0", 7, 1], ["job-1", 8, 1]
REPLAYED = [
    handed(0, 0, 1, attempt="b"), handed(1, 2, 3, attempt="b"), reported(1, T3, (0, 4, 5, 2), attempt="b"),
    intent("decided", T3),
]  # fmt: skip


def by(attempt, *transactions, first=0):
    """The tasks of the job, as attempts of another driver or run. ``first``: the offset of their first row."""
    one, other = transactions
    return [
        handed(0, 0, 1, attempt=attempt), handed(1, 2, 3, attempt=attempt),
        reported(0, one, (0, first, first + 1, 2), attempt=attempt),
        reported(1, other, (0, first + 2, first + 3, 2), attempt=attempt),
    ]  # fmt: skip


# Two attempts of a task, of which the second one is committed. Each has a row between the other one's.
INTERLEAVED = [
    handed(0, 0, 1, attempt="a"), handed(0, 0, 1, attempt="b"), reported(0, T0, (0, 0, 2, 2), attempt="a"),
    reported(0, T2, (0, 1, 3, 2), attempt="b"), intent("asked", T2), intent("decided", T2), end(T2), end(T0, "aborted"),
    verdict("committed"),
]  # fmt: skip

# Another job, whose rows lie behind those of the first.
T9, T8 = ["job-0", 9, 0], ["job-1", 9, 0]
SECOND = [
    handed(0, 0, 1, write="job/2", attempt="b"), handed(1, 2, 3, write="job/2", attempt="b"),
    reported(0, T9, (0, 4, 5, 2), write="job/2", attempt="b"),
    reported(1, T8, (0, 6, 7, 2), write="job/2", attempt="b"),
]  # fmt: skip
SECOND_ROWS = {offset: f"job/2/{offset - 4}" for offset in range(4, 8)}

# The same job in a topic with an id, and its rows written by other transactions after the topic was created again.
OLD = [
    topic("old", "created"), workload(repeats=True), handed(0, 0, 1), handed(1, 2, 3),
    reported(0, T0, (0, 0, 1, 2), incarnation="old"), reported(1, T1, (0, 2, 3, 2), incarnation="old"),
]  # fmt: skip
AGAIN = [topic("old", "deleted"), topic("new", "created")]
NEW = [
    handed(0, 0, 1, attempt="b"), handed(1, 2, 3, attempt="b"),
    reported(0, T2, (0, 0, 1, 2), attempt="b", incarnation="new"),
    reported(1, T3, (0, 2, 3, 2), attempt="b", incarnation="new"),
    intent("asked", T2, T3), intent("decided", T2, T3), end(T2), end(T3),
]  # fmt: skip

# A task that has written to two topics, of which the first is deleted: row 0 there, and row 1 to the other one.
TO_TWO = {**reported(0, T0), "places": [["t", 0, 0, 0, 1], ["u", 0, 0, 0, 1]], "topics": {"t": "old", "u": "its id"}}
WITH_A_DEAD_LETTER = {**reported(0, T0, (0, 0, 0, 1)), "topics": {"t": "old", "dead": "its id"}}
ENDED_AND_DELETED = [intent("decided", T0), end(T0), verdict("committed"), *AGAIN, read({}, incarnation="new")]
OLD_READ = [*raw(ROWS, incarnation="old"), *read(ROWS, "live", incarnation="old")]
