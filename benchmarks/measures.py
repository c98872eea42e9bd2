"""What is measured, and what is made of it: medians over the rounds, and ratios of runs of the same round."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.model import Run, Target


class Measure(NamedTuple):
    heading: str
    shown: str
    """Format of a figure."""


MEASURES: Mapping[str, Measure] = {
    "rows_per_s": Measure("rows/s", "{:,.0f}"),
    "seconds": Measure("s", "{:.2f}"),
    "cpu_us": Measure("CPU µs/row, all", "{:.2f}"),
    "spark_us": Measure("Spark JVM", "{:.2f}"),
    "workers_us": Measure("Python workers", "{:.2f}"),
    "broker_us": Measure("broker", "{:.2f}"),
    "python_s": Measure("CPU s of Python", "{:.2f}"),
    "reading_us": Measure("PySpark", "{:.3f}"),
    "append_us": Measure("checks, sizes, batches", "{:.3f}"),
    "partition_us": Measure("partitioner", "{:.3f}"),
    "encode_us": Measure("encoding", "{:.3f}"),
    "compress_us": Measure("compression", "{:.3f}"),
    "crc_us": Measure("header and CRC", "{:.3f}"),
    "sender_us": Measure("sender", "{:.3f}"),
    "syscall_us": Measure("system calls", "{:.3f}"),
    "client_us": Measure("client CPU µs/row", "{:.2f}"),
    "peak_rss_mib": Measure("peak MiB of a worker", "{:.0f}"),
    "rss_mib": Measure("MiB of the largest worker", "{:.0f}"),
    "add_batch_ms": Measure("addBatch ms, median", "{:.0f}"),
    "add_batch_p90_ms": Measure("90 %", "{:.0f}"),
    "trigger_ms": Measure("whole micro-batch ms, median", "{:.0f}"),
    "spark_batch_ms": Measure("CPU ms, Spark JVM", "{:.0f}"),
    "workers_batch_ms": Measure("Python workers", "{:.0f}"),
    "broker_batch_ms": Measure("broker", "{:.0f}"),
    "commit_ms": Measure("commit ms", "{:.0f}"),
    "p50_ms": Measure("ms, median", "{:.2f}"),
    "p99_ms": Measure("ms, 99 %", "{:.2f}"),
    "import_s": Measure("import s", "{:.2f}"),
    "import_cpu_s": Measure("CPU s", "{:.2f}"),
}


def median(runs: Iterable[Run], side: str, measure: str) -> float | None:
    """None when no run of the side has the measure."""
    figures = [run.measures[measure] for run in runs if run.side == side and measure in run.measures]
    return statistics.median(figures) if figures else None


def paired(runs: Sequence[Run], target: Target) -> list[tuple[float, float]]:
    """The target's side and what it is compared with, round by round: what else the machine did fell on both."""
    by_round: dict[int, dict[str, float]] = {}
    for run in runs:
        if target.measure in run.measures:
            by_round.setdefault(run.round, {})[run.side] = run.measures[target.measure]
    needed = {target.side, target.against or target.side, *target.ratio_of}
    return [_pair(each, target) for each in by_round.values() if needed <= each.keys()]


def _pair(figures: Mapping[str, float], target: Target) -> tuple[float, float]:
    against = figures[target.against or target.side]
    if target.ratio_of:
        one, other = target.ratio_of
        against *= figures[one] / figures[other]
    return figures[target.side], against


def shares_of_the_floor(runs: Sequence[Run], side: str, nothing: str) -> list[float]:
    """What a row costs at least, by what it costs ``side``, round by round: the CPU of Spark's JVM and of the Python
    workers that do nothing with the same rows, and of the broker with the batches of ``side``.
    """
    by_name = {(run.round, run.side): run.measures for run in runs}
    return [
        (floor["spark_us"] + floor["workers_us"] + own["broker_us"]) / own["cpu_us"]
        for (number, name), own in by_name.items()
        if name == side and "spark_us" in (floor := by_name.get((number, nothing), {}))
    ]


class Verdict(NamedTuple):
    """``figure`` is what compares with ``target.bound``; ``low`` and ``high`` over the rounds."""

    target: Target
    figure: float
    low: float
    high: float
    reached: bool


def verdict(runs: Sequence[Run], target: Target) -> Verdict | None:
    """None when there is nothing to judge by."""
    pairs = paired(runs, target)
    if not pairs:
        return None
    if target.relation == "floor ÷":
        figures = shares_of_the_floor(runs, target.side, target.against or "")
    elif target.relation == "at most":
        figures = [ours for ours, _ in pairs]
    elif target.relation == "at most +":
        figures = [ours - theirs for ours, theirs in pairs]
    else:
        figures = [ours / theirs for ours, theirs in pairs]
    figure = statistics.median(figures)
    reached = figure >= target.bound if target.relation in ("at least ×", "floor ÷") else figure <= target.bound
    return Verdict(target, figure, min(figures), max(figures), reached)
