"""``write_kafka`` while its workers, executors and the caller are killed; confluent-kafka finds every row once."""

import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.exactly_once.reader import read_committed
from tests.faults.exactly_once.supervised import SupervisedBatch
from tests.faults.support.kill_points import PYTHON_PATH
from tests.spark.cluster import StandaloneCluster

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 20_000
EACH_ONCE = Counter(str(number).encode() for number in range(ROWS))
_END_S = 200


@pytest.fixture
def job(query, fault, tmp_path):
    """A write of ``ROWS`` rows in eight tasks, repeated until it ends well; ``query`` has the topic."""
    options = {
        "rows": ROWS, "columns": ["cast(id as string) value"], "write_kafka": True,
        "deliveryGuarantee": "exactly-once", "txnAppId": query.topic, "txnVersion": 1,
    }  # fmt: skip
    job = SupervisedBatch(query.servers, query.topic, tmp_path, fault, options)
    yield job
    fault.disarm()
    job.end()


def committed(job) -> Counter:
    """How often each value is there; fails while a transaction is open."""
    return Counter(value for values in read_committed(job.servers, job.topic).values() for value in values)


@pytest.mark.parametrize("point", ["task initialised", "task in mid-write", "task prepared"])
def test_a_worker_that_is_killed_is_replaced_by_spark(job, fault, point):
    fault.arm(point, task=3)
    job.run_until(lambda: False, _END_S)
    assert fault.happened
    assert job.starts == 1
    assert committed(job) == EACH_ONCE


@pytest.mark.parametrize("point", ["planned", "before the intent", "intent committed", "between EndTxns", "committed"])
def test_a_caller_that_is_killed_is_followed_by_one_that_knows(job, fault, point):
    fault.arm(point)
    job.run_until(lambda: False, _END_S)
    assert fault.happened
    assert job.starts == 2
    assert committed(job) == EACH_ONCE


def test_a_caller_that_is_killed_with_tasks_at_work_leaves_transactions_that_the_next_one_aborts(job, fault):
    fault.arm("task in mid-write", "stop", task=5)
    job.run_until(lambda: fault.happened, _END_S)
    job.kill_driver()
    fault.wake()
    job.run_until(lambda: False, _END_S)
    assert job.starts == 2
    assert committed(job) == EACH_ONCE


@pytest.mark.parametrize("shuffled", [False, True], ids=["its task", "its task and the stage"])
def test_what_a_killed_executor_had_is_run_again_by_spark(job, fault, tmp_path, monkeypatch, shuffled):
    """The prepared task's worker wakes when its successor has been at work, if its executor did not take it along. With
    a shuffle, rows of tasks that have not begun are lost, too, so Spark runs the stage again.
    """
    monkeypatch.setenv("PYTHONPATH", PYTHON_PATH)
    if shuffled:
        (tmp_path / "events").mkdir()
        job.options["shuffled_into"] = (tmp_path / "events").as_uri()
    with StandaloneCluster(tmp_path, workers=2) as cluster:
        job.options["master"] = cluster.url
        fault.arm("task prepared", "stop", task=3)
        job.run_until(lambda: fault.happened, _END_S)
        os.kill(executor_of(fault.wait()), signal.SIGKILL)
        job.run_until(lambda: cluster.executors() > 2, _END_S)
        with suppress(ProcessLookupError):
            fault.wake()
        job.run_until(lambda: False, _END_S)
    assert job.starts == 1
    assert committed(job) == EACH_ONCE
    if shuffled:
        events = "".join(path.read_text() for path in (tmp_path / "events").rglob("*") if path.is_file())
        assert '"Stage Attempt ID":1' in events


def executor_of(pid: int) -> int:
    """The executor above a Python worker."""
    while "CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_text():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        assert pid > 1, "the worker has no executor"
    return pid
