"""The checker finds each fault in histories of a few events, and nothing in whole ones."""

from __future__ import annotations

import sys

import pytest

from tests.repository.files import ROOT
from tests.soak.checker import check, checked
from tests.soak.events import COMMITTED, UNCOMMITTED, Recorder, read_history
from tests.soak.evidence import lacking
from tests.soak.findings import Kind, Reason
from tests.soak.history import History
from tests.support.child_processes import finished
from tests.support.waiting import DEADLINE_S

# One write, job/1, of two tasks, whose rows lie in one partition: 0 and 1 at the offsets 0 and 1, 2 and 3 at 2 and 3.

NOT_DECIDED = "job is not committed: no broker responds. Start the query again: it writes the batch again."
STILL_OPEN = "Batch 1 of job (name job) is decided, but 1 of its 2 transactions could not be committed yet: no broker"
UNCONFIRMED = "txnVersion 1 of txnAppId job (name job) may or may not be decided, because no broker confirms it"
NONE_VISIBLE = "The write was aborted, and none of its rows is visible: 2 prepared transactions were aborted"
FINISHED = "The write was aborted, but batch 1 of job had been decided and is committed"

T0, T1 = ["job-0", 7, 0], ["job-1", 8, 0]
T2, T3 = ["job-0", 7, 1], ["job-1", 8, 1]


def workload(rows=4, *, exactly_once=True, repeats=True, topic="t", dead_letters=()):
    promised = {"name": "job", "exactly_once": exactly_once, "repeats": repeats, "rows": rows}
    where = {"topic": topic, "dead_letter_topic": "dead" if dead_letters else "", "dead_letters": [*dead_letters]}
    return {"kind": "workload", **promised, **where}


def began(start="1", write="job/1"):
    return {"kind": "began", "write": write, "start": start}


def handed(task, *rows, attempt="1-a", write="job/1"):
    names = [f"{write}/{row}" for row in rows]
    return {"kind": "handed", "write": write, "task": task, "attempt": f"{attempt}{task}", "rows": names}


def reported(task, transaction, *places, attempt="1-a", write="job/1", topic="t"):
    return {
        "kind": "reported",
        "write": write,
        "entry": None if transaction is None else write,
        "task": task,
        "attempt": f"{attempt}{task}",
        "transaction": transaction,
        "places": [[topic, *place] for place in places],
    }


def intent(outcome, *transactions, start="1"):
    return {"kind": "intent", "entry": "job/1", "start": start, "transactions": [*transactions], "outcome": outcome}


def end(transaction, outcome="committed"):
    return {"kind": "end", "transaction": transaction, "commit": outcome == "committed", "outcome": outcome}


def verdict(outcome, error="", write="job/1", start="1", by="job"):
    return {"kind": "verdict", "start": start, "write": write, "by": by, "outcome": outcome, "error": error}


def gave_up(text, start="1"):
    return {"kind": "gave up", "entry": "job/1", "start": start, "text": text}


def read(rows, reader="fresh", isolation=COMMITTED, passed=10, topic="t", partition=0):
    """``rows``: offset → row of job/1."""
    where = {"reader": reader, "isolation": isolation, "topic": topic, "partition": partition}
    seen = [[offset, row if isinstance(row, str) else f"job/1/{row}"] for offset, row in rows.items()]
    return [{"kind": "seen", **where, "rows": seen}, {"kind": "passed", **where, "offset": passed}]


def raw(rows, topic="t"):
    return read(rows, "raw", UNCOMMITTED, topic=topic)


def seen(rows):
    """By both readers."""
    return [*raw(rows), *read(rows)]


def by(attempt, one, other, first=0):
    """The tasks of the job, as attempts of another driver or run. ``first``: the offset of their first row."""
    return [
        handed(0, 0, 1, attempt=attempt), handed(1, 2, 3, attempt=attempt),
        reported(0, one, (0, first, first + 1, 2), attempt=attempt),
        reported(1, other, (0, first + 2, first + 3, 2), attempt=attempt),
    ]  # fmt: skip


def history(*told):
    flat = [each for one in told for each in (one if isinstance(one, list) else [one])]
    return [{**each, "at": float(at)} for at, each in enumerate(flat)]


