"""The command line."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.model import Kind, Part, Result, Run
from benchmarks.parts import BY_NAME, GROUPS, PARTS

if TYPE_CHECKING:
    from benchmarks.harness import Harness

_DESCRIPTION = """\
How fast the sink is, next to Spark's own and to other clients, on this machine and a real broker of its own.

Every part writes the same rows by each of its sides in turn, round after round, into new topics whose rows are counted
afterwards. What is shown are medians over the rounds, and ratios of runs of the same round: other work on the machine
falls on both. CPU is that of whole processes (Spark's JVM, its Python workers, the broker) by the rows of the run.
"""

_EPILOG = """\
examples:
  python -m benchmarks default --rounds 5        one part
  python -m benchmarks headline                  the parts whose geometric mean is claimed
  python -m benchmarks all --rows 100000 --rounds 1   is everything in working order? (the figures mean nothing)
  python -m benchmarks all --publish             what docs/performance.md shows: with nothing else running

Needs Java 17, 4 GB of memory and 3 GB of disk. The first run fetches Kafka (43 MB) and Spark's sink (10 MB).
"""

_ROOT = Path(__file__).parents[1]


class Places(NamedTuple):
    """Where results go: all parts' as JSON, a Markdown page with them between markers, a folder of plots."""

    results: Path
    page: Path
    plots: Path


PUBLISHED = Places(_ROOT / "benchmarks/results.json", _ROOT / "docs/performance.md", _ROOT / "docs/img")
OWN = Places(*(_ROOT / "build/benchmarks" / name for name in ("results.json", "results.md", "")))

Runner = Callable[[Part, int, "Harness"], Iterator[Run]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 when every part ran and all rows were there, 1 when not, 2 for a wrong command line."""
    asked = _parser().parse_args(arguments)
    if asked.list:
        print("\n".join(_list()))
        return 0
    places = PUBLISHED if asked.publish else OWN
    asked_for = [asked.parts] if isinstance(asked.parts, str) else asked.parts
    wanted = dict.fromkeys(name for each in asked_for for name in GROUPS.get(each, (each,)))
    parts = [BY_NAME[name] if asked.rows is None else replace(BY_NAME[name], rows=asked.rows) for name in wanted]
    failed = _run(parts, asked.rounds, None if asked.rows else places)
    for name, error in failed.items():
        print(f"error: {name}: {error!r}", file=sys.stderr)
    return 1 if failed else 0


def _run(parts: Iterable[Part], rounds: int, places: Places | None) -> Mapping[str, Exception]:
    """Runs the parts; each one's results are on disk before the next begins. Says which failed.

    ``places`` None: nothing is written.
    """
    from benchmarks.environment import environment
    from benchmarks.harness import Harness
    from benchmarks.page import details, summary

    failed: dict[str, Exception] = {}
    runners = _runners()
    with Harness() as harness:
        for part in parts:
            print(f"\n{part.name}: {part.what}", flush=True)
            at, described = time.strftime("%Y-%m-%d %H:%M"), environment()
            runs = []
            try:
                for run in runners[part.kind](part, rounds, harness):
                    runs.append(run)
                    print(_line(run), flush=True)
            except Exception as error:  # the other parts are worth having
                failed[part.name] = error
                continue
            result = Result(part.name, at, described, tuple(runs))
            print(f"\n{details(part, result)}\n\n{summary([part], {part.name: result})}", flush=True)
            if places is not None:
                _keep(result, places)
    return failed


def _runners() -> Mapping[Kind, Runner]:
    from benchmarks.batch_part import run_batches
    from benchmarks.commit_part import run_commits
    from benchmarks.import_part import run_imports
    from benchmarks.producer_part import run_producers
    from benchmarks.profile_part import run_profiles
    from benchmarks.stream_part import run_streams

    return {
        "batch": run_batches,
        "stream": run_streams,
        "commit": run_commits,
        "send": run_producers,
        "latency": run_producers,
        "import": run_imports,
        "profile": run_profiles,
    }


def _keep(result: Result, places: Places) -> None:
    from benchmarks.page import fill
    from benchmarks.plots import plot
    from benchmarks.results import load, save

    results = {**load(places.results), result.part: result}
    results = {name: results[name] for name in BY_NAME if name in results}
    save(places.results, results)
    fill(places.page, results)
    plot(places.plots, results)


def _line(run: Run) -> str:
    from benchmarks.measures import MEASURES

    figures = (f"{MEASURES[name].heading} {MEASURES[name].shown.format(run.measures[name])}" for name in run.measures)
    return f"  {run.round}  {run.side:<28} {'  '.join(figures)}"


def _list() -> Iterator[str]:
    for part in PARTS:
        yield f"{part.name:<20} {part.what} ({part.rows:,} rows; {', '.join(side.name for side in part.sides)})"
    for group, names in GROUPS.items():
        yield f"{group:<20} = {' '.join(names)}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "parts", nargs="*", default="all", choices=[*BY_NAME, *GROUPS], metavar="PART",
        help=f"parts or groups of them, see --list (groups: {', '.join(GROUPS)}; default: all)",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="show the parts: what, how many rows, whose")
    parser.add_argument("--rounds", type=_positive, default=3, help="rounds of all sides (default: %(default)s)")
    parser.add_argument(
        "--rows", type=_positive, help="rows of a run, in place of each part's own number; the results are shown only"
    )
    parser.add_argument(
        "--publish", action="store_true",
        help="into benchmarks/results.json, docs/performance.md and docs/img; without it into build/benchmarks",
    )  # fmt: skip
    return parser


def _positive(text: str) -> int:
    number = int(text.replace("_", "").replace(",", ""))
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number
