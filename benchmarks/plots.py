"""Results as SVG."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measures import MEASURES, median, paired
from benchmarks.model import Part, Result, Target
from benchmarks.parts import BY_NAME, GROUPS, OURS, PARTS, THEIRS
from benchmarks.timeline import COMMIT, FIGURES, JOB, PLAN, TASK, TASKS, TRIGGER, WRITE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {THEIRS: "#9aa5b1", OURS: "#e4572e"}
_PROCESSES = {
    "spark": ("Spark's JVM", "#9aa5b1"),
    "workers": ("Python workers", "#e4572e"),
    "broker": ("broker", "#3d5a80"),
}
_STEP_COLOURS = {
    "reading_us": "#d9dee3",
    "append_us": "#f2a65a",
    "partition_us": "#eec643",
    "encode_us": "#e4572e",
    "compress_us": "#a4303f",
    "crc_us": "#7d8597",
    "sender_us": "#3d5a80",
    "syscall_us": "#1b263b",
}
_SPAN_COLOURS = {
    TRIGGER: "#eceff1",
    JOB: "#d9dee3",
    TASK: "#9aa5b1",
    PLAN: "#f2a65a",
    WRITE: "#f2a65a",
    COMMIT: "#f2a65a",
}
# Else two runs with the same figures would differ in ids and date.
_SETTINGS: Any = {"svg.hashsalt": "benchmarks", "svg.fonttype": "none", "font.size": 9}
_METADATA = {"Date": None, "Creator": None}


def plot(folder: Path, results: Mapping[str, Result]) -> None:
    """``benchmark-rows.svg``, ``-cpu.svg``, ``-profile.svg``, ``-producers.svg`` and one for each part about growth, as
    far as there are results.
    """
    import matplotlib as mpl

    folder.mkdir(parents=True, exist_ok=True)
    pairs = [part for part in PARTS if part.name in results and {THEIRS, OURS} <= {side.name for side in part.sides}]
    pairs = [part for part in pairs if part.kind == "batch" and part.broker_bytes_per_s is None]
    with mpl.rc_context(_SETTINGS):
        if pairs:
            _rows(folder / "benchmark-rows.svg", pairs, results)
            alike = [part for part in pairs if part.shape.frame in ("keyed", "unkeyed") and part.shape.partitions == 4]
            _cpu(folder / "benchmark-cpu.svg", alike, results)
        if profiles := [part for part in PARTS if part.name in results and part.kind == "profile"]:
            _profiles(folder / "benchmark-profile.svg", profiles, results)
        if FIGURES.exists():
            _timelines(folder / "benchmark-micro-batch.svg")
        if "send" in results:
            _producers(folder / "benchmark-producers.svg", results["send"])
        for name in GROUPS["growth"]:
            if name in results:
                _GROWTH.get(name, _by_process)(folder / f"benchmark-{name}.svg", BY_NAME[name], results[name])


def _rows(file: Path, parts: Sequence[Part], results: Mapping[str, Result]) -> None:
    """Ours by theirs: the parts' rows differ too much in size for one scale."""
    with _Figure(file, len(parts) * 0.32 + 1.0) as axes:
        for row, part in enumerate(parts):
            pairs = paired(results[part.name].runs, Target(OURS, "rows_per_s", "at least ×", 0, THEIRS))
            ratios = [ours / theirs for ours, theirs in pairs]
            middle = statistics.median(ratios)
            spread = [[middle - min(ratios)], [max(ratios) - middle]]
            axes.errorbar(middle, row, xerr=spread, fmt="o", color=_COLOURS[OURS], capsize=3)
            axes.text(max(ratios), row, f"  {middle:.1f} ×", va="center")
        axes.axvline(1, color=_COLOURS[THEIRS], linewidth=2)
        axes.set_xscale("log")
        axes.set_xlim(left=0.8)
        axes.set_xticks([1, 2, 5, 10, 20], ["JVM sink", "2 ×", "5 ×", "10 ×", "20 ×"])
        axes.minorticks_off()
        _label_rows(axes, [part.name for part in parts], "rows per second: median, lowest and highest of the rounds")


def _cpu(file: Path, parts: Sequence[Part], results: Mapping[str, Result]) -> None:
    with _Figure(file, len(parts) * 0.5 + 1.0) as axes:
        for row, part in enumerate(parts):
            for place, side in ((row - 0.2, THEIRS), (row + 0.2, OURS)):
                left = 0.0
                for process, (name, colour) in _PROCESSES.items():
                    width = median(results[part.name].runs, side, f"{process}_us") or 0.0
                    first = row == 0 and side == THEIRS
                    axes.barh(place, width, 0.38, left=left, color=colour, label=name if first else None)
                    left += width
                axes.text(left, place, f" {side}", va="center", fontsize=7)
        _label_rows(axes, [part.name for part in parts], "microseconds of CPU per row")


def _profiles(file: Path, parts: Sequence[Part], results: Mapping[str, Result]) -> None:
    """Shares of a worker's CPU."""
    bars = [(part, side.name) for part in parts for side in part.sides]
    with _Figure(file, len(bars) * 0.35 + 1.2) as axes:
        for row, (part, side) in enumerate(bars):
            runs = results[part.name].runs
            total = median(runs, side, "workers_us") or 1.0
            left = 0.0
            for measure, colour in _STEP_COLOURS.items():
                share = 100 * (median(runs, side, measure) or 0.0) / total
                name = MEASURES[measure].heading if row == 0 else None
                axes.barh(row, share, 0.7, left=left, color=colour, label=name)
                left += share
            axes.text(left, row, f" {total:.2f} µs a row", va="center", fontsize=7)
        _label_rows(axes, [part.name for part, _ in bars], "% of its CPU")


