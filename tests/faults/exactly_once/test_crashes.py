"""The crash matrix on a real Kafka: real processes, killed by -9 at named points.

Six of the kills run before a merge, all of them in ``make test-faults``.
"""

import time

import pytest

from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.values import TaskAction
from tests.faults.exactly_once.processes import KilledError

pytestmark = pytest.mark.jvm
slow = pytest.mark.slow

ROWS = [[b"a", b"b"], [b"c", b"d"]]
EACH_ONCE = {b"a": 1, b"b": 1, b"c": 1, b"d": 1}
MORE = [[b"e"], [b"f"]]


@pytest.mark.parametrize("point", [pytest.param("task in mid-write", marks=slow), "task prepared"])
def test_a_task_that_is_killed_is_run_again(query, point):
    plan = query.plan()
    query.fault.arm(point, task=1)
    reports = query.tasks(plan, 0, ROWS)
    assert [report is None for report in reports] == [False, True]
    again = query.start_task(plan, 0, 1, ROWS[1]).result()
    query.start_commit([reports[0], again]).result()
    assert query.committed() == EACH_ONCE


@slow
def test_a_batch_whose_task_is_killed_for_good_leaves_nothing_open(query):
    query.run(0, ROWS)
    query.fault.arm("task prepared", task=1)
    reports = query.tasks(query.plan(), 1, MORE)
    assert query.abort(reports).aborted == 2
    assert query.committed() == EACH_ONCE


@pytest.mark.parametrize(
    "point",
    [
        *(pytest.param(point, marks=slow) for point in ("before the intent", "intent in the log")),
        "intent committed",
        *(pytest.param(point, marks=slow) for point in ("before done", "committed")),
    ],
)
def test_an_abort_beside_a_stopped_commit_tells_and_does_the_same(query, point):
    """Whatever the abort finds, the commit that wakes afterwards changes nothing of it."""
    query.run(0, ROWS)
    reports = query.tasks(query.plan(), 1, MORE)
    query.fault.arm(point, "stop")
    commit = query.start_commit(reports)
    query.fault.wait(commit)
    outcome = query.abort(reports)
    query.fault.wake()
    decided = point in ("intent committed", "before done", "committed")
    assert (bool(outcome.decided), outcome.aborted) == ((True, 0) if decided else (False, 2))
    if decided:
        commit.result()
    else:
        with pytest.raises(ExactlyOnceError, match="Another driver has fenced"):
            commit.result()
    expected = {**EACH_ONCE, b"e": 1, b"f": 1} if decided else EACH_ONCE
    assert query.committed() == expected


@pytest.mark.parametrize(
    ("point", "decided"),
    [
        pytest.param("before the intent", False, marks=slow),
        ("intent in the log", False),
        pytest.param("intent committed", True, marks=slow),
        ("between EndTxns", True),
        pytest.param("before done", True, marks=slow),
        pytest.param("committed", True, marks=slow),
    ],
)
def test_a_driver_that_is_killed_in_commit_is_followed_by_one_that_knows(query, point, decided):
    reports = query.tasks(query.plan(), 0, ROWS)
    query.fault.arm(point)
    with pytest.raises(KilledError):
        query.start_commit(reports).result()
    again = query.tasks(query.plan(), 0, ROWS)
    assert {report.action for report in again} == {TaskAction.SKIP if decided else TaskAction.WRITE}
    query.start_commit(again).result()
    query.run(1, MORE)
    assert query.committed() == {**EACH_ONCE, b"e": 1, b"f": 1}


@slow
def test_an_abort_that_is_killed_is_finished_by_the_next_run(query):
    reports = query.tasks(query.plan(), 0, ROWS)
    query.fault.arm("abort fenced")
    with pytest.raises(KilledError):
        query.abort(reports)
    query.run(0, ROWS)
    assert query.committed() == EACH_ONCE


@slow
def test_planning_that_is_killed_is_nothing(query):
    query.fault.arm("planned")
    with pytest.raises(KilledError):
        query.plan()
    query.run(0, ROWS)
    assert query.committed() == EACH_ONCE


@slow
def test_a_zombie_driver_that_wakes_after_its_successor_started_decides_nothing(query):
    reports = query.tasks(query.plan(), 0, ROWS)
    query.fault.arm("before the intent", "stop")
    zombie = query.start_commit(reports)
    query.fault.wait()
    again = query.tasks(query.plan(), 0, ROWS)
    query.fault.wake()
    with pytest.raises(ExactlyOnceError, match="Another driver has fenced"):
        zombie.result()
    query.start_commit(again).result()
    assert query.committed() == EACH_ONCE


def test_a_zombie_driver_that_wakes_with_its_intent_recorded_finishes_what_its_successor_finished(query):
    reports = query.tasks(query.plan(), 0, ROWS)
    query.fault.arm("intent committed", "stop")
    zombie = query.start_commit(reports)
    query.fault.wait()
    query.run(0, ROWS)
    query.fault.wake()
    assert "Another driver has fenced" in zombie.result().cleanup_failure
    query.run(1, MORE)
    assert query.committed() == {**EACH_ONCE, b"e": 1, b"f": 1}


def test_a_zombie_task_that_wakes_after_its_successor_finished_is_fenced(query):
    plan = query.plan()
    query.fault.arm("task initialised", "stop", task=1)
    zombie = query.start_task(plan, 0, 1, ROWS[1])
    query.fault.wait()
    reports = query.tasks(plan, 0, ROWS)
    query.fault.wake()
    with pytest.raises(Exception, match=r"(?i)fenced|producer_epoch"):
        zombie.result()
    query.start_commit(reports).result()
    assert query.committed() == EACH_ONCE


@slow
def test_a_task_that_starts_late_and_takes_a_prepared_id_keeps_the_batch_from_being_decided(query):
    plan = query.plan()
    reports = query.tasks(plan, 0, ROWS)
    query.fault.arm("task initialised", task=1)
    with pytest.raises(KilledError):
        query.start_task(plan, 0, 1, ROWS[1]).result()
    with pytest.raises(ExactlyOnceError, match="not committed: the transactions of task 1 are gone"):
        query.start_commit(reports).result()
    query.run(0, ROWS)
    assert query.committed() == EACH_ONCE


@slow
def test_transactions_that_time_out_after_the_intent_are_written_by_the_replay(query):
    query.timeout_ms = 15_000
    reports = query.tasks(query.plan(), 0, ROWS)
    query.fault.arm("intent committed")
    with pytest.raises(KilledError):
        query.start_commit(reports).result()
    time.sleep(query.timeout_ms / 1000 + 1.5)  # until the broker has ended them
    query.timeout_ms = 60_000
    again = query.tasks(query.plan(), 0, [[b"d"], [b"c", b"b"], [b"a"]])  # nothing is left that would have to fit
    assert {report.action for report in again} == {TaskAction.WRITE}
    query.start_commit(again).result()
    assert query.committed() == EACH_ONCE


@slow
def test_what_more_tasks_left_open_holds_nobody_up(query):
    """The tasks of the run that follows take over the ids of as many of them; the others only a sweep ends."""
    query.timeout_ms = 600_000
    query.run(0, ROWS)
    reports = query.tasks(query.plan(), 1, [*MORE, [b"g"], [b"h"]])
    query.fault.arm("before the intent")
    with pytest.raises(KilledError):
        query.start_commit(reports).result()
    query.run(1, MORE)
    assert query.committed() == {**EACH_ONCE, b"e": 1, b"f": 1}
