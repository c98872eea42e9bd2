"""Plants each fault into a copy of the package, and runs the tests that must catch it: ``python -m tests.planted``.

Arguments: words of the faults to plant, or of their groups; without any, all of them. Ends with 1 if a fault was not
caught or has no place in the code, or if a test fails without a fault.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from rich.console import Console
from rich.progress import track

from tests.planted.faults import FAULTS, Fault
from tests.repository.files import ROOT

_COPIED = ("spark_kafka_sink", "pyspark_pykafka", "tests", "jobs", "conf", "docs", "benchmarks", "pyproject.toml")
_AT_ONCE = 2
_TIMEOUT_S = 900


def main(words: Sequence[str]) -> int:
    chosen = [each for each in FAULTS if all(word in f"{each.group}: {each.name}" for word in words)]
    console, began = Console(), time.monotonic()
    copies: SimpleQueue[Path] = SimpleQueue()

    def caught_by(fault: Fault) -> str:
        copy = copies.get()
        try:
            return _caught_by(copy, fault)
        except ValueError as error:
            console.print(str(error), markup=False)
            return ""
        finally:
            copies.put(copy)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(_AT_ONCE) as pool:
        for number in range(_AT_ONCE):
            copies.put(_copied(Path(folder, str(number))))
        failing = copies.get()
        if reason := _failure(failing, sorted({path for fault in chosen for path in fault.test.split()})):
            console.print(f"Fails without a fault: {reason}", markup=False)
            return 1
        copies.put(failing)
        caught: Counter[str] = Counter()
        results = zip(chosen, pool.map(caught_by, chosen), strict=True)
        for fault, test in track(results, "Planting", len(chosen), console=console):
            console.print(f"{fault.group}: {fault.name}: {test or 'NOT CAUGHT'}", markup=False, soft_wrap=True)
            caught[fault.group] += bool(test)
    planted = Counter(fault.group for fault in chosen)
    console.print(*(f"{group}: {caught[group]} of {count} caught," for group, count in planted.items()), end=" ")
    console.print(f"in {time.monotonic() - began:.0f} s")
    return 0 if caught == planted else 1


def _copied(to: Path) -> Path:
    to.mkdir()
    for name in _COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, to / name)
    return to


def _caught_by(copy: Path, fault: Fault) -> str:
    """The name of the first test that fails with the fault, "" if none does."""
    file = copy / "spark_kafka_sink" / fault.file
    text = file.read_text()
    file.write_text(planted(text, fault))
    try:
        return _failure(copy, fault.test.split())
    finally:
        file.write_text(text)


def _failure(copy: Path, tests: Iterable[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not jvm and not slow", "-p", "no:cacheprovider", *tests],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    failed = (line.removeprefix("FAILED ") for line in done.stdout.splitlines() if line.startswith("FAILED "))
    return next((line.partition(" - ")[0] for line in failed), "")


def planted(text: str, fault: Fault) -> str:
    """The file's text with the fault. Raises ``ValueError`` if the place is not there once."""
    if text.count(fault.was) != 1:
        raise ValueError(f"{fault.file} has {fault.was!r} {text.count(fault.was)} times, for: {fault.name}")
    return text.replace(fault.was, fault.becomes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
