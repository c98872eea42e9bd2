"""Named points at which a test may end, stop or fail the process that reaches them. Without the variable: nothing.

``SPARK_KAFKA_SINK_FAULT`` names a file. While it holds ``<point>=<action>`` or ``<point>@<task>=<action>``, the first
process that reaches the point takes the file away, leaves its process id in its place under the suffix ``.tripped``,
and does it: ``kill`` (SIGKILL), ``stop`` (SIGSTOP: a zombie, until SIGCONT wakes it), ``hold`` (it waits until the
FIFO with the suffix ``.hold`` is opened for writing; unlike stopped processes, held ones may become orphans without a
SIGHUP from the kernel) or ``fail`` (an exception).
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

VARIABLE: Final = "SPARK_KAFKA_SINK_FAULT"

POINTS: Final = frozenset(
    {
        "fence taken",
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

_SIGNALS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class FaultInjectedError(RuntimeError):
    """A test asked for it."""


def reach(point: str, task: int | None = None) -> None:
    """Called where a crash is interesting."""
    if VARIABLE in os.environ and armed(point, task):
        _trip(point)


def armed(point: str, task: int | None = None) -> bool:
    """Whether a test waits for this process at ``point``."""
    if VARIABLE not in os.environ:
        return False
    try:
        wanted = Path(os.environ[VARIABLE]).read_text(encoding="ascii").rsplit("=", 1)
    except FileNotFoundError:
        return False
    name, _, only = wanted[0].partition("@")
    if name not in POINTS:
        raise ValueError(f"{name!r} is no fault point; they are {', '.join(sorted(POINTS))}")
    return name == point and (not only or task == int(only))


def _trip(point: str) -> None:
    file = Path(os.environ[VARIABLE])
    action = file.read_text(encoding="ascii").rsplit("=", 1)[1]
    mine = file.with_suffix(f".{os.getpid()}")
    try:
        file.rename(mine)
    except FileNotFoundError:  # another process was faster
        return
    mine.write_text(str(os.getpid()), encoding="ascii")
    mine.rename(file.with_suffix(".tripped"))
    if action == "fail":
        raise FaultInjectedError(point)
    if action == "hold":
        file.with_suffix(".hold").read_bytes()
        return
    os.kill(os.getpid(), _SIGNALS[action])
