"""What the next driver of a workload may get instead of its own: options, a clock, an older sink."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_kafka_sink.spark.options import SinkOptions
from tests.faults.chaos.kafka import ChaosKafka
from tests.faults.chaos.plan import Step
from tests.histories import changes, hooks, job
from tests.histories.changes import (
    SWITCHED,
    ChangeError,
    clock_variables,
    copy_of_sink,
    options_switched,
)
from tests.histories.workloads import LETTERS, OPTIONS_FILE

_HERE = Path(__file__).parents[2]
_OFF_S = 600
_in_git = pytest.mark.skipif(not (_HERE / ".git").exists(), reason="this is no clone")


@_in_git
def test_a_copy_of_the_sink_is_imported_instead_of_this_one(tmp_path):
    folder = copy_of_sink("HEAD", tmp_path / "older")
    command = [sys.executable, "-c", "import spark_kafka_sink; print(spark_kafka_sink.__file__)"]
    path = {"PYTHONPATH": f"{folder}:{_HERE}"}
    done = subprocess.run(command, env=path, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(folder / "spark_kafka_sink" / "__init__.py")


@_in_git
def test_a_revision_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ChangeError, match="There is no older sink at v0"):
        copy_of_sink("v0", tmp_path / "older")


# How many times its clocks are off by that much: the wall clock next to that of a process without the library, and the
# monotonic clock next to that of the system.
_TELLS = f"""
import subprocess, time
time.sleep(0.01)
right = subprocess.check_output(["/bin/date", "+%s"], env={{}}), open("/proc/uptime").read().split()[0]
print(*(round((clock() - float(told)) / {_OFF_S}) for clock, told in zip((time.time, time.monotonic), right)))
"""


@pytest.mark.slow  # fetches a package of Debian
def test_the_wall_clock_is_off_and_the_monotonic_clock_is_not():
    environment = {**clock_variables(_OFF_S), "PYTHONPATH": hooks.PYTHON_PATH}
    done = subprocess.run([sys.executable, "-c", _TELLS], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "0"]


@pytest.mark.parametrize("draw", [0.0, 0.3, 0.6, 0.9])
def test_switched_options_are_those_of_a_write(draw, tmp_path):
    drivers = SimpleNamespace(folder=tmp_path, starts=1, processes=lambda *_, **__: [])
    options_switched(SimpleNamespace(drivers=drivers), Step("options switched", 0.0, 0.0, draw))
    switched = json.loads((tmp_path / OPTIONS_FILE).read_text())
    assert switched.keys() == SWITCHED.keys()
    options = job.Job(None, None, "here:1", "", tmp_path, switched).exactly_once("topic", txnAppId="a", txnVersion=1)
    SinkOptions.parse({name.lower(): str(value) for name, value in options.items()})


def test_python_workers_get_a_clock_by_a_script(tmp_path, monkeypatch):
    variables = {"FAKETIME": "+600s"}
    victim = SimpleNamespace(workload=LETTERS, drivers=SimpleNamespace(folder=tmp_path))
    script = changes._python_with(variables, victim)
    command = [script, "-c", "import os, sys; print(os.environ['FAKETIME'], sys.argv[1])", "a b"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "+600s a b\n"


@pytest.mark.jvm
@pytest.mark.slow
def test_brokers_are_upgraded_and_a_full_disk_ends_one():
    with ChaosKafka(["3.9.1", "4.1.1"]) as kafka:
        kafka.local.create_topic("topic", 1)
        assert not kafka.knows_transaction_versions
        done = [kafka.upgrade() for _ in range(5)]
        assert done[3:] == ["the features of 4.1.1", ""]
        kafka.set_transaction_version(2)
        kafka.move_leader("topic", 0)
        kafka.grow("topic", 3)
        assert kafka.partitions("topic") == 3
        assert kafka.fill_disk(2, 60)
        kafka.start(2)
        kafka.local.await_in_sync("topic")
