"""Small histories with a fault each."""

from __future__ import annotations

from tests.histories.findings import Kind
from tests.histories.paper import ALL_LOST, FINISHED, NONE_VISIBLE, NOT_DECIDED, STILL_OPEN, UNCONFIRMED, WORKER_DIED
from tests.histories.small import (
    AGAIN,
    DECIDED,
    ENDED,
    ENDED_AND_DELETED,
    HALF,
    INTERLEAVED,
    NEW,
    OLD,
    OLD_READ,
    OTHERS_FINISHED,
    PLANNER_DIED,
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
    to_topic,
    topic,
    verdict,
    workload,
)

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
    "an intent leaves out a task, and its driver dies": (
        Kind.LEFT_OUT,
        history(workload(), *TASKS, intent("asked", T0), intent("decided", T0), end(T0), end(T1, "aborted"),
                started("2"), raw(ROWS), read(HALF)),
    ),
    "an intent leaves out a task, and nobody knows whether it is decided": (
        Kind.LEFT_OUT,
        history(workload(), *TASKS, intent("asked", T0), intent("unknown", T0), end(T0), end(T1, "aborted"),
                verdict("failed", UNCONFIRMED), raw(ROWS), read(HALF)),
    ),
    "an intent names a transaction of another write, which is never decided": (
        Kind.SHARED_TRANSACTION,
        history(workload(), *TASKS, *SECOND, intent("asked", T0, T1, T9), intent("decided", T0, T1, T9), *ENDED,
                end(T9), end(T8, "aborted"), verdict("committed"), started("2"), raw({**ROWS, **SECOND_ROWS}),
                read({**ROWS, 4: "job/2/0", 5: "job/2/1"})),
    ),
    "two writes report one transaction, and only one of them is decided": (
        Kind.SHARED_TRANSACTION,
        history(*WRITTEN, verdict("committed"), handed(0, 0, 1, write="job/2", attempt="b"),
                reported(0, T0, (0, 4, 5, 2), write="job/2", attempt="b"), started("2"),
                raw({**ROWS, 4: "job/2/0", 5: "job/2/1"}), read({**ROWS, 4: "job/2/0", 5: "job/2/1"})),
    ),
    "two attempts report one transaction": (
        Kind.SHARED_TRANSACTION,
        history(workload(), *TASKS, handed(0, 0, 1, attempt="b"), reported(0, T0, (0, 0, 1, 2), attempt="b"), *DECIDED,
                *ENDED, verdict("committed"), raw(ROWS), read(ROWS)),
    ),
    "of an intent with an unknown outcome, one transaction is committed and another aborted": (
        Kind.DECIDED_BUT_ABORTED,
        history(workload(), *TASKS, intent("asked", T0, T1), intent("unknown", T0, T1), end(T0), end(T1, "aborted"),
                verdict("failed", UNCONFIRMED), raw(ROWS), read(HALF)),
    ),
    "a transaction of an intent is committed, and the next driver aborts another one": (
        Kind.DECIDED_BUT_ABORTED,
        history(workload(), *TASKS, intent("asked", T0, T1), end(T0), started("2"), end(T1, "aborted"), raw(ROWS),
                read(HALF)),
    ),
    "a task that is decided names the old topic, and its rows are in the new one": (
        Kind.RECEIPT_CONTRADICTED,
        history(*OLD[:5], *AGAIN, reported(1, T1, (0, 0, 1, 2), incarnation="old"), *DECIDED, *ENDED,
                raw({0: 0, 1: 1}, incarnation="old"), raw({0: 2, 1: 3}, incarnation="new"),
                read({0: 2, 1: 3}, incarnation="new")),
    ),
    "a topic is created again before the intent is asked for, which is decided": (
        Kind.WITHOUT_ITS_TOPIC,
        history(*OLD, *AGAIN, *DECIDED, *ENDED, verdict("committed"), read({}, incarnation="new")),
    ),
    "a topic is created again while another workload meets with a fault, and the job is decided": (
        Kind.WITHOUT_ITS_TOPIC,
        history(*OLD, fault("begins", "another"), *AGAIN, *DECIDED, *ENDED, verdict("committed"),
                read({}, incarnation="new")),
    ),
    "a fault ends before the topic is deleted, and the job is decided": (
        Kind.WITHOUT_ITS_TOPIC,
        history(*OLD, fault("begins"), fault("ends"), *AGAIN, *DECIDED, *ENDED, verdict("committed"),
                read({}, incarnation="new")),
    ),
    "a task reports rows in the topic that was there before, while a process is stopped": (
        Kind.WITHOUT_ITS_TOPIC,
        history(*OLD[:-1], fault("begins"), *AGAIN, OLD[-1], fault("ends"), *DECIDED, *ENDED, verdict("committed"),
                read({}, incarnation="new")),
    ),
    "the topic of dead letters is created again before the intent is asked for": (
        Kind.WITHOUT_ITS_TOPIC,
        history(*OLD[:3], WITH_A_DEAD_LETTER, topic("its id", "deleted", "dead"), topic("another", "created", "dead"),
                intent("asked", T0), intent("decided", T0), end(T0), verdict("committed"),
                read({0: 0}, incarnation="old")),
    ),
    "a row of an aborted attempt is visible instead of one that EndTxn committed": (
        Kind.COMMITTED_BUT_INVISIBLE,
        history(workload(), *INTERLEAVED, raw({0: 0, 1: 0, 2: 1, 3: 1}), read({1: 0, 2: 1})),
    ),
    "rows of an at-least-once write are out of order": (
        Kind.OUT_OF_ORDER,
        history(workload(exactly_once=False, repeats=True), handed(0, 0, 1, 2), reported(0, None, (0, 0, 2, 3)),
                verdict("committed"), raw({0: 2, 1: 1, 2: 0}), read({0: 2, 1: 1, 2: 0})),
    ),
    "an aborted attempt's row is visible instead of the committed one, and no EndTxn is in the history": (
        Kind.PARTLY_VISIBLE,
        history(workload(), *(each for each in INTERLEAVED if each["kind"] != "end"), raw({0: 0, 1: 0, 2: 1, 3: 1}),
                read({1: 0, 2: 1})),
    ),
    "a task drops a row, and its driver dies": (
        Kind.LOST,
        history(workload(), handed(0, 0, 1), reported(0, T0, (0, 0, 0, 1)), intent("asked", T0), intent("decided", T0),
                end(T0), started("2"), raw({0: 0}), read({0: 0})),
    ),
    "a task drops a row, and the job is told that it is decided": (
        Kind.LOST,
        history(workload(), handed(0, 0, 1), reported(0, T0, (0, 0, 0, 1)), intent("asked", T0), intent("decided", T0),
                end(T0), verdict("failed", STILL_OPEN), raw({0: 0}), read({0: 0})),
    ),
    "a task drops a row that an attempt before it wrote, which was aborted": (
        Kind.LOST,
        history(workload(), handed(0, 0, 1), handed(0, 0, 1, attempt="b"), reported(0, T2, (0, 2, 2, 1), attempt="b"),
                intent("asked", T2), intent("decided", T2), end(T2), started("2"), raw({0: 0, 1: 1, 2: 0}),
                read({2: 0})),
    ),
    "a task drops a row that an aborted attempt wrote between its own": (
        Kind.LOST,
        history(workload(), handed(0, 0, 1, 2), handed(0, 0, 1, 2, attempt="b"),
                reported(0, T2, (0, 0, 2, 2), attempt="b"), intent("asked", T2), intent("decided", T2), end(T2),
                started("2"), raw({0: 0, 1: 1, 2: 2}), read({0: 0, 2: 2})),
    ),
    "a task drops a row that should have been a dead letter": (
        Kind.LOST,
        history(*OLD[:3], WITH_A_DEAD_LETTER, intent("asked", T0), intent("decided", T0), end(T0), started("2"),
                raw({0: 0}, incarnation="old"), read({0: 0}, incarnation="old")),
    ),
    "a task drops a row, and the topic of its other rows is deleted": (
        Kind.LOST,
        history(*OLD[:2], handed(0, 0, 1, 2), TO_TWO, intent("asked", T0), intent("decided", T0), end(T0),
                raw({0: 0}, incarnation="old"),
                read({0: 1}, "raw", "read_uncommitted", topic="u", incarnation="its id"), *AGAIN,
                started("2"), read({0: 1}, topic="u", incarnation="its id")),
    ),
    "a task writes nothing at all": (
        Kind.LOST,
        history(workload(), handed(0, 0, 1), reported(0, T0), intent("asked", T0), intent("decided", T0), end(T0),
                started("2"), raw({}), read({})),
    ),
    "all rows of a job are in the topic of another one": (
        Kind.MISPLACED,
        history(placed("t"), *(to_topic(each, "nightly") for each in TASKS), *DECIDED, *ENDED, verdict("committed"),
                read(ROWS, "raw", "read_uncommitted", topic="nightly"), read(ROWS, topic="nightly")),
    ),
    "a row that is due in its topic is a dead letter": (
        Kind.MISPLACED,
        history(placed("t", "dead", 1), handed(0, 0, 1), reported(0, T0), intent("decided", T0), end(T0),
                verdict("committed"), read(HALF, "raw", "read_uncommitted", topic="dead"), read(HALF, topic="dead")),
    ),
    "a dead letter is in the topic of the rows": (
        Kind.MISPLACED,
        history(placed("t", "dead", 1), handed(0, 0, 1), reported(0, T0, (0, 0, 1, 2)), intent("decided", T0), end(T0),
                verdict("committed"), raw(HALF), read(HALF)),
    ),
    "a row is a dead letter, and the write has none": (
        Kind.MISPLACED,
        history(placed("t"), handed(0, 0, 1), reported(0, T0, (0, 0, 0, 1)), intent("decided", T0), end(T0),
                verdict("committed"), raw({0: 0}), read({0: 0}), read({0: 1}, "raw", "read_uncommitted", topic="dead"),
                read({0: 1}, topic="dead")),
    ),
    "an aborted row was written to another topic": (
        Kind.MISPLACED,
        history(placed("t"), *(to_topic(each, "u") for each in TASKS), end(T0, "aborted"), end(T1, "aborted"),
                verdict("failed"), read(ROWS, "raw", "read_uncommitted", topic="u"), read({}, topic="u")),
    ),
    "an error says that no row becomes visible, and the abort that was added to it says that the job is decided": (
        Kind.FAILED_BUT_VISIBLE,
        history(*WRITTEN, verdict("failed", f"{NOT_DECIDED} {FINISHED}"), raw(ROWS), read(ROWS)),
    ),
    "an error says that no row becomes visible, and a line of abort in the log says that the job is decided": (
        Kind.FAILED_BUT_VISIBLE,
        history(*WRITTEN, verdict("failed", NOT_DECIDED), gave_up(FINISHED), raw(ROWS), read(ROWS)),
    ),
    "an error says that no row is visible, and a connection of Python was lost": (
        Kind.FAILED_BUT_VISIBLE,
        history(*WRITTEN, verdict("failed", f"{NOT_DECIDED} Answer from Java side is empty"), raw(ROWS), read(ROWS)),
    ),
    "an error says that all rows are lost, and they are visible": (
        Kind.FAILED_BUT_VISIBLE, history(*WRITTEN, verdict("failed", ALL_LOST), raw(ROWS), read(ROWS)),
    ),
    "an error says that all rows are lost, and a part of them is visible": (
        Kind.PARTLY_VISIBLE, history(workload(), *TASKS, *DECIDED, end(T0), verdict("failed", ALL_LOST), raw(ROWS),
                                     read(HALF)),
    ),
    "the sink knew that the job is decided, and the error that the job got does not say so": (
        Kind.FAILED_BUT_VISIBLE,
        history(*WRITTEN, verdict("failed", STILL_OPEN, by="sink"), verdict("failed", "Job aborted."), raw(ROWS),
                read(ROWS)),
    ),
    "abort says that no row is visible, and nobody was told anything else": (
        Kind.FAILED_BUT_VISIBLE,
        history(workload(repeats=True), *TASKS, *DECIDED, *ENDED, gave_up(NONE_VISIBLE), raw(ROWS), read(ROWS)),
    ),
    "abort says that no row is visible, after an error that does not know it": (
        Kind.FAILED_BUT_VISIBLE,
        history(*WRITTEN, verdict("failed", UNCONFIRMED), gave_up(NONE_VISIBLE), raw(ROWS), read(ROWS)),
    ),
    "the sink took more rows than Spark had": (
        Kind.FOREIGN_ROW, history(workload(rows=3), *WRITTEN[1:], verdict("committed"), raw(ROWS), read(ROWS)),
    ),
    "a reader sees two rows at one offset": (
        Kind.READERS_DISAGREE,
        history(*WRITTEN, verdict("committed"), raw(ROWS), read({0: 3}, "live", passed=0), read(ROWS, "live"),
                read(ROWS)),
    ),
    "a reader sees a row where it had passed none": (
        Kind.READERS_DISAGREE,
        history(*WRITTEN, verdict("committed"), raw(ROWS), read(HALF, "live", passed=4), read({2: 2, 3: 3}, "live"),
                read(ROWS)),
    ),
    "a task drops a dead letter, and a reader had not read the topic of dead letters before it was deleted": (
        Kind.LOST,
        history(*OLD[:3], WITH_A_DEAD_LETTER, read({}, topic="dead", incarnation="before it"), intent("asked", T0),
                intent("decided", T0), end(T0), started("2"), raw({0: 0}, incarnation="old"),
                read({0: 0}, incarnation="old")),
    ),
}  # fmt: skip
