"""The command line."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.model import Kind, Part, Result, Run, Session
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
  python -m benchmarks goals --rounds 5          the parts of which a figure next to others is claimed
  python -m benchmarks --goals                   which figures are reached, by the published results
  python -m benchmarks all --rows 100000 --rounds 1   is everything in working order? (the figures mean nothing)
  python -m benchmarks all --publish             what docs/benchmarks.md shows: with nothing else running
  python -m benchmarks --pages                   the published pages and plots anew, from benchmarks/results.json
  python -m benchmarks lz4 --rounds 2 --more --publish   two more rounds of a part of the same commit

Needs Java 17, 4 GB of memory and 3 GB of disk. The first run fetches Kafka (43 MB) and Spark's sink (10 MB).
"""

_ROOT = Path(__file__).parents[1]


class Places(NamedTuple):
    """Where results go: all parts' as JSON, Markdown pages with them between markers, a folder of plots."""

    results: Path
    pages: tuple[Path, ...]
    plots: Path

    def draw(self) -> None:
        """Pages and plots anew, from the results."""
        from benchmarks.page import fill
        from benchmarks.plots import plot
        from benchmarks.results import load

        results = load(self.results)
        for page in self.pages:
            fill(page, results)
        plot(self.plots, results)


PUBLISHED = Places(
    _ROOT / "benchmarks/results.json",
    (_ROOT / "README.md", _ROOT / "docs/performance.md", _ROOT / "docs/benchmarks.md", _ROOT / "benchmarks/GOALS.md"),
    _ROOT / "docs/img",
)
OWN = Places(_ROOT / "build/benchmarks/results.json", (), _ROOT / "build/benchmarks")

LISTED_ROUNDS = 5

