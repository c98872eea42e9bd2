"""examples/deploy/report.py and what ``spark-kafka-sink selftest`` prints before Spark starts."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.repository.files import ROOT
from tests.support.child_processes import PYTHON_PATH

SCRIPT = ROOT / "examples/deploy/report.py"
# Spark's own installations and images have PySpark's files, but not the metadata of a package.
ONLY_THE_FILES = """
from importlib import metadata
version = metadata.version
def version_of_others(name):
    if name == "pyspark":
        raise metadata.PackageNotFoundError(name)
    return version(name)
metadata.version = version_of_others
"""


def run(tmp_path, *arguments):
    """Without a Java, so that Spark does not start."""
    (tmp_path / "sitecustomize.py").write_text(ONLY_THE_FILES)
    path = os.pathsep.join((str(tmp_path), PYTHON_PATH))
    environment = {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path), "PYTHONPATH": path}
    command = [sys.executable, *arguments, "--master", "local[1]"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=80, check=False)


def test_incident_selftest_failed_where_pyspark_has_no_metadata(kafka_test_broker, tmp_path):
    command = ("-m", "spark_kafka_sink.tools.cli.main", "selftest")
    done = run(tmp_path, *command, "--bootstrap-server", kafka_test_broker.bootstrap_servers)
    assert ", pyspark " in done.stdout, done.stderr
    assert "JAVA_GATEWAY_EXITED" in done.stderr


def test_a_report_has_the_steps_of_the_check_even_if_spark_does_not_start(kafka_test_broker, tmp_path):
    done = run(tmp_path, SCRIPT, "--bootstrap-server", kafka_test_broker.bootstrap_servers)
    assert done.returncode == 2, done.stderr
    head, rule, versions, *rows = done.stdout.splitlines()
    assert (head, rule) == ("| | |", "|---|---|")
    assert "spark-kafka-sink 0." in versions
    assert {"| check: TCP | ok |", "| check: rights | ok, untested |", "| check: commit | ok |"} < set(rows)
    assert rows[-1] == "| selftest | could not run |"
    assert "127.0.0.1" in done.stderr
    assert "127.0.0.1" not in done.stdout


def test_a_report_without_a_broker_says_at_which_step_the_check_failed(tmp_path):
    done = run(tmp_path, SCRIPT, "--bootstrap-server", "127.0.0.1:1", "--command-property", "max.block.ms=500")
    assert done.returncode == 2, done.stderr
    assert done.stdout.splitlines()[3:] == [
        "| check: DNS | ok |", "| check: TCP | FAILED |", "| selftest | could not run |",
    ]  # fmt: skip


def test_wrong_options_are_one_error_of_selftest(tmp_path):
    done = run(tmp_path, SCRIPT, "--bootstrap-server", "127.0.0.1:1", "--command-property", "such.option=1")
    assert done.returncode == 2, done.stderr
    assert done.stdout.splitlines()[3:] == ["| selftest | could not run |"]
    assert done.stderr == "error: such.option is not an option of Kafka's producer.\n"