TASKS = by("1-a", T0, T1)
DECIDED = [intent("asked", T0, T1), intent("decided", T0, T1)]
ENDED = [end(T0), end(T1)]
WRITTEN = [workload(), *TASKS, *DECIDED, *ENDED]
ROWS = {0: 0, 1: 1, 2: 2, 3: 3}
HALF = {0: 0, 1: 1}
LATER = {offset + 4: row for offset, row in ROWS.items()}
"""The rows where a second run writes them."""

AGAIN = [*by("1-b", T2, T3, first=4), intent("asked", T2, T3), intent("decided", T2, T3), end(T2), end(T3)]
FAILED_FIRST = [workload(), began(), *TASKS, verdict("failed", NOT_DECIDED), began()]

# What a replay writes that finds the rows of the second task gone.
REPLAYED = [
    handed(0, 0, 1, attempt="1-b"), handed(1, 2, 3, attempt="1-b"), reported(1, T3, (0, 4, 5, 2), attempt="1-b"),
    intent("decided", T3), end(T3),
]  # fmt: skip

# Two attempts of a task, of which the second one is committed. Each has a row between the other one's.
INTERLEAVED = [
    handed(0, 0, 1), handed(0, 0, 1, attempt="1-b"), reported(0, T0, (0, 0, 2, 2)),
    reported(0, T2, (0, 1, 3, 2), attempt="1-b"), intent("asked", T2), intent("decided", T2), end(T2),
    end(T0, "aborted"), verdict("committed"),
]  # fmt: skip

ONE_TASK = [handed(0, 0, 1), reported(0, T0, (0, 0, 1, 2)), intent("asked", T0), intent("decided", T0), end(T0)]
AT_LEAST_ONCE = [
    workload(2, exactly_once=False), handed(0, 0, 1), handed(0, 0, 1, attempt="1-b"),
    reported(0, None, (0, 2, 3, 2), attempt="1-b"), verdict("committed"),
]  # fmt: skip
"""A task that was retried after its rows were acknowledged."""

WITH_A_LETTER = [
    workload(2, dead_letters=[1]), handed(0, 0, 1), reported(0, T0, (0, 0, 0, 1)), intent("decided", T0), end(T0),
    verdict("committed"), *raw({0: 0}), *read({0: 0}),
]  # fmt: skip
LETTER_SEEN = [*raw({0: 1}, topic="dead"), *read({0: 1}, topic="dead")]

