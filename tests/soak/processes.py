"""The processes of a Spark application, found by what stands in their environment, orphans too.

``python -m tests.soak.processes MARK`` waits until its standard input is closed, which the death of its parent does
too, and then ends every process with the mark.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.support.waiting import DEADLINE_S, until

MARK, START, SIDE = "SOAK", "SOAK_START", "SOAK_SIDE"


class Kind(Enum):
    DRIVER = "driver"
    EXECUTOR = "executor"
    DAEMON = "daemon"
    WORKER = "worker"


@dataclass(frozen=True)
class SparkProcess:
    """``start``: which start of the query it belongs to. ``of_executor``: it runs a task, or serves one that does."""

    pid: int
    kind: Kind
    start: int
    of_executor: bool


def spark_processes(mark: str) -> list[SparkProcess]:
    found = (_process(int(folder.name), mark) for folder in Path("/proc").glob("[0-9]*"))
    return [process for process in found if process is not None]


def send(processes: Iterable[SparkProcess], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def end_all(mark: str, timeout_s: float = DEADLINE_S) -> None:
    """SIGKILL to every process with this mark, stopped ones too, until none is left."""

    def left() -> list[SparkProcess]:
        alive = list(spark_processes(mark))
        send(alive, signal.SIGKILL)
        return alive

    until(left, lambda alive: not alive, "these do not die", timeout_s)


def _process(pid: int, mark: str) -> SparkProcess | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        if f"{MARK}={mark}\0".encode() not in environment:
            return None
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        zombie = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        group = os.getpgid(pid)
    except (OSError, ProcessLookupError):
        return None
    if zombie:
        return None
    values = dict(entry.split("=", 1) for entry in environment.decode(errors="replace").split("\0") if "=" in entry)
    if "CoarseGrainedExecutorBackend" in command:
        kind = Kind.EXECUTOR
    elif "pyspark.daemon" in command:
        kind = Kind.DAEMON if group == pid else Kind.WORKER  # the daemon leads a group of itself and its workers
    else:
        kind = Kind.DRIVER
    return SparkProcess(pid, kind, int(values.get(START, 0)), values.get(SIDE) == "executor")


if __name__ == "__main__":
    sys.stdin.read()
    end_all(sys.argv[1])
