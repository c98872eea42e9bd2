"""The sink where Spark is not one process: a standalone cluster, Spark Connect."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.cluster import StandaloneCluster

pytestmark = pytest.mark.jvm

ROOT = Path(__file__).parents[2]
ROWS = 10_000
EVERY_ROW = {str(number).encode(): 1 for number in range(ROWS)}


def run_job(master, topic, *settings, path=(ROOT,)):
    """Exit code and output of ``job.py`` in a process of its own, with ``path`` as its PYTHONPATH."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/spark/job.py"), master, topic.servers, topic.name, str(ROWS), *settings],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with StandaloneCluster(tmp_path_factory.mktemp("cluster"), workers=2) as cluster:
        yield cluster


def test_a_standalone_cluster_writes_every_row_and_says_so_in_the_drivers_log(cluster, topic):
    code, output = run_job(cluster.url, topic, "spark.executor.memory=512m", "spark.ui.enabled=false")
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
    code, output = run_job(cluster.url, topic, *settings, path=(tmp_path, ROOT))
    assert code != 0
    assert "ModuleNotFoundError" in output
    assert "spark_kafka_sink" in output
    assert topic.values() == {}


def test_spark_connect_writes_every_row(topic):
    code, output = run_job("connect", topic)
    assert code == 0, output
    assert topic.values() == EVERY_ROW