WHOLE = {
    "a write that is committed": ({}, [*WRITTEN, verdict("committed"), seen(ROWS)]),
    "a write that fails, and leaves nothing": (
        {}, [workload(), *TASKS, intent("not decided", T0, T1), end(T0, "aborted"), verdict("failed"), raw(ROWS),
             read({})],
    ),
    "an error that says that the write is decided": (
        {Reason.TOLD_DECIDED: 1}, [*WRITTEN, verdict("failed", STILL_OPEN), seen(ROWS)],
    ),
    "an error that does not know it": (
        {Reason.TOLD_UNKNOWN: 1},
        [workload(), *TASKS, intent("unknown", T0, T1), verdict("failed", UNCONFIRMED), seen(ROWS)],
    ),
    "an abort that says that the write is decided": (
        {Reason.LOGGED_DECIDED: 1},
        [*WRITTEN, verdict("failed", by="sink"), gave_up(FINISHED), verdict("failed"), seen(ROWS)],
    ),
    "a run that fails before one that commits": (
        {Reason.OTHER_RUN: 1}, [*FAILED_FIRST, *AGAIN, verdict("committed"), raw({**ROWS, **LATER}), read(LATER)],
    ),
    "a driver that was replaced, and fails while its successor commits": (
        {Reason.OTHER_RUN: 1},
        [workload(), began("1"), handed(0, 0, 1, attempt="1-"), began("2"), *by("2-", T0, T1),
         intent("decided", T0, T1, start="2"), verdict("failed", start="1"), *ENDED, verdict("committed", start="2"),
         seen(ROWS)],
    ),
    "a batch that is torn, and whose replay writes what is missing": (
        {Reason.TOLD_DECIDED: 1, Reason.TORN_AND_REPAIRED: 1},
        [workload(), *TASKS, *DECIDED, end(T0), verdict("failed", STILL_OPEN), *REPLAYED, verdict("committed"),
         raw({**ROWS, 4: 2, 5: 3}), read({**HALF, 4: 2, 5: 3})],
    ),
    "a write that is torn, and whose error says that it is decided": (
        {Reason.TOLD_DECIDED: 1, Reason.TORN_AND_TOLD: 1},
        [workload(repeats=False), *TASKS, *DECIDED, end(T0), verdict("failed", STILL_OPEN), raw(ROWS), read(HALF)],
    ),
    "an attempt that gets its rows in another order": (
        {},
        [workload(2), handed(0, 0, 1), handed(0, 1, 0, attempt="1-b"), reported(0, T0, (0, 2, 3, 2), attempt="1-b"),
         intent("decided", T0), end(T0), verdict("committed"), raw({0: 0, 1: 1, 2: 1, 3: 0}), read({2: 1, 3: 0})],
    ),
    "two attempts whose rows lie between each other, and the committed one is visible": (
        {Reason.SEVERAL_ATTEMPTS: 2},
        [workload(2), *INTERLEAVED, raw({0: 0, 1: 0, 2: 1, 3: 1}), read({1: 0, 3: 1})],
    ),
    "rows twice at least once": (
        {Reason.AT_LEAST_ONCE: 2, Reason.NO_AUTHOR: 2}, [*AT_LEAST_ONCE, seen({0: 0, 1: 1, 2: 0, 3: 1})],
    ),
    "dead letters, which have no receipts": ({Reason.NO_RECEIPTS: 1}, [*WITH_A_LETTER, *LETTER_SEEN]),
    "an open transaction that hides a task": (
        {Reason.TOLD_DECIDED: 1, Reason.NOT_READ: 1},
        [workload(), *TASKS, *DECIDED, verdict("failed", STILL_OPEN), raw(ROWS), read(HALF, passed=2)],
    ),
    "an intent of a task that has not reported": (
        {Reason.NAMELESS: 1}, [workload(2), handed(0, 0, 1), intent("asked", T0), read({})],
    ),
    "a transaction of the producer that was aborted": (
        {}, [workload(2, repeats=False), began(), *ONE_TASK[:2], end(T0, "aborted"), verdict("failed"), raw(HALF),
             read({})],
    ),
    "a transaction of the producer whose driver was killed as it asked for the commit": (
        {}, [workload(2, repeats=False), began(), *ONE_TASK[:3], raw(HALF), read({})],
    ),
}  # fmt: skip

