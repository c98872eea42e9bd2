"""Named points at which a test may end, stop or fail the process that reaches them. Without the variable: nothing.

``SPARK_KAFKA_SINK_FAULT=<point>:<action>:<file>[:<task>]``; actions ``kill`` (SIGKILL of this process), ``stop``
(SIGSTOP: a zombie until SIGCONT), ``fail`` (raise). It happens once: whoever creates ``<file>`` first does it.
"""

from __future__ import annotations

import os
import signal
from typing import Final

VARIABLE: Final = "SPARK_KAFKA_SINK_FAULT"

POINTS: Final = frozenset(
    {
        "planned",
        "task initialised",
        "task in mid-write",
        "task prepared",
        "before the intent",
        "intent in the log",
        "intent committed",
        "between EndTxns",
        "before done",
        "committed",
        "abort fenced",
    }
)


class FaultInjectedError(RuntimeError):
    """A test asked for it."""


def reach(point: str, task: int | None = None) -> None:
    """Called where a crash is interesting."""
    armed = os.environ.get(VARIABLE)
    if armed is not None:
        _trip(point, task, armed)


def armed(point: str) -> bool:
    """Whether a test waits for this process at ``point``."""
    return os.environ.get(VARIABLE, "").startswith(f"{point}:")


def _trip(point: str, task: int | None, armed: str) -> None:
    name, action, flag, *only = armed.split(":")
    if name not in POINTS or point not in POINTS:
        raise ValueError(f"{VARIABLE}={armed}: the points are {', '.join(sorted(POINTS))}")
    if point != name or (only and task != int(only[0])):
        return
    try:
        with open(flag, "x", encoding="ascii") as mine:
            mine.write(str(os.getpid()))
    except FileExistsError:
        return
    if action == "fail":
        raise FaultInjectedError(point)
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[action])
