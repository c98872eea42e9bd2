"""Small histories that keep every promise, and where the checker looks away in them."""

from __future__ import annotations

from tests.histories.findings import Reason
from tests.histories.paper import ALL_LOST, COMMITTER_DIED, FINISHED, NONE_VISIBLE, NOT_DECIDED, STILL_OPEN, UNCONFIRMED
from tests.histories.recorder import short
from tests.histories.small import (
    AGAIN,
    DECIDED,
    ENDED,
    ENDED_AND_DELETED,
    HALF,
    INTERLEAVED,
    LEDGER_GONE,
    LEDGER_RECREATED,
    NEW,
    OLD,
    OLD_READ,
    OVERTAKEN,
    REPLAYED,
    ROWS,
    SECOND,
    SECOND_ROWS,
    T0,
    T1,
    T2,
    T3,
    T8,
    T9,
    TASKS,
    TO_TWO,
    WITH_A_DEAD_LETTER,
    WRITTEN,
    began,
    by,
    end,
    fault,
    gave_up,
    handed,
    history,
    intent,
    placed,
    raw,
    read,
    reported,
    started,
    topic,
    verdict,
    without_entry,
    workload,
)

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
    "a task that reports after its topic was created again, whose rows are in the new one": history(
        *OLD[:5], *AGAIN, reported(1, T1, (0, 0, 1, 2), incarnation="old"), verdict("failed"),
        raw({0: 0, 1: 1}, incarnation="old"), raw({0: 2, 1: 3}, incarnation="new"),
        read({}, incarnation="old"), read({}, incarnation="new"),
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
    "dead letters of a run that does not know its decision and that abort has ended, written by the next one": history(
        placed("t", "dead", 1, repeats=True, rows=2), handed(0, 0, 1, attempt="1-a"),
        reported(0, T0, (0, 0, 0, 1), attempt="1-a"), intent("unknown", T0), verdict("failed", UNCONFIRMED, by="sink"),
        gave_up(NONE_VISIBLE), end(T0, "aborted"), handed(0, 0, 1, attempt="1-b"),
        reported(0, T2, (0, 1, 1, 1), attempt="1-b"), intent("asked", T2), intent("decided", T2), end(T2),
        verdict("committed"), raw({0: 0, 1: 0}), read({1: 0}), read({0: 1}, "raw", "read_uncommitted", topic="dead"),
        read({0: 1}, topic="dead"),
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
    "an intent that names one of two attempts of a task, which have both reported": history(
        workload(), *TASKS, handed(0, 0, 1, attempt="b"), reported(0, T2, (0, 4, 5, 2), attempt="b"),
        intent("decided", T2, T1), end(T2), end(T1), end(T0, "aborted"), verdict("committed"),
        raw({**ROWS, 4: 0, 5: 1}), read({2: 2, 3: 3, 4: 0, 5: 1}),
    ),
    "two writes with transactions of their own": history(
        *WRITTEN, verdict("committed"), *SECOND, intent("decided", T8, T9, write="job/2"), end(T8), end(T9),
        verdict("committed", write="job/2"), raw({**ROWS, **SECOND_ROWS}), read({**ROWS, **SECOND_ROWS}),
    ),
    "an intent with an unknown outcome, all of whose transactions are aborted": history(
        workload(), *TASKS, intent("asked", T0, T1), intent("unknown", T0, T1), end(T0, "aborted"), end(T1, "aborted"),
        verdict("failed", UNCONFIRMED), raw(ROWS), read({}),
    ),
    "a topic is created again while a process is stopped, and the job is decided then": history(
        *OLD, fault("begins"), *AGAIN, fault("ends"), *DECIDED, *ENDED, verdict("committed"),
        read({}, incarnation="new"),
    ),
    "a topic is deleted before the intent is asked for, and created again after it": history(
        *OLD, *AGAIN[:1], *DECIDED, AGAIN[1], *ENDED, verdict("committed"), read({}, incarnation="new")
    ),
    "a topic is created again before the intent is asked for, which is refused": history(
        *OLD, *AGAIN, intent("asked", T0, T1), intent("not decided", T0, T1), end(T0, "aborted"), end(T1, "aborted"),
        verdict("failed"), read({}, incarnation="new"),
    ),
    "two attempts whose rows lie between each other, and the committed one is visible": history(
        workload(), *INTERLEAVED, raw({0: 0, 1: 0, 2: 1, 3: 1}), read({1: 0, 3: 1})
    ),
    "an at-least-once attempt whose rows are in order, beside one that has not reported": history(
        workload(exactly_once=False, repeats=True), handed(0, 0, 1), handed(0, 0, 1, attempt="b"),
        reported(0, None, (0, 2, 3, 2), attempt="b"), verdict("committed"), raw({0: 1, 1: 0, 2: 0, 3: 1}),
        read({0: 1, 1: 0, 2: 0, 3: 1}),
    ),
    "an at-least-once attempt whose rows are in order, with those of another one in between": history(
        workload(exactly_once=False, repeats=True), handed(0, 0, 1), handed(0, 0, 1, attempt="b"),
        reported(0, None, (0, 1, 3, 2), attempt="b"), verdict("committed"), raw({0: 0, 1: 0, 2: 0, 3: 1}),
        read({0: 0, 1: 0, 2: 0, 3: 1}),
    ),
    "a decided task, whose driver dies, and whose dead letter is seen": history(
        *OLD[:3], WITH_A_DEAD_LETTER, intent("asked", T0), intent("decided", T0), end(T0), started("2"),
        raw({0: 0}, incarnation="old"), read({0: 0}, incarnation="old"),
        read({0: 1}, "raw", "read_uncommitted", topic="dead", incarnation="its id"),
        read({0: 1}, topic="dead", incarnation="its id"),
    ),
    "a decided task, whose driver dies, and whose topic a read_uncommitted reader has not read": history(
        workload(), handed(0, 0, 1), reported(0, T0, (0, 0, 1, 2)), intent("asked", T0), intent("decided", T0), end(T0),
        started("2"), read(HALF, "raw", "read_uncommitted", passed=1), read(HALF),
    ),
    "a decided task, whose driver dies, and whose dead letters a read_uncommitted reader has not read": history(
        *OLD[:3], WITH_A_DEAD_LETTER, intent("asked", T0), intent("decided", T0), end(T0), started("2"),
        raw({0: 0}, incarnation="old"), read({0: 0}, incarnation="old"),
        read({0: 1}, topic="dead", incarnation="its id"),
    ),
    "a decided task, whose driver dies, and the topic of its dead letter is deleted": history(
        *OLD[:3], WITH_A_DEAD_LETTER, intent("asked", T0), intent("decided", T0), end(T0), started("2"),
        raw({0: 0}, incarnation="old"), read({0: 0}, incarnation="old"), topic("its id", "deleted", "dead"),
    ),
    "rows that are where they belong": history(placed("t"), *WRITTEN[1:], verdict("committed"), raw(ROWS), read(ROWS)),
    "rows and dead letters that are where they belong, in the second batch of a query": history(
        placed("t", "dead", 1, repeats=True, rows=4), handed(0, 4, 5), reported(0, T0, (0, 0, 0, 1)),
        intent("decided", T0), end(T0), raw({0: 4}), read({0: 4}),
        read({0: 5}, "raw", "read_uncommitted", topic="dead"), read({0: 5}, topic="dead"),
    ),
    "an error and an abort that say that no row becomes visible, and none is": history(
        workload(), *TASKS, intent("not decided", T0, T1), end(T0, "aborted"), end(T1, "aborted"),
        verdict("failed", f"{NOT_DECIDED} {NONE_VISIBLE}"), gave_up(NONE_VISIBLE), raw(ROWS), read({}),
    ),
    "an error that says that all rows are lost, and none is visible": history(
        workload(), *TASKS, *DECIDED, verdict("failed", ALL_LOST), raw(ROWS), read({})
    ),
    "an abort that says that no row is visible, before the run that commits": history(
        workload(repeats=True), began(), *by("1-", T0, T1), gave_up(NONE_VISIBLE), end(T0, "aborted"),
        end(T1, "aborted"), began(), *by("1-b", T2, T3, first=4), intent("decided", T2, T3), end(T2), end(T3),
        verdict("committed"), raw({**ROWS, **{offset: offset - 4 for offset in range(4, 8)}}),
        read({offset: offset - 4 for offset in range(4, 8)}),
    ),
    "an abort that says that no more rows become visible": history(
        *WRITTEN, verdict("failed", STILL_OPEN), gave_up("write aborted; no more of its rows become visible: 1"),
        raw(ROWS), read(ROWS),
    ),
    "an error that was cut, so that nobody knows what it said": history(
        *WRITTEN, verdict("failed", short(f"{40_000 * 'at x '}{STILL_OPEN}{40_000 * ' at x'}")), raw(ROWS), read(ROWS)
    ),
    "the sink took as many rows as Spark had, some of them twice": history(
        workload(rows=4), handed(0, 0, 1, attempt="b"), *WRITTEN[1:], verdict("committed"), raw(ROWS), read(ROWS)
    ),
    "a failed verdict of an at-least-once write": history(
        workload(exactly_once=False), handed(0, 0, 1), without_entry("failed"), raw(HALF), read(HALF)
    ),
    "a failed verdict of a stream of which no task has reported": history(
        workload(repeats=True), *TASKS, *DECIDED, *ENDED, without_entry("failed"), raw(ROWS), read(ROWS)
    ),
    "a reader that reads some rows again": history(
        *WRITTEN, verdict("committed"), raw(ROWS), read(HALF, "live", passed=2), read(ROWS, "live"), read(ROWS)
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
    "dead letters of a run that does not know its decision and that abort has ended, written by the next one": {
        Reason.OTHER_RUN: 1,
        Reason.NO_RECEIPTS: 1,
    },
    "a task that reports after its topic was created again, whose rows are in the new one": {Reason.TOPIC_REPLACED: 1},
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
    "rows twice at least once": {Reason.AT_LEAST_ONCE: 2, Reason.NO_AUTHOR: 2},
    "an open transaction that hides a task": {Reason.TOLD_DECIDED: 1, Reason.NOT_READ: 1},
    "an intent of a task that has not reported": {Reason.NAMELESS: 1},
    "a topic is created again while a process is stopped, and the job is decided then": {
        Reason.STOPPED_BEFORE_THE_INTENT: 1,
        Reason.TOPIC_DELETED: 4,
        Reason.NOT_READ: 3,
    },
    "a topic is deleted before the intent is asked for, and created again after it": {
        Reason.TOPIC_DELETED: 4,
        Reason.NOT_READ: 3,
    },
    "a topic is created again before the intent is asked for, which is refused": {
        Reason.NOT_READ: 2,
    },
    "two attempts whose rows lie between each other, and the committed one is visible": {Reason.SEVERAL_ATTEMPTS: 2},
    "an at-least-once attempt whose rows are in order, beside one that has not reported": {
        Reason.AT_LEAST_ONCE: 2,
        Reason.NO_AUTHOR: 2,
    },
    "an at-least-once attempt whose rows are in order, with those of another one in between": {
        Reason.AT_LEAST_ONCE: 1,
        Reason.NO_AUTHOR: 4,
        Reason.SEVERAL_ATTEMPTS: 1,
    },
    "a decided task, whose driver dies, and whose dead letter is seen": {Reason.NO_RECEIPTS: 1},
    "a decided task, whose driver dies, and whose topic a read_uncommitted reader has not read": {Reason.NOT_READ: 1},
    "a decided task, whose driver dies, and whose dead letters a read_uncommitted reader has not read": {
        Reason.NO_RECEIPTS: 1,
        Reason.NOT_READ: 1,
        Reason.NOT_COMPARED: 1,
    },
    "a decided task, whose driver dies, and the topic of its dead letter is deleted": {Reason.TOPIC_DELETED: 1},
    "rows and dead letters that are where they belong, in the second batch of a query": {Reason.NO_RECEIPTS: 1},
    "an error that says that all rows are lost, and none is visible": {Reason.DECIDED_AND_LOST: 1},
    "an abort that says that no row is visible, before the run that commits": {Reason.OTHER_RUN: 1},
    "an abort that says that no more rows become visible": {Reason.TOLD_DECIDED: 1},
    "an error that was cut, so that nobody knows what it said": {Reason.TEXT_CUT: 1},
    "a failed verdict of an at-least-once write": {Reason.NO_AUTHOR: 2},
    "a failed verdict of a stream of which no task has reported": {Reason.NAMELESS: 1},
}