def _timelines(file: Path) -> None:
    """A typical micro-batch of each side: a lane for the driver, and one for each task."""
    from matplotlib.figure import Figure

    sides: dict[str, dict[str, Any]] = json.loads(FIGURES.read_text())
    figure = Figure(figsize=(7.2, 2.1 * len(sides) + 0.4), layout="constrained")
    for number, (axes, (side, figures)) in enumerate(
        zip(figure.subplots(len(sides), sharex=True), sides.items(), strict=True)
    ):
        for what, lane, begin, end in figures["typical"]:
            is_request = what not in _SPAN_COLOURS
            height = 0.3 if is_request else 0.6 if what in (PLAN, WRITE, COMMIT) else 0.9
            colour = _SPAN_COLOURS.get(what, "#3d5a80")
            axes.barh(lane, max(end - begin, 0.2), height, left=begin, color=colour, alpha=0.8 if is_request else 1.0)
        axes.set_title(side, loc="left", fontsize=9)
        axes.set_yticks(range(-1, TASKS), ["driver", *(f"task {task}" for task in range(TASKS))], fontsize=6)
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
        if not number:
            for name, colour in (("Spark", "#9aa5b1"), ("the writer's call", "#f2a65a"), ("request", "#3d5a80")):
                axes.barh(0, 0, color=colour, label=name)
            axes.legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0), fontsize=7)
    axes.set_xlabel("ms from the trigger")
    figure.savefig(file, format="svg", metadata=_METADATA)


def _producers(file: Path, result: Result) -> None:
    sides = [side.name for side in BY_NAME["send"].sides]
    with _Figure(file, len(sides) * 0.35 + 0.8) as axes:
        for row, side in enumerate(sides):
            figure = median(result.runs, side, "rows_per_s") or 0.0
            axes.barh(row, figure / 1e6, 0.7, color=_COLOURS[OURS if side.startswith("KafkaProducer") else THEIRS])
            axes.text(figure / 1e6, row, f" {figure / 1e6:.2f}", va="center")
        _label_rows(axes, sides, "million records per second")


def _by_process(file: Path, part: Part, result: Result) -> None:
    """CPU of a row, or of a micro-batch with the memory of a worker, side by side."""
    unit = "µs of CPU per row" if part.kind == "batch" else "ms of CPU per micro-batch"
    ending = "_us" if part.kind == "batch" else "_batch_ms"
    with _Figure(file, len(part.sides) * 0.35 + 1.0) as axes:
        for row, side in enumerate(part.sides):
            left = 0.0
            for process, (name, colour) in _PROCESSES.items():
                width = median(result.runs, side.name, process + ending) or 0.0
                axes.barh(row, width, 0.7, left=left, color=colour, label=name if row == 0 else None)
                left += width
            memory = median(result.runs, side.name, "rss_mib")
            said = f"{left:.2f}" if part.kind == "batch" else f"{left:.0f} ms, a worker has {memory or 0:.0f} MiB"
            axes.text(left, row, f" {said}", va="center")
        _label_rows(axes, [side.name for side in part.sides], unit)


def _by_value(file: Path, part: Part, result: Result) -> None:
    """CPU of a row, by its size, both logarithmic."""
    sizes = {"10 B": 10, "100 B": 100, "1 KB": 1_000, "10 KB": 10_000, "100 KB": 100_000, "1 MB": 1_000_000}
    with _Figure(file, 3.2) as axes:
        for who in (THEIRS, OURS):
            figures = [median(result.runs, f"{size}, {who}", "cpu_us") or 0.0 for size in sizes]
            axes.plot(list(sizes.values()), figures, "o-", color=_COLOURS[who], label=who)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(list(sizes.values()), list(sizes))
        axes.set_xlabel("value")
        axes.set_ylabel("µs of CPU per row")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)


def _by_batch_size(file: Path, part: Part, result: Result) -> None:
    """Rows per second by those of the smallest batches."""
    colours = dict(zip(("100 B", "1 KB", "10 KB"), (_COLOURS[OURS], "#3d5a80", "#9aa5b1"), strict=True))
    with _Figure(file, 2.8) as axes:
        for value, colour in colours.items():
            names = [side.name for side in part.sides if side.name.startswith(f"{value}, ")]
            figures = [median(result.runs, name, "rows_per_s") or 0.0 for name in names]
            sizes = [name.partition(", ")[2] for name in names]
            axes.plot(sizes, [each / figures[0] for each in figures], "o-", color=colour, label=f"values of {value}")
        axes.set_xlabel("batch.size")
        axes.set_ylabel("rows per second, by 16 KiB's")
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)


def _label_rows(axes: Axes, names: Sequence[str], unit: str) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=7)


class _Figure:
    """Axes to draw on; the file is written when the block ends."""

    def __init__(self, file: Path, height: float) -> None:
        self._file = file
        self._height = height

    def __enter__(self) -> Axes:
        from matplotlib.figure import Figure

        self._figure = Figure(figsize=(7.2, self._height), layout="constrained")
        return self._figure.subplots()

    def __exit__(self, *_: object) -> None:
        self._figure.savefig(self._file, format="svg", metadata=_METADATA)


_GROWTH: Mapping[str, Callable[[Path, Part, Result], None]] = {
    "growth-values": _by_value,
    "batch-sizes": _by_batch_size,
}
