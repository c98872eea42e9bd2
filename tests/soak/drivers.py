"""The driver of a query or job, started again whenever it has ended before its time, as a cluster manager would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.faults.support.kill_points import VARIABLE
from tests.repository.files import ROOT
from tests.soak import processes
from tests.soak.processes import MARK, SIDE, START, Kind, SparkProcess, send, spark_processes
from tests.soak.workloads import STOP_FILE
from tests.support.waiting import DEADLINE_S

FAILED = "FAILED: "
"""A line of a driver's log begins with it, and what its workload has failed with follows."""


def print_failure(error: Exception) -> None:
    """Called by the driver, whose output is its log."""
    sys.stdout.write(f"{FAILED}{type(error).__name__}: {' '.join(str(error).split())}\n")
    sys.stdout.flush()


class Drivers(threading.Thread):
    """Keeps one running until ``finish``. ``starts`` counts them; an abandoned one runs beside its successor.

    ``command``: its Python, and what it runs. ``environment``: its own variables.
    """

    def __init__(self, folder: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
        super().__init__(name="drivers", daemon=True)
        self.folder = folder
        self.starts = 0
        self.fault_file = folder / "fault"
        self._command = command
        self._environment = environment
        self._lock = threading.Lock()
        self._current: subprocess.Popen[bytes] | None = None
        self._all: list[subprocess.Popen[bytes]] = []
        self._done = threading.Event()
        guard = [sys.executable, "-m", processes.__name__, self.mark]
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, cwd=ROOT, start_new_session=True)

    @property
    def mark(self) -> str:
        return str(self.folder)

    def run(self) -> None:
        while not self._done.wait(0.2):
            with self._lock:
                if self._current is None or self._current.poll() not in (None, 0):
                    self._start()
                elif self._current.poll() == 0:
                    self._done.set()

    def processes(self, *kinds: Kind, of_executor: bool | None = None, start: int | None = None) -> list[SparkProcess]:
        """Those of the workload by their ids, also of an abandoned driver unless ``start`` says otherwise."""
        return sorted(
            (
                each
                for each in spark_processes(self.mark)
                if each.kind in kinds and of_executor in (None, each.of_executor) and start in (None, each.start)
            ),
            key=lambda each: each.pid,
        )

    def own_processes(self) -> list[SparkProcess]:
        """Everything of the driver that runs now, its executors left aside."""
        return self.processes(Kind.DRIVER, Kind.DAEMON, Kind.WORKER, of_executor=False, start=self.starts)

    def kill(self) -> None:
        """SIGKILL to the driver that runs now; its executors and its Python workers are left to themselves."""
        with self._lock:
            send(self.processes(Kind.DRIVER, start=self.starts), signal.SIGKILL)
            if self._current is not None:
                self._current.wait(20)

    def abandon(self) -> None:
        """Another one is started though this one has not ended."""
        with self._lock:
            self._current = None

    def go_on(self) -> None:
        """Everything that is stopped goes on, and of several drivers the last one stays."""
        send([each for each in self.processes(Kind.DRIVER) if each.start != self.starts], signal.SIGKILL)
        send(self.processes(*Kind), signal.SIGCONT)

    @property
    def commits(self) -> int:
        """The last micro-batch that Spark has committed, -1 before the first."""
        folder = self.folder / "checkpoint" / "commits"
        return max((int(file.name) for file in folder.glob("[0-9]*")), default=-1)

    def stop(self) -> None:
        """Let the workload write once more and end."""
        (self.folder / STOP_FILE).touch()

    def finish(self, timeout_s: float) -> None:
        """Until the workload has ended after ``stop``."""
        assert self._done.wait(timeout_s), f"it did not end within {timeout_s:.0f} s:\n{self.log_tail()}"

    def close(self) -> None:
        self._done.set()
        self.join(30)
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        assert self._guard.wait(2 * DEADLINE_S) == 0, "processes are left over; the lines above have their ids"
        for job in self._all:
            job.wait(20)

    def log_tail(self) -> str:
        return "".join(self._log(self.starts).read_text(errors="replace").splitlines(True)[-60:])

    def failures(self) -> list[str]:
        """What the workload failed with, each time."""
        logs = (self._log(start).read_text(errors="replace") for start in range(1, self.starts + 1))
        return [line.partition(FAILED)[2] for log in logs for line in log.splitlines() if FAILED in line]

    def _log(self, start: int) -> Path:
        return self.folder / f"driver-{start}.log"

    def _start(self) -> None:
        self.starts += 1
        environment = {
            **os.environ,
            **self._environment,
            VARIABLE: str(self.fault_file),
            MARK: self.mark,
            START: str(self.starts),
            SIDE: "driver",
        }
        with self._log(self.starts).open("wb") as log:
            # Not in the repository's folder: Spark's workers would import its sink before any in PYTHONPATH.
            self._current = subprocess.Popen(
                self._command, env=environment, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )
        self._all.append(self._current)


def await_that(condition, timeout_s: float) -> bool:
    """Whether it became true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
