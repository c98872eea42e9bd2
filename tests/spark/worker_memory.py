"""How much memory Spark's Python workers take. Reads Linux's ``/proc``."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

_PERIOD_S = 0.02
_BUSY_TICKS = 5
"""A worker that used less than this many hundredths of a second is not the one that writes."""


@dataclass
class Peak:
    bytes: int = 0


@contextmanager
def peak_worker_memory(spark: SparkSession) -> Iterator[Peak]:
    """The most resident memory that one busy Python worker of this session had in the block; known after it."""
    peak = Peak()
    jvm = spark.sparkContext._gateway.proc.pid
    before = {process.pid: process.ticks for process in _descendants(jvm)}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_PERIOD_S):
            for process in _descendants(jvm):
                if process.ticks - before.get(process.pid, 0) >= _BUSY_TICKS:
                    peak.bytes = max(peak.bytes, process.resident)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    ticks: int
    resident: int


def _descendants(ancestor: int) -> list[_Process]:
    processes = list(filter(None, map(_read, filter(str.isdigit, os.listdir("/proc")))))
    family = {ancestor}
    while more := {each.pid for each in processes if each.parent in family} - family:
        family |= more
    return [each for each in processes if each.pid in family - {ancestor}]


def _read(pid: str) -> _Process | None:
    try:
        # What follows the name in brackets: state, parent, … (proc(5)).
        fields = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended
        return None
    page = os.sysconf("SC_PAGE_SIZE")
    return _Process(int(pid), int(fields[1]), int(fields[11]) + int(fields[12]), int(fields[21]) * page)
