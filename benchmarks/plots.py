"""Results as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measures import MEASURES, median
from benchmarks.model import Part, Result
from benchmarks.parts import BY_NAME, FLOOR, OURS, PARTS, THEIRS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {THEIRS: "#9aa5b1", OURS: "#e4572e", FLOOR: "#d9dee3"}
_PROCESSES = {
    "spark_us": ("Spark's JVM", "#9aa5b1"),
    "workers_us": ("Python workers", "#e4572e"),
    "broker_us": ("broker", "#3d5a80"),
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
# Else two runs with the same figures would differ in ids and date.
_SETTINGS: Any = {"svg.hashsalt": "benchmarks", "svg.fonttype": "none", "font.size": 9}
_METADATA = {"Date": None, "Creator": None}


def plot(folder: Path, results: Mapping[str, Result]) -> None:
    """``benchmark-rows.svg``, ``-cpu.svg``, ``-profile.svg`` and ``-producers.svg``, as far as there are results."""
    import matplotlib as mpl

    folder.mkdir(parents=True, exist_ok=True)
    pairs = [part for part in PARTS if part.name in results and {THEIRS, OURS} <= {side.name for side in part.sides}]
    pairs = [part for part in pairs if part.kind == "batch" and part.broker_bytes_per_s is None]
    with mpl.rc_context(_SETTINGS):
        if pairs:
            _rows(folder / "benchmark-rows.svg", pairs, results)
            _cpu(folder / "benchmark-cpu.svg", pairs, results)
        if profiles := [part for part in PARTS if part.name in results and part.kind == "profile"]:
            _profiles(folder / "benchmark-profile.svg", profiles, results)
        if "send" in results:
            _producers(folder / "benchmark-producers.svg", results["send"])


def _rows(file: Path, parts: Sequence[Part], results: Mapping[str, Result]) -> None:
    with _Figure(file, len(parts) * 0.5 + 1.0) as axes:
        for row, part in enumerate(parts):
            runs = results[part.name].runs
            theirs, ours = (median(runs, side, "rows_per_s") or 0.0 for side in (THEIRS, OURS))
            axes.barh(row - 0.2, theirs / 1e6, 0.38, color=_COLOURS[THEIRS], label=THEIRS if row == 0 else None)
            axes.barh(row + 0.2, ours / 1e6, 0.38, color=_COLOURS[OURS], label=OURS if row == 0 else None)
            axes.text(ours / 1e6, row + 0.2, f" {ours / theirs:.2f} ×", va="center")
        _label_rows(axes, [part.name for part in parts], "million rows per second")


def _cpu(file: Path, parts: Sequence[Part], results: Mapping[str, Result]) -> None:
    with _Figure(file, len(parts) * 0.5 + 1.0) as axes:
        for row, part in enumerate(parts):
            for place, side in ((row - 0.2, THEIRS), (row + 0.2, OURS)):
                left = 0.0
                for measure, (name, colour) in _PROCESSES.items():
                    width = median(results[part.name].runs, side, measure) or 0.0
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
        _label_rows(axes, [f"{part.name}, {side.removeprefix('pykafka, ')}" for part, side in bars], "% of its CPU")
        axes.legend(frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=7)


def _producers(file: Path, result: Result) -> None:
    sides = [side.name for side in BY_NAME["send"].sides]
    with _Figure(file, len(sides) * 0.35 + 0.8) as axes:
        for row, side in enumerate(sides):
            figure = median(result.runs, side, "rows_per_s") or 0.0
            axes.barh(row, figure / 1e6, 0.7, color=_COLOURS[OURS if side.startswith("KafkaProducer") else THEIRS])
            axes.text(figure / 1e6, row, f" {figure / 1e6:.2f}", va="center")
        _label_rows(axes, sides, "million records per second")


def _label_rows(axes: Axes, names: Sequence[str], unit: str) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False)


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
