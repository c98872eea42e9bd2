"""The sink where Spark is not one process: a standalone cluster, Spark Connect."""

import os
import sys
from collections import Counter
from pathlib import Path

import pyspark
import pytest

from tests.faults.exactly_once.reader import read_committed
from tests.spark.cluster import StandaloneCluster
from tests.support.child_processes import PYTHON_PATH, finished

pytestmark = pytest.mark.jvm

ROOT = Path(__file__).parents[2]
ROWS = 10_000
EVERY_ROW = {str(number).encode(): 1 for number in range(ROWS)}


def run_job(script, *arguments, path=(PYTHON_PATH,)):
    """Exit code and output of a script of this folder in a process of its own, with ``path`` as its PYTHONPATH."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    return finished([sys.executable, ROOT / "tests/spark" / script, *arguments], 280, env=environment)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with StandaloneCluster(tmp_path_factory.mktemp("cluster"), workers=2) as cluster:
        yield cluster


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


@pytest.mark.slow
def test_through_spark_connect_each_row_is_written_once(local_kafka, tmp_path):
    """Also of a cloned session, of a micro-batch that is repeated, and by ``write_kafka`` and ``kafka_batches``."""
    local_kafka.create_topic("connected", 4)
    servers = local_kafka.bootstrap_servers
    code, output = run_job("connect_job.py", servers, "connected", ROWS, tmp_path)
    assert code == 0, output
    written = Counter(value for values in read_committed(servers, "connected").values() for value in values)
    expected = EVERY_ROW | {b"function %d" % number: 1 for number in range(10)}
    expected |= {kind + value: 1 for value in EVERY_ROW for kind in (b"stream ", b"function stream ")}
    if not pyspark.__version__.startswith("4.0."):  # sessions can be cloned since Spark 4.1
        expected[b"of a clone"] = 1
    assert written == expected
    assert "An exactly-once batch write needs txnAppId, a name" in output.partition("REFUSED: ")[2]
    first, second = [line for line in output.splitlines() if line.startswith("RESULT: ")]
    assert "10 rows" in first
    assert "before" in second
    (interrupted,) = [line for line in output.splitlines() if line.startswith("INTERRUPTED: ")]
    assert "abort" in interrupted
    assert interrupted.endswith("{'of the caller'}")