Runner = Callable[[Part, int, "Harness"], Iterator[Run]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 when every part ran and all rows were there, 1 when not, 2 for a wrong command line."""
    asked = _parser().parse_args(arguments)
    if asked.pages:
        PUBLISHED.draw()
        return 0
    if asked.list or asked.goals:
        print("\n".join(_list()) if asked.list else _goals())
        return 0
    places = PUBLISHED if asked.publish else OWN
    asked_for = [asked.parts] if isinstance(asked.parts, str) else asked.parts
    wanted = dict.fromkeys(name for each in asked_for for name in GROUPS.get(each, (each,)))
    parts = [BY_NAME[name] if asked.rows is None else replace(BY_NAME[name], rows=asked.rows) for name in wanted]
    failed = _run(parts, asked.rounds, None if asked.rows else _Keeper(places, asked.more))
    for name, error in failed.items():
        print(f"error: {name}: {error!r}", file=sys.stderr)
    return 1 if failed else 0


def _run(parts: Iterable[Part], rounds: int, keeper: _Keeper | None) -> Mapping[str, Exception]:
    """Runs the parts; each one's results are on disk before the next begins. Says which failed.

    ``keeper`` None: nothing is written.
    """
    from benchmarks.environment import environment
    from benchmarks.harness import Harness
    from benchmarks.page import details, goals

    failed: dict[str, Exception] = {}
    runners = _runners()
    with Harness() as harness:
        for part in parts:
            print(f"\n{part.name}: {part.what}", flush=True)
            at, started, described = time.strftime("%Y-%m-%d %H:%M"), time.monotonic(), environment()
            runs = []
            harness.run_on(part.master)
            try:
                for run in runners[part.kind](part, rounds, harness):
                    runs.append(run)
                    print(_line(run), flush=True)
            except Exception as error:  # the other parts are worth having
                failed[part.name] = error
                continue
            session = Session(at, runs[-1].round, round(time.monotonic() - started), described)
            result = Result(part.name, (session,), tuple(runs))
            if keeper is not None:
                result = keeper.keep(result)
            shown = goals({part.name: result}) if part.targets else ""
            print(f"\n{details(part, result)}\n\n{shown}\n{session.seconds} s", flush=True)
    return failed


class _Keeper:
    """Writes results where they go. ``more``: new rounds follow on those that are there, of the same code."""

    def __init__(self, places: Places, more: bool) -> None:
        self._places = places
        self._more = more

    def keep(self, result: Result) -> Result:
        """What is kept of the part now."""
        from benchmarks.results import load, save

        places = self._places
        results = load(places.results)
        if self._more and (earlier := results.get(result.part)) is not None:
            if same_code(earlier, result):
                result = earlier.followed_by(result)
            else:
                print(f"{earlier.rounds} rounds of other code or another machine are replaced", file=sys.stderr)
        results = {**results, result.part: result}
        results = {name: results[name] for name in BY_NAME if name in results}
        save(places.results, results)
        places.draw()
        return result


def same_code(one: Result, other: Result) -> bool:
    """Also on the same machine, with the same versions: everything of the environment but the load."""
    first, second = ({**each.sessions[-1].environment, "load": ""} for each in (one, other))
    return first == second


def _runners() -> Mapping[Kind, Runner]:
    from benchmarks.batch_part import run_batches, run_first_writes
    from benchmarks.commit_part import run_commits
    from benchmarks.dead_letters_part import run_dead_letters
    from benchmarks.encoding_part import run_encoders
    from benchmarks.import_part import run_imports
    from benchmarks.producer_part import run_producers
    from benchmarks.profile_part import run_profiles
    from benchmarks.real_time_part import run_real_time
    from benchmarks.stream_part import run_aging, run_streams

    return {
        "batch": run_batches,
        "first": run_first_writes,
        "stream": run_streams,
        "aging": run_aging,
        "commit": run_commits,
        "send": run_producers,
        "latency": run_producers,
        "import": run_imports,
        "encoding": run_encoders,
        "letters": run_dead_letters,
        "profile": run_profiles,
        "real-time": run_real_time,
    }


def _line(run: Run) -> str:
    from benchmarks.measures import MEASURES

    figures = (f"{MEASURES[name].heading} {MEASURES[name].shown.format(run.measures[name])}" for name in run.measures)
    return f"  {run.round}  {run.side:<28} {'  '.join(figures)}"


def _list() -> Iterator[str]:
    """With the minutes that five rounds take, by the last published run."""
    from benchmarks.results import load

    results = load(PUBLISHED.results)
    minutes = {name: _minutes(BY_NAME[name], result) for name, result in results.items() if name in BY_NAME}
    for part in PARTS:
        took = f"{minutes[part.name]:.1f} min" if part.name in minutes else "? min"
        yield f"{part.name:<20} {took:>8}  {part.what} ({part.rows:,} rows; {', '.join(s.name for s in part.sides)})"
    for group, names in GROUPS.items():
        yield f"{group:<20} {sum(minutes.get(name, 0) for name in names):>4.0f} min  = {' '.join(names)}"


def _minutes(part: Part, result: Result) -> float:
    session = result.sessions[-1]
    return session.seconds / 60 * min(LISTED_ROUNDS, part.most_rounds or LISTED_ROUNDS) / session.rounds


def _goals() -> str:
    from benchmarks.page import goals
    from benchmarks.results import load

    return goals(load(PUBLISHED.results))


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
    parser.add_argument("--list", action="store_true", help="show the parts: what, how many rows, whose, how long")
    parser.add_argument(
        "--pages", action="store_true", help="write the published pages and plots anew, from the results"
    )
    parser.add_argument("--goals", action="store_true", help="show which figures are wanted, and which are reached")
    parser.add_argument("--rounds", type=_positive, default=3, help="rounds of all sides (default: %(default)s)")
    parser.add_argument(
        "--rows", type=_positive, help="rows of a run, in place of each part's own number; the results are shown only"
    )
    parser.add_argument(
        "--publish", action="store_true",
        help="into benchmarks/results.json, the pages and docs/img; without it into build/benchmarks",
    )  # fmt: skip
    parser.add_argument(
        "--more", action="store_true", help="add the rounds to those of the same commit, versions and machine"
    )
    return parser


def _positive(text: str) -> int:
    number = int(text.replace("_", "").replace(",", ""))
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number
