"""Plants each fault into a copy of the package, and runs the tests that must find it: ``python -m tests.planted``.

Arguments: words of the faults to plant; without any, all of them. Ends with 1 if a fault was not found.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from tests.planted.faults import FAULTS, Fault
from tests.repository.files import ROOT

_COPIED = ("spark_kafka_sink", "pyspark_pykafka", "tests", "jobs", "conf", "docs", "benchmarks", "pyproject.toml")
_TIMEOUT_S = 900


def main(words: Sequence[str]) -> int:
    chosen = [fault for fault in FAULTS if all(word in fault.name for word in words)]
    console = Console()
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in _COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, copy / name)
        for fault in track(chosen, "Planting", console=console):
            found_by = _found_by(copy, fault)
            console.print(f"{fault.name}: {', '.join(found_by) or 'NOT FOUND'}", markup=False)
            if not found_by:
                missed.append(fault)
    return 1 if missed else 0


def _found_by(copy: Path, fault: Fault) -> list[str]:
    """The names of the tests that fail with the fault; at most three."""
    file = copy / "spark_kafka_sink" / fault.file
    text = file.read_text()
    file.write_text(planted(text, fault))
    try:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--maxfail=3", "-m", "not jvm and not slow"]
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", *fault.test.split()],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    finally:
        file.write_text(text)
    lines = [line.removeprefix("FAILED ") for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    return [line.partition(" - ")[0].rpartition("::")[2] for line in lines]


def planted(text: str, fault: Fault) -> str:
    """The file's text with the fault. Raises ``ValueError`` if the place is not there once."""
    if text.count(fault.was) != 1:
        raise ValueError(f"{fault.file} has {fault.was!r} {text.count(fault.was)} times, for: {fault.name}")
    return text.replace(fault.was, fault.becomes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