FAULTY = {
    "a row of a committed write is missing": (
        Kind.LOST, [*WRITTEN, verdict("committed"), raw(ROWS), read({0: 0, 1: 1, 2: 2})],
    ),
    "a batch before the last committed one is missing": (
        Kind.LOST,
        [workload(1), handed(0, 0), handed(0, 0, write="job/2"), verdict("committed", write="job/2"),
         read({0: "job/2/0"})],
    ),
    "the sink took fewer rows than Spark had": (
        Kind.LOST, [workload(5), *WRITTEN[1:], verdict("committed"), seen(ROWS)],
    ),
    "the sink took no row of a write that it calls committed": (
        Kind.LOST, [*WRITTEN, verdict("committed"), verdict("committed", write="job/2"), seen(ROWS)],
    ),
    "the sink took no row of the first write that has begun": (
        Kind.LOST, [workload(), began(write="job/0"), *WRITTEN[1:], verdict("committed"), seen(ROWS)],
    ),
    "a row is there twice": (Kind.DOUBLED, [*WRITTEN, verdict("committed"), seen({**ROWS, 5: 3})]),
    "an aborted row is read": (
        Kind.ABORTED_READ, [workload(), *TASKS, *DECIDED, end(T0, "aborted"), end(T1), read(ROWS)],
    ),
    "rows of a write that was not decided are read": (
        Kind.ABORTED_READ, [workload(), *TASKS, intent("not decided", T0, T1), read(ROWS)],
    ),
    "a row is visible that an attempt wrote which the intent does not name": (
        Kind.ABORTED_READ, [workload(), *TASKS, *AGAIN, read(ROWS)],
    ),
    "a batch stays in part": (Kind.PARTLY_VISIBLE, [workload(), *TASKS, *DECIDED, end(T0), raw(ROWS), read(HALF)]),
    "a batch is torn, and its replay repairs one of two rows": (
        Kind.PARTLY_VISIBLE,
        [workload(), *TASKS, *DECIDED, *REPLAYED, raw({**ROWS, 4: 2, 5: 3}), read({**HALF, 4: 2})],
    ),
    "a batch is torn, an error says that it is decided, and the next run does nothing": (
        Kind.PARTLY_VISIBLE,
        [workload(), began(), *TASKS, *DECIDED, end(T0), verdict("failed", STILL_OPEN), began(), read(HALF)],
    ),
    "rows are out of order": (Kind.OUT_OF_ORDER, [*WRITTEN, verdict("committed"), read({0: 1, 1: 0, 2: 2, 3: 3})]),
    "rows of an at-least-once write are out of order": (
        Kind.OUT_OF_ORDER,
        [workload(3, exactly_once=False), handed(0, 0, 1, 2), reported(0, None, (0, 0, 2, 3)), verdict("committed"),
         seen({0: 2, 1: 1, 2: 0})],
    ),
    "an attempt's rows are in the order in which another one got them": (
        Kind.OUT_OF_ORDER,
        [workload(2), handed(0, 0, 1), handed(0, 1, 0, attempt="1-b"), reported(0, T0, (0, 2, 3, 2), attempt="1-b"),
         intent("decided", T0), read({2: 0, 3: 1})],
    ),
    "a failed write is visible": (Kind.FAILED_BUT_VISIBLE, [*WRITTEN, verdict("failed"), seen(ROWS)]),
    "a run fails, and one row of it is visible beside those of the next": (
        Kind.FAILED_BUT_VISIBLE, [*FAILED_FIRST, *AGAIN, verdict("committed"), read({0: 0, 5: 1, 6: 2, 7: 3})],
    ),
    "a run fails, and what an attempt of it wrote that has not reported is visible": (
        Kind.FAILED_BUT_VISIBLE,
        [workload(), began(), handed(0, 0, 1, attempt="1-"), verdict("failed"), began(), *AGAIN, read(ROWS)],
    ),
    "a run fails, and a later abort says that the write is decided": (
        Kind.FAILED_BUT_VISIBLE,
        [workload(), began(), *TASKS, intent("asked", T0, T1), verdict("failed"), began(), gave_up(FINISHED),
         read(ROWS)],
    ),
    "the sink knew that the write is decided, and the error that the job got does not say so": (
        Kind.FAILED_BUT_VISIBLE,
        [*WRITTEN, verdict("failed", STILL_OPEN, by="sink"), verdict("failed", "Job aborted."), seen(ROWS)],
    ),
    "abort says that no row is visible, and nobody was told anything else": (
        Kind.FAILED_BUT_VISIBLE, [*WRITTEN, gave_up(NONE_VISIBLE), seen(ROWS)],
    ),
    "a committed write is invisible": (
        Kind.COMMITTED_BUT_INVISIBLE, [*WRITTEN, verdict("committed"), raw(ROWS), read({})],
    ),
    "a committed transaction of the producer is invisible": (
        Kind.COMMITTED_BUT_INVISIBLE, [workload(2, repeats=False), *ONE_TASK[:4], raw(HALF), read({})],
    ),
    "a transaction is invisible that EndTxn has committed": (
        Kind.COMMITTED_BUT_INVISIBLE, [*WRITTEN, verdict("failed", STILL_OPEN), raw(ROWS), read(HALF)],
    ),
    "a row of an aborted attempt is visible instead of one that EndTxn committed": (
        Kind.COMMITTED_BUT_INVISIBLE, [workload(2), *INTERLEAVED, raw({0: 0, 1: 0, 2: 1, 3: 1}), read({1: 0, 2: 1})],
    ),
    "a receipt has another count": (Kind.RECEIPT_CONTRADICTED, [workload(2), *ONE_TASK[:2], raw({0: 0})]),
    "a receipt has the offsets of another task": (
        Kind.RECEIPT_CONTRADICTED,
        [workload(), handed(0, 0, 1), handed(1, 2, 3), reported(0, T0, (0, 2, 3, 2)), raw(ROWS)],
    ),
    "a receipt lacks a partition whose rows are visible": (
        Kind.RECEIPT_CONTRADICTED, [workload(), *TASKS[:3], reported(1, T1), *DECIDED, *ENDED, read(ROWS)],
    ),
    "a row is a dead letter, and the write has none": (Kind.MISPLACED, [workload(2), *WITH_A_LETTER[1:], *LETTER_SEEN]),
    "an aborted row was written to another topic": (
        Kind.MISPLACED, [workload(topic="u"), *TASKS, end(T0, "aborted"), end(T1, "aborted"), raw(ROWS), read({})],
    ),
    "a row comes from nowhere": (Kind.FOREIGN_ROW, [*WRITTEN, verdict("committed"), read({**ROWS, 4: 9})]),
    "the sink took more rows than Spark had": (
        Kind.FOREIGN_ROW, [workload(3), *WRITTEN[1:], verdict("committed"), seen(ROWS)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_history_has_no_finding_and_its_exceptions_are_counted(name):
    excused, told = WHOLE[name]
    said = checked(History(history(*told)))
    assert said.findings == []
    assert said.counts == excused


@pytest.mark.parametrize("name", FAULTY)
def test_a_planted_fault_is_found(name):
    kind, told = FAULTY[name]
    assert kind in {finding.kind for finding in check(history(*told))}


def test_each_kind_of_finding_is_planted_and_each_exception_made():
    assert {kind for kind, _ in FAULTY.values()} == set(Kind)
    assert {reason for reasons, _ in WHOLE.values() for reason in reasons} == set(Reason)


# What a history must have to prove anything.
FAULT = [{"kind": "fault", "name": "broker killed", "workload": "job", "phase": phase} for phase in ("begins", "ends")]
PROVES = [*WRITTEN, *FAULT, verdict("committed"), raw(ROWS), read(ROWS)]


def test_a_history_with_all_of_it_has_a_verdict():
    assert lacking(history(*PROVES)) == ""
    noted = {**verdict("committed"), "start": None}  # what a query's checkpoint says may be noted late
    assert lacking(history(*PROVES, noted, {"kind": "ended", "trouble": ""})) == ""


@pytest.mark.parametrize(
    ("lost", "lacks"),
    [
        ("intent", "it has no intent"),
        ("verdict", "it has no verdict"),
        ("handed", "no task was handed a row"),
        ("reported", "no task has reported"),
        ("end", "no transaction has an end"),
        ("fault", "no fault has struck"),
        ("seen", "no read_committed reader has seen a row"),
        ("passed", "no read_committed reader has passed a row"),
    ],
)
def test_a_history_that_lacks_something_has_no_verdict(lost, lacks):
    left = [event for event in history(*PROVES) if event["kind"] != lost]
    assert lacking(left).startswith(f"this history proves nothing, because {lacks}")


@pytest.mark.parametrize(
    ("told", "lacks"),
    [
        ([*PROVES[:-1], read({})], "no read_committed reader has seen a row"),
        ([*WRITTEN, *FAULT, verdict("committed"), read(ROWS)], "no read_uncommitted reader has seen a row"),
        ([*PROVES, {**workload(), "name": "other"}], "no reader has seen a row of other"),
        ([*PROVES, verdict("committed")], "no read_committed reader has begun after the last verdict"),
        ([*PROVES, {"kind": "ended", "trouble": "a broker did not start"}], "the run ended before its time: a broker"),
    ],
)
def test_a_history_whose_run_or_readers_did_not_come_to_the_end_has_no_verdict(told, lacks):
    assert lacks in lacking(history(*told))


def test_files_of_several_processes_are_one_history(tmp_path):
    one, other = Recorder(tmp_path, "one"), Recorder(tmp_path, "other")
    for write in ("a/1", "a/2"):
        one("began", write=write)
        other("began", write=f"b{write}")
    assert [event["write"] for event in read_history(tmp_path)] == ["a/1", "ba/1", "a/2", "ba/2"]


def test_half_a_line_of_a_process_that_was_killed_is_left_out(tmp_path):
    Recorder(tmp_path, "one")("began", write="a/1")
    (file,) = tmp_path.glob("*.jsonl")
    file.write_text(file.read_text() + '{"at": 1, "wa')
    (event,) = read_history(tmp_path)
    assert event["write"] == "a/1"
    file.write_text('{"at": 1, "wa\n')
    with pytest.raises(ValueError, match="Unterminated string"):
        read_history(tmp_path)


def test_the_checker_imports_nothing_of_what_it_judges():
    program = "import sys, tests.soak.checker, tests.soak.evidence; print(*sys.modules)"
    code, modules = finished([sys.executable, "-c", program], DEADLINE_S, cwd=ROOT)
    assert code == 0, modules
    assert [name for name in modules.split() if name.startswith("spark_kafka_sink")] == []
