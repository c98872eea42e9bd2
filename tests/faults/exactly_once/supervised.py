"""A query that is started again whenever it has ended before its time, as a cluster manager would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.exactly_once import batch_job, query_job
from tests.faults.support.fault import Fault
from tests.faults.support.kill_points import PYTHON_PATH
from tests.support.waiting import eventually


@dataclass
class Supervised:
    """``starts`` counts how often it was started. ``options``: more of the sink's, and of the job."""

    servers: str
    topic: str
    folder: Path
    fault: Fault
    options: dict[str, object] = field(default_factory=dict)
    starts: int = 0
    job: subprocess.Popen | None = None
    _log: list = field(default_factory=list)

    def ensure_running(self) -> bool:
        """Start it (again) unless it runs; False when it is done."""
        if self.job is not None and self.job.poll() == 0:
            return False
        if self.job is None or self.job.poll() is not None:
            self._start()
        return True

    def run_until(self, condition, timeout_s: float) -> None:
        """Keep it running until ``condition()``, or until it is done."""
        try:
            eventually(lambda: condition() or not self.ensure_running(), "not there yet", timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{self.starts} starts, and {error}:\n{self.log_tail()}") from None

    def finish(self, timeout_s: float) -> None:
        """Let it commit a micro-batch more and end."""
        self._stop.touch()
        self.run_until(lambda: False, timeout_s)

    def kill_driver(self) -> None:
        """SIGKILL to the JVM and to the script; the Python workers may live on for a while."""
        assert self.job is not None
        for pid, args in descendants(self.job.pid):
            if "org.apache.spark" in args:
                _kill(pid)
        self.job.kill()
        self.job.wait()

    @property
    def commits(self) -> int:
        """Micro-batches that Spark has committed, as far as it keeps them: it forgets the oldest, never the last."""
        folder = self.folder / "checkpoint" / "commits"
        return max((int(file.name) for file in folder.glob("[0-9]*")), default=-1)

    @property
    def _stop(self) -> Path:
        return self.folder / "stop"

    def end(self) -> None:
        if self.job is not None and self.job.poll() is None:
            self.kill_driver()
        for file in self._log:
            file.close()

    def log_tail(self) -> str:
        return "".join((self.folder / f"job-{self.starts}.log").read_text(errors="replace").splitlines(True)[-60:])

    def _start(self) -> None:
        self.starts += 1
        log = (self.folder / f"job-{self.starts}.log").open("wb")
        self._log.append(log)
        environment = {**os.environ, "PYTHONPATH": PYTHON_PATH}
        self.job = subprocess.Popen([sys.executable, *self._command()], env=environment, stdout=log, stderr=log)

    def _command(self) -> list[str]:
        where = [query_job.__file__, self.servers, self.topic, str(self.folder / "checkpoint"), str(self._stop)]
        return [*where, json.dumps(self.options)]


class SupervisedBatch(Supervised):
    """A batch job; it is done once it has ended well."""

    def _command(self) -> list[str]:
        return [batch_job.__file__, self.servers, self.topic, json.dumps(self.options)]


def descendants(pid: int) -> list[tuple[int, str]]:
    """Process ids and command lines of everything below ``pid``."""
    table = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in table.splitlines()]
    found: list[tuple[int, str]] = []
    below = {pid}
    while True:
        fresh = [(int(each[0]), each[2]) for each in rows if int(each[1]) in below and int(each[0]) not in below]
        if not fresh:
            return found
        found += fresh
        below.update(each for each, _ in fresh)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
