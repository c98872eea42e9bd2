"""Batch and stream on a real YARN, as docs/deploy.md submits them, also while processes of the application die."""

import os
import signal
from pathlib import Path

import pytest

from tests.spark import deployed_job
from tests.spark.writes import expected
from tests.support.waiting import eventually, until
from tests.yarn import gated_job

# In client mode the application master only starts executors.
MASTERS = {"client": "ExecutorLauncher", "cluster": "yarn.ApplicationMaster"}
EXECUTOR = "YarnCoarseGrainedExecutorBackend"

START_S = 240.0
"""Three JVMs and the unpacking of the environment in each container come before a job's first row."""

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("mode", MASTERS)
def test_batch_and_stream_with_the_packed_environment(submitted, topic, tmp_path, mode):
    with submitted(mode, Path(deployed_job.__file__), topic.servers, topic.name, tmp_path / "job") as ended_well:
        ended_well()
    assert topic.values() == deployed_job.EVERY_ROW


@pytest.mark.parametrize("way", ["batch", "stream"])
@pytest.mark.parametrize("victim", ["application master", "executor"])
@pytest.mark.parametrize("mode", MASTERS)
def test_each_row_once_though_a_container_is_killed(submitted, yarn, topic, tmp_path, mode, victim, way):
    folder = tmp_path / "job"
    folder.mkdir()
    main_class = EXECUTOR if victim == "executor" else MASTERS[mode]
    with submitted(mode, Path(gated_job.__file__), topic.servers, topic.name, folder, way) as ended_well:
        eventually((folder / "reached").exists, "the job does not reach its middle", START_S)
        killed = until(lambda: yarn.processes(main_class), bool, f"no {main_class}")
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: not set(killed) & set(yarn.processes(main_class)), "it is still there")
        until(lambda: yarn.processes(main_class), bool, f"no other {main_class} was started")
        (folder / "go").touch()
        ended_well()
    assert topic.values() == expected(0, gated_job.ROWS)
