"""``python -m tests.histories.plots HISTORY FOLDER`` draws the plots of docs/proof.md and prints what the longest gaps
are made of.

It runs with the benchmark's environment, which has matplotlib.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.histories.events import Event, read_history
from tests.histories.timeline import (
    GROUPS,
    Span,
    arrivals_of,
    faults_of,
    longest_gaps,
    seconds_without_a_row,
    thinned,
)

# Else two runs with the same history would differ in ids and date. Text of 9 points is legible on a telephone, too.
_SETTINGS: Any = {"svg.hashsalt": "histories", "svg.fonttype": "none", "font.size": 9}
_METADATA = {"Date": None, "Creator": None}
_WIDTH = 4.6
_COLOURS = ("#e4572e", "#3d5a80", "#f2a65a", "#6a994e", "#9aa5b1", "#a4303f", "#1b263b", "#eec643")
_FAULTS = dict(zip(GROUPS, ("#a4303f", "#3d5a80", "#e4572e", "#7d8597"), strict=True))
_MINUTE = 60.0
_POINTS = 500
_SHORTEST = 0.001  # of the width: a fault that is over at once is still a mark


def plot(events: Sequence[Event], folder: Path) -> None:
    """``soak-rows.svg`` and ``soak-gaps.svg``."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_SETTINGS):
        _rows(folder / "soak-rows.svg", events)
        _gaps(folder / "soak-gaps.svg", events)


def _rows(file: Path, events: Sequence[Event]) -> None:
    """Visible rows above, faults below."""
    began, ended = events[0].at, events[-1].at
    with _figure(file, 4.2) as figure:
        rows, strip = figure.subplots(2, sharex=True, height_ratios=(3, 1))
        for colour, (name, arrivals) in zip(_COLOURS, sorted(arrivals_of(events).items()), strict=False):
            shown = thinned(arrivals, (ended - began) / _POINTS)
            minutes = [(at - began) / _MINUTE for at, _ in shown]
            rows.plot(minutes, [count / 1000 for _, count in shown], color=colour, label=name, linewidth=1.3)
        rows.set_ylabel("thousand visible rows")
        rows.set_ylim(bottom=0)
        _mark(strip, faults_of(events), began, ended)
        strip.set_xlabel("minutes")
        strip.set_xlim(0, (ended - began) / _MINUTE)
        for axes in (rows, strip):
            axes.spines[["top", "right"]].set_visible(False)
        rows.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.45, 1.0), fontsize=8)


def _mark(axes: Axes, spans: Sequence[Span], began: float, ended: float) -> None:
    for row, group in enumerate(GROUPS):
        least = _SHORTEST * (ended - began)
        bars = [
            ((span.began - began) / _MINUTE, max(span.ended - span.began, least) / _MINUTE)
            for span in spans
            if span.group == group
        ]
        axes.broken_barh(bars, (row - 0.35, 0.7), color=_FAULTS[group])
    axes.set_yticks(range(len(GROUPS)), [group.replace(" and ", "\nand ") for group in GROUPS], fontsize=8)
    axes.set_ylim(len(GROUPS) - 0.4, -0.6)


def _gaps(file: Path, events: Sequence[Event]) -> None:
    """Seconds since the last row, a lane for each name of writes."""
    began, ended = events[0].at, events[-1].at
    found = sorted(arrivals_of(events).items())
    with _figure(file, 0.7 * len(found) + 0.6) as figure:
        lanes = figure.subplots(len(found), sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, colour, (name, arrivals) in zip(lanes, _COLOURS, found, strict=False):
            x, y = seconds_without_a_row([at for at, _ in arrivals], ended)
            axes.fill_between([(at - began) / _MINUTE for at in x], y, color=colour, linewidth=0)
            axes.set_title(f"{name}: at most {max(y):.0f} s", loc="left", fontsize=8, pad=2)
            axes.spines[["top", "right"]].set_visible(False)
        lanes[-1].set_xlabel("minutes")
        lanes[-1].set_xlim(0, (ended - began) / _MINUTE)
        lanes[-1].set_ylim(bottom=0)
        figure.supylabel("seconds since the last row", fontsize=9)


@contextmanager
def _figure(file: Path, height: float) -> Iterator[Figure]:
    """It is written when the block ends."""
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    yield figure
    figure.savefig(file, format="svg", metadata=_METADATA)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.histories.plots", description=__doc__)
    parser.add_argument("history", type=Path, help="history.jsonl of a run, or the folder with its parts")
    parser.add_argument("folder", type=Path, help="of the plots")
    arguments = parser.parse_args()
    history = arguments.history
    events = read_history(history.glob("*.jsonl") if history.is_dir() else [history])
    plot(events, arguments.folder)
    sys.stdout.writelines(f"{gap}\n" for gap in longest_gaps(events))


if __name__ == "__main__":
    main()
