"""The checker finds each fault in histories of a few events and in long random ones, and nothing in whole ones."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.histories import checker
from tests.histories.checker import check, checked
from tests.histories.events import Event, read_history, write_history
from tests.histories.findings import Kind, Reason
from tests.histories.index import History
from tests.histories.planted import (
    COMMITTER_DIED,
    FAULTS,
    FINISHED,
    STILL_OPEN,
    UNCONFIRMED,
    WORKER_DIED,
    correct_history,
    spoken_of,
)
from tests.histories.recorder import Recorder, short

PLANNER_DIED = (
    "Python worker exited unexpectedly (crashed). at PythonPlannerRunner.runInPython at createWriteInfoInPython"
)

LEDGER_RECREATED = (
    "Batch {number} of {query} (name job) is decided, but commitLogTopic l was deleted and created again after its "
    "tasks had written to it, so it does not say whether the rows of task 0 are committed."
)
OVERTAKEN = "Batch {number} of {query} (name job) was overtaken: another driver is at batch 9. Stop the run."
LEDGER_GONE = "commitLogTopic l was deleted and made again while it was read: it cannot say what was decided"
OTHERS_FINISHED = "write aborted, but batch 1 of another had been decided and is committed"

SEEDS = st.integers(0, 2**32)
ROOT = Path(__file__).parents[2]

T0, T1 = ["job-0", 7, 0], ["job-1", 8, 0]


def workload(name="job", exactly_once=True, repeats=False, rows=None):
    return {"kind": "workload", "name": name, "exactly_once": exactly_once, "repeats": repeats, "rows": rows}


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


def gave_up(text, start="1"):
    entry = "ledger:job/1"
    return {"kind": "gave up", "entry": entry, "start": start, "text": spoken_of(entry, text)}


def began(start="1"):
    return {"kind": "began", "write": "job/1", "start": start}


def started(start, workload="test"):
    return {"kind": "driver", "workload": workload, "start": start, "phase": "started"}


def topic(incarnation, phase, name="t"):
    return {"kind": "topic", "topic": name, "incarnation": incarnation, "phase": phase}


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

WHOLE = {
    "rows that went with a deleted topic": history(
        *OLD, *DECIDED, *ENDED, OLD_READ, *AGAIN, verdict("failed", STILL_OPEN), verdict("committed"),
        read({}, incarnation="new"),
    ),
    "rows that went with a deleted topic before a reader saw them": history(
        *OLD, *DECIDED, *ENDED, *AGAIN, verdict("committed"), read({}, incarnation="new")
    ),
    "rows that are written again because their topic was deleted before the commit": history(
        *OLD, raw(ROWS, incarnation="old"), *AGAIN, verdict("failed"), *NEW, verdict("committed"),
        raw(ROWS, incarnation="new"), read(ROWS, incarnation="new"),
    ),
    "a row that went with its topic, and one that is in another topic": history(
        *OLD[:3], TO_TWO, *ENDED_AND_DELETED, read({0: 1}, topic="u", incarnation="its id")
    ),
    "a row that went with its topic, and a dead letter": history(
        *OLD[:3], WITH_A_DEAD_LETTER, *ENDED_AND_DELETED, read({0: 1}, topic="dead", incarnation="its id")
    ),
    "a row that went with its topic, and a dead letter with its own": history(
        *OLD[:3], WITH_A_DEAD_LETTER, *ENDED_AND_DELETED, topic("its id", "deleted", "dead"),
    ),
    "a job that is committed": history(*WRITTEN, verdict("committed"), raw(ROWS), read(ROWS)),
    "a job that fails and leaves nothing": history(
        workload(), *TASKS, intent("not decided", T0, T1), end(T0, "aborted"), verdict("failed"), raw(ROWS), read({})
    ),
    "an error that says that the job is decided": history(
        *WRITTEN, verdict("failed", STILL_OPEN), raw(ROWS), read(ROWS)
    ),
    "an error that does not know it": history(
        workload(), *TASKS, intent("unknown", T0, T1), verdict("failed", UNCONFIRMED), raw(ROWS), read(ROWS)
    ),
    "an error that says that the job is decided, and its ledger was created again": history(
        *WRITTEN, verdict("failed", LEDGER_RECREATED), raw(ROWS), read(ROWS)
    ),
    "an error that says that another driver has gone on": history(
        *WRITTEN, verdict("failed", OVERTAKEN), raw(ROWS), read(ROWS)
    ),
    "an error that says that the ledger was created again while it was read": history(
        *WRITTEN, verdict("failed", LEDGER_GONE), raw(ROWS), read(ROWS)
    ),
    "an error whose last words say that the job is decided": history(
        *WRITTEN, verdict("failed", short(f"{5_000 * 'at x '}{STILL_OPEN}")), raw(ROWS), read(ROWS)
    ),
    "an error whose first words say that the job is decided": history(
        *WRITTEN, verdict("failed", short(f"{STILL_OPEN}{5_000 * ' at x'}")), raw(ROWS), read(ROWS)
    ),
    "an abort that says that the job is decided": history(
        *WRITTEN, verdict("failed", by="sink"), gave_up(FINISHED), verdict("failed"), raw(ROWS), read(ROWS),
    ),
    "a driver that dies between two EndTxns of a job that is not repeated": history(
        workload(), *TASKS, *DECIDED, end(T0), started("2"), raw(ROWS), read(HALF)
    ),
    "a run that fails before one that commits": history(
        workload(repeats=True), began(), handed(0, 0, 1, attempt="b"), verdict("failed"), began(), *TASKS, *DECIDED,
        *ENDED, verdict("committed"), raw(ROWS), read(ROWS),
    ),
    "a driver that was replaced, and fails while its successor commits": history(
        workload(repeats=True), began("1"), handed(0, 0, 1, attempt="1-"), began("2"), *by("2-", T0, T1),
        intent("decided", T0, T1, start="2"), verdict("failed", start="1"), *ENDED, verdict("committed", start="2"),
        raw(ROWS), read(ROWS),
    ),
    "a driver that is stopped after its decision, which its successor commits": history(
        workload(repeats=True), began("1"), *by("1-", T0, T1), intent("asked", T0, T1), began("2"), *ENDED,
        verdict("committed", start="2"), verdict("failed", COMMITTER_DIED), raw(ROWS), read(ROWS),
    ),
    "a batch that is torn, and whose replay writes what is missing": history(
        workload(repeats=True), *TASKS, *DECIDED, end(T0), verdict("failed", STILL_OPEN), *REPLAYED, end(T3),
        verdict("committed"), raw({**ROWS, 4: 2, 5: 3}), read({**HALF, 4: 2, 5: 3}),
    ),
    "an attempt that gets its rows in another order": history(
        workload(), handed(0, 0, 1), handed(0, 1, 0, attempt="b"), reported(0, T0, (0, 2, 3, 2), attempt="b"),
        intent("decided", T0), end(T0), verdict("committed"), raw({0: 0, 1: 1, 2: 1, 3: 0}), read({2: 1, 3: 0}),
    ),
    "an attempt whose receipt has rows of an earlier one in between": history(
        workload(), handed(0, 0, 1), handed(0, 0, 1, attempt="b"), reported(0, T0, (0, 0, 2, 2), attempt="b"),
        intent("decided", T0), end(T0), verdict("committed"), raw({0: 0, 1: 0, 2: 1}), read({0: 0, 2: 1}),
    ),
    "dead letters, which have no receipts": history(
        workload(), handed(0, 0, 1), reported(0, T0, (0, 0, 0, 1)), intent("decided", T0), end(T0),
        verdict("committed"), raw({0: 0}), read({0: 0}), read({0: 1}, topic="dead", reader="raw",
        isolation="read_uncommitted"), read({0: 1}, topic="dead"),
    ),
    "a task without rows, and one with": history(
        workload(), handed(0, 0, 1), reported(0, T0, (0, 0, 1, 2)), reported(1, None, write=None, entry="ledger:job/1"),
        intent("not decided", T0), end(T0, "aborted"), verdict("failed"), raw(HALF), read({}),
    ),
    "rows twice at least once": history(
        workload(exactly_once=False, repeats=True), handed(0, 0, 1), handed(0, 0, 1, attempt="b"),
        reported(0, None, (0, 2, 3, 2), attempt="b"), verdict("committed"), raw({0: 0, 1: 1, 2: 0, 3: 1}),
        read({0: 0, 1: 1, 2: 0, 3: 1}),
    ),
    "a job that is torn, and whose error says that it is decided": history(
        workload(), *TASKS, *DECIDED, end(T0), verdict("failed", STILL_OPEN), raw(ROWS), read(HALF)
    ),
    "a job whose transactions have all timed out, and whose error says that it is decided": history(
        workload(), *TASKS, *DECIDED, verdict("failed", STILL_OPEN), raw(ROWS), read({})
    ),
    "an intent of a task without rows": history(
        workload(), handed(0, 0, 1), reported(0, T0, (0, 0, 1, 2)), {**reported(1, T1), "write": None}, *DECIDED,
        end(T0), verdict("committed"), raw(HALF), read(HALF),
    ),
    "an intent of a task that has not reported": history(workload(), handed(0, 0, 1), intent("asked", T0), read({})),
    "an open transaction that hides a task": history(
        workload(), *TASKS, *DECIDED, verdict("failed", STILL_OPEN), raw(ROWS), read(HALF, passed=2)
    ),
}  # fmt: skip

FAULTY = {
    "a row of a topic that was created again is missing": (
        Kind.LOST,
        history(*OLD, *AGAIN, *NEW, verdict("committed"), raw(ROWS, incarnation="new"),
                read({0: 0, 1: 1, 2: 2}, incarnation="new")),
    ),
    "a row is lost that was seen in a topic which was not deleted": (
        Kind.COMMITTED_BUT_INVISIBLE,
        history(*OLD[:3], TO_TWO, raw({0: 0}, incarnation="old"),
                read({0: 1}, "raw", "read_uncommitted", topic="u", incarnation="its id"), *ENDED_AND_DELETED),
    ),
    "more rows are missing than the deleted topic had": (
        Kind.COMMITTED_BUT_INVISIBLE, history(*OLD[:3], TO_TWO, *ENDED_AND_DELETED),
    ),
    "a dead letter is lost, and its topic was not deleted": (
        Kind.COMMITTED_BUT_INVISIBLE, history(*OLD[:3], WITH_A_DEAD_LETTER, *ENDED_AND_DELETED),
    ),
    "one of several rows is lost in a topic which was not deleted": (
        Kind.LOST,
        history(*OLD[:2], handed(0, 0, 1, 2), {**TO_TWO, "places": [["t", 0, 0, 0, 1], ["u", 0, 0, 1, 2]]},
                *ENDED_AND_DELETED, read({0: 1}, topic="u", incarnation="its id")),
    ),
    "a task wrote to the new topic only, and another one's rows went with the old one": (
        Kind.COMMITTED_BUT_INVISIBLE,
        history(*OLD[:-1], *AGAIN, reported(1, T1, (0, 2, 3, 2), incarnation="new"), *DECIDED, verdict("committed"),
                read({}, incarnation="new")),
    ),
    "a job that is not decided goes with its topic": (
        Kind.COMMITTED_BUT_INVISIBLE,
        history(*OLD, *AGAIN, intent("not decided", T0, T1), verdict("committed"), read({}, incarnation="new")),
    ),
    "rows that were decided in the new topic, and before in the deleted one": (
        Kind.COMMITTED_BUT_INVISIBLE,
        history(*OLD, *DECIDED, *AGAIN, *NEW[:-2], verdict("committed"), read({}, incarnation="new")),
    ),
    "a row is visible in both topics": (
        Kind.DOUBLED,
        history(*OLD, *DECIDED, *ENDED, OLD_READ, *AGAIN, *NEW, verdict("committed"),
                read(ROWS, "live", incarnation="new"), read(ROWS, incarnation="new")),
    ),
    "a failed job was visible until its topic was deleted": (
        Kind.FAILED_BUT_VISIBLE,
        history(*OLD, *DECIDED, *ENDED, verdict("failed"), OLD_READ, *AGAIN, read({}, incarnation="new")),
    ),
    "a batch was visible in part until its topic was deleted": (
        Kind.PARTLY_VISIBLE,
        history(*OLD, *DECIDED, end(T0), read(HALF, "live", incarnation="old"), *AGAIN, verdict("committed"),
                read({}, incarnation="new")),
    ),
    "a receipt was wrong in a topic that was deleted": (
        Kind.RECEIPT_CONTRADICTED,
        history(*OLD, raw({**HALF, 4: 2, 5: 3}, incarnation="old"), *AGAIN, read({}, incarnation="new")),
    ),
    "a row of a committed job is missing": (
        Kind.LOST, history(*WRITTEN, verdict("committed"), raw(ROWS), read({0: 0, 1: 1, 2: 2})),
    ),
    "the sink took fewer rows than Spark had": (
        Kind.LOST, history(workload(rows=5), *WRITTEN[1:], verdict("committed"), raw(ROWS), read(ROWS)),
    ),
    "the sink took no row of a batch before the last committed one": (
        Kind.LOST,
        history(workload(repeats=True, rows=1), handed(0, 0), handed(0, 0, write="job/3"),
                verdict("committed", write="job/3"), read({0: 0, 1: "job/3/0"})),
    ),
    "the sink took no row of a job that it calls committed": (
        Kind.LOST,
        history(workload(rows=4), *WRITTEN[1:], verdict("committed"), verdict("committed", write="job/2"), raw(ROWS),
                read(ROWS)),
    ),
    "the sink took no row of the last committed write": (
        Kind.LOST,
        history(workload(repeats=True, rows=4), *WRITTEN[1:], verdict("committed"), verdict("committed", write="job/2"),
                raw(ROWS), read(ROWS)),
    ),
    "the sink took no row of the first write that has begun": (
        Kind.LOST,
        history(workload(repeats=True, rows=4), {**began(), "write": "job/0"}, *WRITTEN[1:], verdict("committed"),
                raw(ROWS), read(ROWS)),
    ),
    "a decided transaction is aborted by the sink": (
        Kind.DECIDED_BUT_ABORTED, history(workload(), *TASKS, *DECIDED, end(T0), end(T1, "aborted"), read(HALF)),
    ),
    "a row of a committed transaction is missing, and the driver has died": (
        Kind.COMMITTED_BUT_INVISIBLE, history(*WRITTEN, raw(ROWS), read({0: 0, 1: 1, 2: 2})),
    ),
    "a receipt lacks a partition whose rows are visible": (
        Kind.RECEIPT_CONTRADICTED,
        history(workload(), *TASKS[:3], reported(1, T1), *DECIDED, *ENDED, verdict("committed"), read(ROWS)),
    ),
    "a row of the control is missing": (
        Kind.LOST, history(workload(exactly_once=False), handed(0, 0, 1), verdict("committed"), read({0: 0})),
    ),
    "a batch before the last committed one is missing": (
        Kind.LOST,
        history(workload(repeats=True), handed(0, 0), handed(0, 0, write="job/2"), verdict("committed", write="job/2"),
                read({0: "job/2/0"})),
    ),
    "a row is there twice": (
        Kind.DOUBLED, history(*WRITTEN, verdict("committed"), raw({**ROWS, 5: 3}), read({**ROWS, 5: 3})),
    ),
    "a row is in two partitions": (
        Kind.DOUBLED, history(*WRITTEN, verdict("committed"), read(ROWS), read({0: 3}, partition=1)),
    ),
    "an aborted row is read": (
        Kind.ABORTED_READ, history(workload(), *TASKS, *DECIDED, end(T0, "aborted"), end(T1), read(ROWS)),
    ),
    "rows of a job that was not decided are read": (
        Kind.ABORTED_READ, history(workload(), *TASKS, intent("not decided", T0, T1), read(ROWS)),
    ),
    "a batch stays in part": (
        Kind.PARTLY_VISIBLE,
        history(workload(), *TASKS, *DECIDED, end(T0), verdict("committed"), raw(ROWS), read(HALF)),
    ),
    "a batch of a stream stays in part for a reader": (
        Kind.PARTLY_VISIBLE, history(workload(repeats=True), *TASKS, *DECIDED, end(T0), read(HALF)),
    ),
    "rows are out of order": (
        Kind.OUT_OF_ORDER, history(*WRITTEN, verdict("committed"), read({0: 1, 1: 0, 2: 2, 3: 3})),
    ),
    "a failed job is visible": (
        Kind.FAILED_BUT_VISIBLE, history(*WRITTEN, verdict("failed"), raw(ROWS), read(ROWS)),
    ),
    "a run fails, and a later one decides the job, but the rows of the first are visible": (
        Kind.FAILED_BUT_VISIBLE,
        history(workload(repeats=True), began(), *by("1-", T0, T1), verdict("failed"), began(),
                *by("1-b", T2, T3, first=4), intent("decided", T2, T3), verdict("committed"), read(ROWS)),
    ),
    "a run fails, and one row of it is visible beside those of the next": (
        Kind.FAILED_BUT_VISIBLE,
        history(workload(repeats=True), began(), *by("1-", T0, T1), verdict("failed"), began(),
                *by("1-b", T2, T3, first=4), intent("decided", T2, T3), verdict("committed"),
                read({0: 0, 5: 1, 6: 2, 7: 3})),
    ),
    "a run fails, and what an attempt of it wrote that has not reported is visible": (
        Kind.FAILED_BUT_VISIBLE,
        history(workload(repeats=True), began(), handed(0, 0, 1, attempt="1-"), verdict("failed"), began(),
                *by("1-b", T2, T3, first=4), intent("decided", T2, T3), verdict("committed"), read(ROWS)),
    ),
    "a run fails in one driver, and the abort of another one says that the job is decided": (
        Kind.FAILED_BUT_VISIBLE,
        history(workload(repeats=True), began("1"), *by("1-", T0, T1), intent("asked", T0, T1), verdict("failed"),
                began("2"), gave_up(FINISHED, start="2"), read(ROWS)),
    ),
    "a run fails, and a later abort says that the job is decided": (
        Kind.FAILED_BUT_VISIBLE,
        history(workload(repeats=True), began(), *by("1-", T0, T1), intent("asked", T0, T1), verdict("failed"),
                began(), gave_up(FINISHED), read(ROWS)),
    ),
    "an error says that another batch is decided": (
        Kind.FAILED_BUT_VISIBLE, history(*WRITTEN, verdict("failed", OTHERS_FINISHED), raw(ROWS), read(ROWS)),
    ),
    "an abort says that another batch is decided": (
        Kind.FAILED_BUT_VISIBLE,
        history(*WRITTEN, verdict("failed", by="sink"), gave_up(OTHERS_FINISHED), verdict("failed"), raw(ROWS),
                read(ROWS)),
    ),
    "a worker of a task dies, and the job is visible": (
        Kind.FAILED_BUT_VISIBLE, history(*WRITTEN, verdict("failed", WORKER_DIED), raw(ROWS), read(ROWS)),
    ),
    "the process that plans dies, and the job is visible": (
        Kind.FAILED_BUT_VISIBLE, history(*WRITTEN, verdict("failed", PLANNER_DIED), raw(ROWS), read(ROWS)),
    ),
    "a batch is torn, and a later intent repairs another task": (
        Kind.PARTLY_VISIBLE,
        history(workload(repeats=True), *TASKS, *DECIDED, handed(0, 0, 1, attempt="b"),
                reported(0, T2, (0, 4, 5, 2), attempt="b"), intent("decided", T2), read({4: 0, 0: 0, 1: 1, 5: 1})),
    ),
    "a batch is torn, and its replay repairs one of two rows": (
        Kind.PARTLY_VISIBLE,
        history(workload(repeats=True), *TASKS, *DECIDED, *REPLAYED, raw({**ROWS, 4: 2, 5: 3}), read({**HALF, 4: 2})),
    ),
    "a batch is torn, an error says that it is decided, and the next run does nothing": (
        Kind.PARTLY_VISIBLE,
        history(workload(repeats=True), began(), *TASKS, *DECIDED, end(T0), verdict("failed", STILL_OPEN), began(),
                read(HALF)),
    ),
    "a job is torn, and its driver lives": (
        Kind.PARTLY_VISIBLE,
        history(workload(), started("1"), *TASKS, *DECIDED, end(T0), started("2", "another"), raw(ROWS), read(HALF)),
    ),
    "a row is visible that an attempt wrote which the intent does not name": (
        Kind.ABORTED_READ,
        history(workload(), *by("a", T0, T1), *by("b", T2, T3, first=4), intent("decided", T2, T3), read(ROWS)),
    ),
    "a transaction is committed and aborted, and nobody knows whether it was decided": (
        Kind.DECIDED_BUT_ABORTED,
        history(workload(), *TASKS, intent("asked", T0, T1), end(T0), end(T0, "aborted"), end(T1), read(ROWS)),
    ),
    "an attempt's rows are in the order in which another one got them": (
        Kind.OUT_OF_ORDER,
        history(workload(), handed(0, 0, 1), handed(0, 1, 0, attempt="b"), reported(0, T0, (0, 2, 3, 2), attempt="b"),
                intent("decided", T0), read({2: 0, 3: 1})),
    ),
    "a receipt has too few rows, though another attempt had some of them": (
        Kind.RECEIPT_CONTRADICTED,
        history(workload(), handed(0, 0), handed(0, 0, 1, 2, attempt="b"), reported(0, T0, (0, 0, 2, 1), attempt="b"),
                raw({0: 0, 1: 1, 2: 2})),
    ),
    "a transaction is committed before the intent that names it": (
        Kind.COMMITTED_TOO_EARLY,
        history(workload(), *TASKS, *ENDED, *DECIDED, verdict("committed"), raw(ROWS), read(ROWS)),
    ),
    "a transaction is to be committed, and the only intent that names it is refused": (
        Kind.COMMITTED_TOO_EARLY,
        history(workload(), *TASKS, intent("not decided", T0, T1), end(T0), verdict("failed"), raw(ROWS), read({})),
    ),
    "rows are seen before the intent that names their transaction": (
        Kind.COMMITTED_TOO_EARLY,
        history(workload(), *TASKS, raw(ROWS), read(ROWS, "live"), *DECIDED, *ENDED, verdict("committed"), read(ROWS)),
    ),
    "a decided intent names a transaction that no task has reported, and its rows are gone": (
        Kind.NOT_REPORTED, history(workload(), *TASKS[:3], *DECIDED, end(T0), raw(ROWS), read(HALF)),
    ),
    "an intent that may be decided names a transaction that no task has reported": (
        Kind.NOT_REPORTED,
        history(workload(), *TASKS[:3], intent("asked", T0, T1), verdict("failed", UNCONFIRMED), raw(ROWS), read(HALF)),
    ),
    "a failed job is visible, and was not decided": (
        Kind.FAILED_BUT_VISIBLE, history(workload(), *TASKS, verdict("failed"), read(ROWS)),
    ),
    "a committed job is invisible": (
        Kind.COMMITTED_BUT_INVISIBLE, history(*WRITTEN, verdict("committed"), raw(ROWS), read({})),
    ),
    "a decided job is invisible, and its driver lives": (
        Kind.COMMITTED_BUT_INVISIBLE, history(workload(), *TASKS, *DECIDED, verdict("failed"), raw(ROWS), read({})),
    ),
    "a committed transaction is invisible": (
        Kind.COMMITTED_BUT_INVISIBLE, history(*WRITTEN, verdict("failed", STILL_OPEN), raw(ROWS), read(HALF)),
    ),
    "a receipt has another count": (
        Kind.RECEIPT_CONTRADICTED,
        history(workload(), handed(0, 0, 1), reported(0, T0, (0, 0, 1, 2)), raw({0: 0})),
    ),
    "a receipt has the offsets of another task": (
        Kind.RECEIPT_CONTRADICTED,
        history(workload(), handed(0, 0, 1), handed(1, 2, 3), reported(0, T0, (0, 2, 3, 2)), raw(ROWS)),
    ),
    "a row comes from nowhere": (
        Kind.FOREIGN_ROW, history(*WRITTEN, verdict("committed"), read({**ROWS, 4: 9})),
    ),
    "two readers see different rows": (
        Kind.READERS_DISAGREE, history(*WRITTEN, verdict("committed"), read({**ROWS, 3: 2}, "live"), read(ROWS)),
    ),
    "a reader passes a row that another one sees": (
        Kind.READERS_DISAGREE, history(*WRITTEN, verdict("committed"), read(ROWS, "live"), read(HALF)),
    ),
}  # fmt: skip


# Where the checker looks away, and how often. It does so in no other whole history.
EXCUSED = {
    "rows that went with a deleted topic": {
        Reason.TOLD_DECIDED: 1,
        Reason.TOPIC_DELETED: 4,
        Reason.NOT_COMPARED: 4,
    },
    "rows that went with a deleted topic before a reader saw them": {
        Reason.TOPIC_DELETED: 4,
        Reason.NOT_READ: 3,
    },
    "rows that are written again because their topic was deleted before the commit": {Reason.OTHER_RUN: 1},
    "a row that went with its topic, and one that is in another topic": {
        Reason.TOPIC_DELETED: 1,
        Reason.NOT_READ: 3,
    },
    "a row that went with its topic, and a dead letter": {
        Reason.TOPIC_DELETED: 1,
        Reason.NO_RECEIPTS: 1,
        Reason.NOT_READ: 2,
    },
    "a row that went with its topic, and a dead letter with its own": {
        Reason.TOPIC_DELETED: 2,
        Reason.NOT_READ: 2,
    },
    "an error that says that the job is decided": {Reason.TOLD_DECIDED: 1},
    "an error that does not know it": {Reason.TOLD_UNKNOWN: 1},
    "an error that says that the job is decided, and its ledger was created again": {Reason.TOLD_DECIDED: 1},
    "an error that says that another driver has gone on": {Reason.TOLD_UNKNOWN: 1},
    "an error that says that the ledger was created again while it was read": {Reason.TOLD_UNKNOWN: 1},
    "an error whose last words say that the job is decided": {Reason.TOLD_DECIDED: 1},
    "an error whose first words say that the job is decided": {Reason.TOLD_DECIDED: 1},
    "an abort that says that the job is decided": {Reason.LOGGED_DECIDED: 1},
    "a driver that dies between two EndTxns of a job that is not repeated": {Reason.TORN_AND_DIED: 1},
    "a run that fails before one that commits": {Reason.OTHER_RUN: 1},
    "a driver that was replaced, and fails while its successor commits": {Reason.OTHER_RUN: 1},
    "a driver that is stopped after its decision, which its successor commits": {Reason.TOLD_UNKNOWN: 1},
    "a batch that is torn, and whose replay writes what is missing": {
        Reason.TOLD_DECIDED: 1,
        Reason.TORN_AND_REPAIRED: 1,
    },
    "a job that is torn, and whose error says that it is decided": {
        Reason.TOLD_DECIDED: 1,
        Reason.TORN_AND_TOLD: 1,
    },
    "a job whose transactions have all timed out, and whose error says that it is decided": {
        Reason.DECIDED_AND_LOST: 1,
    },
    "an attempt whose receipt has rows of an earlier one in between": {Reason.SEVERAL_ATTEMPTS: 1},
    "dead letters, which have no receipts": {Reason.NO_RECEIPTS: 1},
    "rows twice at least once": {Reason.AT_LEAST_ONCE: 2},
    "an open transaction that hides a task": {Reason.TOLD_DECIDED: 1, Reason.NOT_READ: 1},
    "an intent of a task that has not reported": {Reason.NAMELESS: 1},
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_history_has_no_finding(name):
    said = checked(History(WHOLE[name]))
    assert said.findings == []
    assert said.counts == EXCUSED.get(name, {})


@pytest.mark.parametrize("name", FAULTY)
def test_a_planted_fault_is_found(name):
    kind, events = FAULTY[name]
    assert kind in {finding.kind for finding in check(events)}


def test_each_reason_to_look_away_is_in_a_whole_history():
    assert {reason for reasons in EXCUSED.values() for reason in reasons} == set(Reason)


def test_exceptions_are_counted_with_what_they_are_about():
    said = checked(History(WHOLE["a driver that dies between two EndTxns of a job that is not repeated"]))
    assert said.excused() == [f"     1 {Reason.TORN_AND_DIED.value} (job/1)"]


def test_each_kind_of_finding_is_planted():
    assert {kind for kind, _ in FAULTY.values()} == set(Kind) == set(FAULTS.values())


@given(SEEDS)
def test_a_correct_random_history_has_no_finding(seed):
    """What happens in one only by a documented exception is counted."""
    said = checked(History(correct_history(seed).events()))
    assert said.findings == []
    assert {
        Reason.TOLD_DECIDED,
        Reason.TOLD_UNKNOWN,
        Reason.LOGGED_DECIDED,
        Reason.OTHER_RUN,
        Reason.TORN_AND_REPAIRED,
        Reason.TORN_AND_TOLD,
        Reason.TORN_AND_DIED,
        Reason.TOPIC_DELETED,
        Reason.AT_LEAST_ONCE,
    } <= said.counts.keys()


@given(SEEDS, st.sampled_from(list(FAULTS)))
def test_a_fault_in_a_random_history_is_found(seed, fault):
    assert FAULTS[fault] in {finding.kind for finding in check(fault(correct_history(seed)))}


@given(SEEDS)
def test_a_history_is_read_as_it_was_written(seed):
    events = correct_history(seed).events()
    assert [Event.parse(event.line()) for event in events] == events


def test_files_of_several_processes_are_one_history(tmp_path):
    one, other = Recorder(tmp_path, "one"), Recorder(tmp_path, "other")
    for write in ("a/1", "a/2"):
        one("began", write=write)
        other("began", write=f"b{write}")
    events = read_history(tmp_path.glob("*.jsonl"))
    assert [event["write"] for event in events] == ["a/1", "ba/1", "a/2", "ba/2"]
    write_history(events, tmp_path / "all")
    assert read_history([tmp_path / "all"]) == events


def test_half_a_line_of_a_process_that_was_killed_is_left_out(tmp_path):
    Recorder(tmp_path, "one")("began", write="a/1")
    (file,) = tmp_path.glob("*.jsonl")
    file.write_text(file.read_text() + '{"at": 1, "wa')
    assert len(read_history([file])) == 1
    file.write_text('{"at": 1, "wa\n')
    with pytest.raises(ValueError, match="Unterminated string"):
        read_history([file])


def imports_of(file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    found = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    return found | {
        str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module is not None
    }


def test_the_checker_imports_nothing_of_what_it_judges():
    """Neither it nor what it imports: the standard library, and files of this folder that keep to the same."""
    left, seen = [Path(checker.__file__)], set()
    while left:
        file = left.pop()
        for name in imports_of(file) - seen:
            seen.add(name)
            if name.startswith("tests."):
                assert name.startswith("tests.histories."), f"{file.name} imports {name}"
                left.append(ROOT / f"{name.replace('.', '/')}.py")
            else:
                assert name.split(".")[0] in sys.stdlib_module_names, f"{file.name} imports {name}"
    assert {"tests.histories.events", "tests.histories.index"} <= seen
    assert [(ROOT / folder / "__init__.py").read_text() for folder in ("tests", "tests/histories")] == ["", ""]
