"""Plants each fault into a copy of the package, and runs the tests that must catch it: ``make test-planted``.

Arguments: words of the groups and names to plant. Ends with 1 if a fault is not caught or has no place in the code, or
if a test also fails without a fault.
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
from subprocess import PIPE

from rich.console import Console
from rich.progress import track

from tests.planted.faults import FAULTS, Fault
from tests.repository.files import PACKAGE, ROOT

_COPIED = (PACKAGE.name, "pyspark_pykafka", "tests", "jobs", "conf", "docs", "benchmarks")
_AT_ONCE, _LIMIT_S = 2, 900


def main(words: Sequence[str]) -> int:
    chosen = [fault for fault in FAULTS if all(word in f"{fault.group}: {fault.name}" for word in words)]
    console, began, caught = Console(soft_wrap=True, markup=False), time.monotonic(), Counter[str]()
    tests = sorted({path for fault in chosen for path in fault.test.split()})
    copies: SimpleQueue[Path] = SimpleQueue()

    def result(fault: Fault | None) -> str:
        copy = copies.get()
        try:
            return _failure(copy, tests) if fault is None else _caught_by(copy, fault)
        finally:
            copies.put(copy)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(_AT_ONCE) as pool:
        for number in range(_AT_ONCE):
            copies.put(_copied(Path(folder, str(number))))
        sound = pool.submit(result, None)
        results = zip(chosen, pool.map(result, chosen), strict=True)
        for fault, test in track(results, "Planting", len(chosen), console=console):
            console.print(f"{fault.group}: {fault.name}: {f'caught by {test}' if test else 'NOT CAUGHT'}")
            caught[fault.group] += bool(test)
    for group, count in Counter(fault.group for fault in chosen).items():
        console.print(f"{group}: {caught[group]} of {count} caught")
    if reason := sound.result():
        console.print(f"This test fails without a fault, too: {reason}")
    console.print(f"All: {caught.total()} of {len(chosen)} caught in {time.monotonic() - began:.0f} s")
    return 1 if reason or caught.total() < len(chosen) else 0


def _copied(to: Path) -> Path:
    for name in _COPIED:
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", to)
    return to


def _caught_by(copy: Path, fault: Fault) -> str:
    """The name of the first test that fails with the fault, "" if none does or if the fault has no place."""
    file = copy / PACKAGE.name / fault.file
    text = file.read_text()
    try:
        file.write_text(planted(text, fault))
        return _failure(copy, fault.test.split())
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return ""
    finally:
        file.write_text(text)


def _failure(copy: Path, tests: Iterable[str]) -> str:
    """The name of the first test that fails, "" if none does."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not jvm and not slow", "-p", "no:cacheprovider"]
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(copy.parent / "bytecode")}
    own = {**os.environ, **bytecode, "PYTHONPATH": str(copy)}
    done = subprocess.run([*command, *tests], cwd=copy, env=own, stdout=PIPE, text=True, timeout=_LIMIT_S, check=False)
    lines = (line.removeprefix("FAILED ") for line in done.stdout.splitlines() if line.startswith("FAILED "))
    return next((line.partition(" - ")[0] for line in lines), "")


def planted(text: str, fault: Fault) -> str:
    """The file's text with the fault. Raises ``ValueError`` if the place is not there once."""
    if (found := text.count(fault.was)) != 1:
        raise ValueError(f"{fault.file} has {fault.was!r} {found} times, for: {fault.name}")
    return text.replace(fault.was, fault.becomes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
