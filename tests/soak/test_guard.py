"""No process of a workload outlives the process that runs the test."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.soak.processes import end_all, spark_processes
from tests.support.waiting import eventually

_SLEEPS_WITH_A_CHILD = """
import subprocess, time
subprocess.Popen(["sleep", "600"], start_new_session=True)
time.sleep(600)
"""

_SOAK = """
import sys, time
from pathlib import Path
from tests.soak.drivers import Drivers
Drivers(Path(sys.argv[1]), [sys.executable, "-c", sys.argv[2]], {}).start()
time.sleep(600)
"""


def test_a_soak_that_is_killed_leaves_no_driver_behind(tmp_path):
    """A soak was killed by SIGKILL, and its drivers and their JVMs ran on."""
    mark = str(tmp_path)
    soak = subprocess.Popen([sys.executable, "-c", _SOAK, mark, _SLEEPS_WITH_A_CHILD])
    try:
        eventually(lambda: len(spark_processes(mark)) == 2, "the driver does not start")
        soak.send_signal(signal.SIGKILL)
        soak.wait()
        eventually(lambda: not spark_processes(mark), "the driver runs on")
    finally:
        soak.kill()
        end_all(mark)
