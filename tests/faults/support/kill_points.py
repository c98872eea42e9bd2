"""Ends, stops or fails the process that reaches a named step of the exactly-once protocol.

``SPARK_KAFKA_SINK_FAULT`` names a file. While its first line is ``<step>=<action>`` or ``<step>@<task>=<action>``, the
first process that reaches the step removes the line, and does it: ``kill`` (SIGKILL), ``stop`` (SIGSTOP, until
SIGCONT), ``hold`` (it waits until the FIFO with the suffix ``.hold`` is opened for writing; unlike stopped processes,
held ones may become orphans without a SIGHUP) or ``fail`` (an exception). The process that removes the last line
removes the file, too, and first writes its process id to the same path with the suffix ``.tripped``.

The package itself only names its steps (``exactly_once.failpoints``). Processes that Spark starts run
``sitecustomize.py`` of this folder, which calls ``install``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import MappingProxyType

from tests.support import child_processes

VARIABLE = "SPARK_KAFKA_SINK_FAULT"
BETWEEN_ENDS = "between EndTxns"
PYTHON_PATH = os.pathsep.join((child_processes.PYTHON_PATH, str(Path(__file__).parent)))
"""PYTHONPATH of a process whose children are to be killed at these steps."""

STEPS = frozenset(
    {
        "driver initialised",
        "planned",
        "task initialised",
        "task in mid-write",
        "task prepared",
        "before the intent",
        "intent in the log",
        "intent committed",
        BETWEEN_ENDS,
        "before done",
        "committed",
        "abort fenced",
    }
)

_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class FaultInjectedError(RuntimeError):
    """A test asked for it."""


def install(more=MappingProxyType({})):
    """In this process the steps act. Modules that are not imported yet are changed when they are.

    ``more``: further changes, module name to function of the module; they come after those of the steps.
    """
    for name, change in more.items():
        _CHANGES.setdefault(name, []).append(change)
    for name in _CHANGES.keys() & sys.modules.keys():
        _change(sys.modules[name])
    sys.meta_path.insert(0, _Finder())


def reach(step, task=None):
    if armed(step, task):
        _trip(step)


def armed(step, task=None) -> bool:
    """Whether a test waits for this process at ``step``."""
    if VARIABLE not in os.environ:
        return False
    try:
        first = Path(os.environ[VARIABLE]).read_text(encoding="ascii").partition("\n")[0]
    except FileNotFoundError:
        return False
    where = first.rpartition("=")[0]
    name, _, only = where.partition("@")
    assert name in STEPS, f"{name!r} is no step; they are {', '.join(sorted(STEPS))}"
    return name == step and (not only or task == int(only))


def parted(end, is_armed, reach):
    """``Committer.end``, which commits the first task's transaction alone and then reaches ``BETWEEN_ENDS``."""

    def parted_end(committer, endings, timeout_ms, *latest_ms):
        if endings and is_armed(BETWEEN_ENDS):
            prepared, commits = endings[0]
            if commits and not prepared.transactional_id.endswith("-driver"):
                began = time.monotonic()
                end(committer, endings[:1], timeout_ms, *latest_ms)
                reach(BETWEEN_ENDS)
                timeout_ms -= 1000 * (time.monotonic() - began)
        return end(committer, endings, timeout_ms, *latest_ms)

    return parted_end


def _trip(step):
    file = Path(os.environ[VARIABLE])
    mine = file.with_suffix(f".{os.getpid()}")
    try:
        file.rename(mine)
    except FileNotFoundError:  # another process was faster
        return
    first, _, rest = mine.read_text(encoding="ascii").partition("\n")
    where, _, action = first.rpartition("=")
    if where.partition("@")[0] != step:  # another process was faster, and has left the next line
        mine.rename(file)
        return
    mine.write_text(rest or str(os.getpid()), encoding="ascii")
    mine.rename(file if rest else file.with_suffix(".tripped"))
    if action == "fail":
        raise FaultInjectedError(step)
    if action == "hold":
        file.with_suffix(".hold").read_bytes()
        return
    os.kill(os.getpid(), _SIGNALS[action])


def _change_steps(module):
    module.hit = reach


def _change_committer(module):
    module.Committer.end = parted(module.Committer.end, armed, reach)


_CHANGES = {
    "spark_kafka_sink.exactly_once.failpoints": [_change_steps],
    "spark_kafka_sink.exactly_once.committer": [_change_committer],
}


def _change(module):
    for change in _CHANGES[module.__name__]:
        change(module)


class _Finder(MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname not in _CHANGES:
            return None
        found = PathFinder.find_spec(fullname, path, target)
        assert found is not None
        assert found.origin is not None
        return spec_from_file_location(fullname, found.origin, loader=_Loader(fullname, found.origin))


class _Loader(SourceFileLoader):
    def exec_module(self, module):
        super().exec_module(module)
        _change(module)
