"""The sink where Spark is not one process: a standalone cluster, Spark Connect."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyspark
import pytest

from tests.faults.exactly_once.reader import read_committed
from tests.spark.cluster import StandaloneCluster
from tests.support.child_processes import PYTHON_PATH

pytestmark = pytest.mark.jvm

ROOT = Path(__file__).parents[2]
ROWS = 10_000
EVERY_ROW = {str(number).encode(): 1 for number in range(ROWS)}


def run_job(script, *arguments, path=(PYTHON_PATH,)):
    """Exit code and output of a script of this folder in a process of its own, with ``path`` as its PYTHONPATH."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/spark" / script), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with StandaloneCluster(tmp_path_factory.mktemp("cluster"), workers=2) as cluster:
        yield cluster


def test_a_standalone_cluster_writes_every_row_and_says_so_in_the_drivers_log(cluster, topic):
    settings = ("spark.executor.memory=512m", "spark.ui.enabled=false")
    code, output = run_job("job.py", cluster.url, topic.servers, topic.name, ROWS, *settings)
    assert code == 0, output
    assert topic.values() == EVERY_ROW
    assert f"INFO pykafka: {ROWS} rows (" in output
    assert "by 4 tasks" in output
    assert cluster.executors() == 2


HIDE_THE_PACKAGE = """
import os, sys
if "WITHOUT_THE_PACKAGE" in os.environ:
    sys.modules["spark_kafka_sink"] = None
"""


@pytest.mark.slow
def test_an_executor_without_the_package_names_it(cluster, topic, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(HIDE_THE_PACKAGE)
    settings = ("spark.executor.memory=512m", "spark.executorEnv.WITHOUT_THE_PACKAGE=1", "spark.task.maxFailures=1")
    job = ("job.py", cluster.url, topic.servers, topic.name, ROWS, *settings)
    code, output = run_job(*job, path=(tmp_path, PYTHON_PATH))
    assert code != 0
    assert "ModuleNotFoundError" in output
    assert "spark_kafka_sink" in output
    assert topic.values() == {}


@pytest.fixture(scope="module")
def connected(local_kafka, tmp_path_factory):
    """How often ``connect_job.py`` wrote each value, and its output."""
    local_kafka.create_topic("connected", 4)
    servers = local_kafka.bootstrap_servers
    folder = tmp_path_factory.mktemp("connected")
    code, output = run_job("connect_job.py", servers, "connected", ROWS, folder)
    assert code == 0, output
    values = Counter(value for values in read_committed(servers, "connected").values() for value in values)
    return values, output


@pytest.mark.slow
def test_spark_connect_writes_every_row(connected):
    values, _ = connected
    assert {value: count for value, count in values.items() if value.isdigit()} == EVERY_ROW


@pytest.mark.slow
@pytest.mark.skipif(pyspark.__version__.startswith("4.0."), reason="sessions can be cloned since Spark 4.1")
def test_a_cloned_session_writes(connected):
    values, _ = connected
    assert values[b"of a clone"] == 1


@pytest.mark.slow
def test_a_micro_batch_that_spark_connect_repeats_is_not_written_again(connected):
    values, _ = connected
    assert {value: count for value, count in values.items() if value.startswith(b"stream")} == {
        b"stream " + value: 1 for value in EVERY_ROW
    }


@pytest.mark.slow
def test_a_write_of_a_micro_batch_without_its_number_is_refused_through_spark_connect(connected):
    _, output = connected
    _, _, refusal = output.partition("REFUSED: ")
    assert "An exactly-once batch write needs txnAppId, a name" in refusal


@pytest.mark.slow
def test_write_kafka_and_kafka_batches_through_spark_connect_write_each_row_once(connected):
    values, output = connected
    written = {value: count for value, count in values.items() if value.startswith(b"function ")}
    by_call = {b"function %d" % number: 1 for number in range(10)}
    assert written == by_call | {b"function stream " + value: 1 for value in EVERY_ROW}
    first, second = [line for line in output.splitlines() if line.startswith("RESULT: ")]
    assert "10 rows" in first
    assert "before" in second


@pytest.mark.slow
def test_an_interrupted_write_kafka_through_spark_connect_aborts_and_keeps_the_callers_tags(connected):
    _, output = connected
    (line,) = [line for line in output.splitlines() if line.startswith("INTERRUPTED: ")]
    assert "abort" in line
    assert line.endswith("{'of the caller'}")
