"""CPU seconds and memory of the three kinds of process: Spark's JVM, its Python workers, the broker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END_DEADLINE_S = 10.0


@dataclass(slots=True)
class Usage:
    """Filled when the block of ``measured`` ends: CPU seconds by process, MiB of the largest Python worker."""

    cpu_s: dict[str, float] = field(default_factory=dict)
    peak_rss_mib: float | None = None


class Processes:
    """Finds the processes of one Spark session and of the brokers this process has started."""

    def __init__(self, spark: SparkSession) -> None:
        gateway: Any = spark.sparkContext._gateway
        self._jvm = psutil.Process(gateway.proc.pid)

    def workers(self) -> list[psutil.Process]:
        """Spark's Python workers, at work or waiting for it: the children of its ``pyspark.daemon``s."""
        return [child for daemon in self._children_of_jvms()[1] for child in _children(daemon)]

    def _children_of_jvms(self) -> tuple[list[psutil.Process], list[psutil.Process]]:
        """Spark's JVMs, and the daemons. On a cluster the executors are children of the driver's JVM."""
        jvms = [self._jvm]
        daemons: list[psutil.Process] = []
        for jvm in jvms:
            for child in _children(jvm):
                (jvms if _name(child) == "java" else daemons).append(child)
        return jvms, daemons

    def end_workers(self) -> None:
        """The next task finds a new worker."""
        workers = self.workers()
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.terminate()
        psutil.wait_procs(workers, timeout=END_DEADLINE_S)

    def largest_worker_mib(self) -> float:
        """What the largest Python worker has in memory now; 0 when there is none."""
        return max((_total([worker], _rss_mib) for worker in self.workers()), default=0.0)

    @contextlib.contextmanager
    def measured(self) -> Iterator[Usage]:
        usage = Usage()
        _reset_peaks(self.workers())
        before = self._cpu_s()
        yield usage
        after = self._cpu_s()
        usage.cpu_s = {name: max(0.0, after[name] - before[name]) for name in after}
        usage.peak_rss_mib = max(filter(None, (peak_rss_mib(worker.pid) for worker in self.workers())), default=None)

    def _cpu_s(self) -> dict[str, float]:
        jvms, daemons = self._children_of_jvms()
        return {
            "spark": _total(jvms, _own_s),
            # Processes that have ended count with their parent.
            "workers": _total(jvms, _ended_s)
            + _total([*daemons, *self.workers()], lambda process: _own_s(process) + _ended_s(process)),
            "broker": _total(_brokers(), _own_s),
        }


def _children(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return list(process.children())
    return []


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return str(process.name())
    return ""


def _brokers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if "kafka.Kafka" in _command(child)]


def _command(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        command: list[str] = process.cmdline()
        return [] if "process_guard.py" in " ".join(command) else command
    return []


def _total(processes: Iterable[psutil.Process], figure: Callable[[psutil.Process], float]) -> float:
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += figure(process)
    return total


def _own_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _ended_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.children_user + times.children_system)


def _rss_mib(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / 2**20


def _reset_peaks(processes: Iterable[psutil.Process]) -> None:
    # Linux keeps the peak itself, exactly and for nothing; writing 5 sets it back (proc(5)).
    for process in processes:
        with contextlib.suppress(OSError):
            Path(f"/proc/{process.pid}/clear_refs").write_text("5")


def peak_rss_mib(process_id: int) -> float | None:
    """None where the system does not say (anywhere but on Linux), or the process has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return None
