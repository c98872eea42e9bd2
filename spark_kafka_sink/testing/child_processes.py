"""Child processes that cannot outlive this one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.testing import process_guard

START_DEADLINE_S = 30.0


class WithLogError(KafkaError):
    """An error whose message ends with a log. Each line of the log becomes an item of a list, because errors escape all
    other line ends."""

    def __init__(self, text: str) -> None:
        super().__init__("\n- ".join(line.removeprefix("- ") for line in text.splitlines()))


class GuardedProcess:
    """A command in a process group of its own, which ends with its parent even if the parent is killed by SIGKILL.

    ``command`` is started at once; its output goes to the end of the file ``log``. ``scratch`` is a folder to remove
    when the parent dies without closing this. A fork of the parent does not count as the parent. Signals go to the
    whole group.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        scratch: Path | None = None,
    ) -> None:
        guard = [sys.executable, "-I", "-S", process_guard.__file__, str(os.getpid()), str(scratch or ""), *command]
        with log.open("ab") as output:
            self._guard = subprocess.Popen(
                guard,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                env=env,
                cwd=cwd,
                start_new_session=True,  # the parent handles Ctrl-C in a terminal
            )
        assert self._guard.stdout is not None
        with self._guard.stdout:
            first_line = self._guard.stdout.readline()
        if not first_line.strip():
            self._guard.wait(START_DEADLINE_S)
            raise OSError(f"{command[0]} did not start:\n{tail(log)}")
        self.pid = int(first_line)

    def poll(self) -> int | None:
        """The exit code, 128 + n after signal n; None while the command runs."""
        return self._guard.poll()

    def wait(self, timeout_s: float) -> int:
        """Waits for the end and returns the exit code. Raises ``subprocess.TimeoutExpired`` after ``timeout_s``
        seconds."""
        return self._guard.wait(timeout_s)

    def send_signal(self, signum: signal.Signals) -> None:
        """Sends the signal to every process of the group. Does nothing if the group has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signum)

    def pause(self, timeout_s: float = 10.0) -> None:
        """Sends SIGSTOP, and waits until every thread has stopped (Linux only)."""
        self.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + timeout_s
        while not all(_is_stopped(status) for status in Path("/proc").glob(f"{self.pid}/task/*/stat")):
            if time.monotonic() > deadline:
                raise OSError(f"process {self.pid} did not stop within {timeout_s:g} s")
            time.sleep(0.001)

    def stop(self, timeout_s: float = 10.0) -> int:
        """Sends SIGTERM, and SIGKILL after ``timeout_s`` seconds. Returns the exit code."""
        self.send_signal(signal.SIGTERM)
        try:
            return self.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """Sends SIGKILL, which ends even a stopped process. Returns the exit code."""
        self.send_signal(signal.SIGKILL)
        return self.wait(START_DEADLINE_S)


def _is_stopped(status: Path) -> bool:
    try:
        return status.read_text().rpartition(")")[2].split()[0] in "TtZX"
    except (FileNotFoundError, ProcessLookupError):
        return True  # it has ended


def tail(log: Path, lines: int = 40) -> str:
    """The last lines of a log file, for an error message."""
    if not log.exists():
        return "(no log)"
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) or "(the log is empty)"
