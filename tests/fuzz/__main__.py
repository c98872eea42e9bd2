"""``python -m tests.fuzz``: hostile bytes for everything that reads bytes from outside, one target after the other.

Each crash is kept as a file, with its trace beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.fuzz.rounds import attempt
from tests.fuzz.targets import TARGETS
from tests.repository.files import ROOT

_FOLDER = ROOT / ".cache/fuzz"
_SILENT_S = 300.0
"""A worker that finishes no round in this time is killed as hung."""


@dataclass
class Findings:
    """What was found for one target. ``places`` maps where each crash happened to the file that reproduces it."""

    runs: int = 0
    rounds: int = 0
    places: dict[str, Path] = field(default_factory=dict)


class Fuzzing:
    """Runs workers, one at a time, and keeps what they find in ``folder``."""

    def __init__(self, folder: Path, seed: int, tick: Callable[[], object]) -> None:
        self._folder = folder
        self._seed = seed
        self._tick = tick
        self.found: dict[str, Findings] = {}

    def run(self, name: str, seconds: float) -> None:
        """Fuzzes a target for this many seconds. Starts another worker when one dies."""
        self._folder.mkdir(parents=True, exist_ok=True)
        found = self.found[name] = Findings()
        until = time.monotonic() + seconds
        with tempfile.NamedTemporaryFile() as current:
            while (left := until - time.monotonic()) > 0:
                seed = self._seed + found.rounds
                status = self._follow(found, name, [name, str(seed), str(left), current.name])
                if status > 0:
                    raise RuntimeError(f"the worker of {name} failed; its error is above")
                if status:
                    found.rounds += 1  # the next worker begins behind the round that ended this one
                    data = Path(current.name).read_bytes()
                    place = f"signal {-status} ended the process that read {_name_of(data)}"
                    self._keep(found, name, data, place, "")

    def _follow(self, found: Findings, name: str, arguments: list[str]) -> int:
        """Takes the lines of one worker. Returns its exit code."""
        command = [sys.executable, "-m", "tests.fuzz.worker", *arguments]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            try:
                for line in _lines_of(worker):
                    said: dict[str, Any] = json.loads(line)
                    found.rounds += 1
                    found.runs += said["runs"]
                    if "data" in said:
                        self._keep(found, name, b64decode(said["data"]), said["place"], said["text"])
                    self._tick()
            except BaseException:
                worker.kill()
                raise
        return worker.returncode

    def _keep(self, found: Findings, name: str, data: bytes, place: str, text: str) -> None:
        if place in found.places:
            return
        path = self._folder / f"{name}-{_name_of(data)}"
        path.write_bytes(data)
        path.with_suffix(".txt").write_text(f"{place}\n{text}")
        found.places[place] = path


def _name_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def _lines_of(worker: subprocess.Popen[str]) -> Iterator[str]:
    """The lines of the worker, which is killed when none comes for a long time."""
    assert worker.stdout is not None
    while True:
        watchdog = threading.Timer(_SILENT_S, worker.kill)
        watchdog.start()
        try:
            line = worker.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            return
        yield line


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20, help="for all targets together (default: %(default)g)")
    parser.add_argument(
        "--target", action="append", choices=TARGETS, metavar="TARGET",
        help=f"may be repeated (default: all of {', '.join(TARGETS)})",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of the first round (default: %(default)d)")
    parser.add_argument("--folder", type=Path, default=_FOLDER, help="where crashes are kept (default: %(default)s)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="let its target read a kept crash once more")
    arguments = parser.parse_args()
    console = Console()
    if arguments.replay is not None:
        raise SystemExit(_replay(console, arguments.replay))
    names = arguments.target or list(TARGETS)
    raise SystemExit(_fuzz(console, names, arguments))


def _fuzz(console: Console, names: list[str], arguments: argparse.Namespace) -> int:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    seconds = 60 * arguments.minutes / len(names)
    with Progress(*columns, console=console) as progress:
        shown = progress.add_task("", total=round(60 * arguments.minutes))
        began = time.monotonic()
        fuzzing = Fuzzing(
            arguments.folder, arguments.seed, lambda: progress.update(shown, completed=round(time.monotonic() - began))
        )
        try:
            for name in names:
                progress.update(shown, description=name)
                fuzzing.run(name, seconds)
                if not console.is_terminal:
                    console.print(_line(name, fuzzing.found[name]), soft_wrap=True)
        except KeyboardInterrupt:
            console.print("interrupted")
    console.print(_table(fuzzing.found))
    return int(any(found.places for found in fuzzing.found.values()))


def _line(name: str, found: Findings) -> str:
    return f"{name}: {found.runs} inputs in {found.rounds} rounds, {len(found.places)} crashes"


def _table(found: dict[str, Findings]) -> Table:
    table = Table("target", "inputs", "crashes", "kept in", title=f"{sum(each.runs for each in found.values())} inputs")
    for name, each in found.items():
        crashes = [f"{place}" for place in each.places]
        files = [str(path) for path in each.places.values()]
        table.add_row(name, str(each.runs), "\n".join(crashes), "\n".join(files))
    return table


def _replay(console: Console, path: Path) -> int:
    name = max((each for each in TARGETS if path.name.startswith(f"{each}-")), key=len, default=None)
    if name is None:
        console.print(f"{path.name} does not begin with the name of a target")
        return 2
    crash = attempt(TARGETS[name], path.read_bytes())
    console.print("no crash" if crash is None else crash.text, soft_wrap=True, markup=False)
    return int(crash is not None)


if __name__ == "__main__":
    main()
