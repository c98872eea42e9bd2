"""Results as a JSON file: one entry per part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from benchmarks.model import Result, Run, Session


def load(file: Path) -> dict[str, Result]:
    """By the name of the part; nothing when there is no such file."""
    if not file.exists():
        return {}
    return {
        entry["part"]: Result(
            entry["part"],
            tuple(Session(**session) for session in entry["sessions"]),
            tuple(Run(**run) for run in entry["runs"]),
        )
        for entry in json.loads(file.read_text())
    }


def save(file: Path, results: Mapping[str, Result]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    entries = [asdict(result) for result in results.values()]
    file.write_text(json.dumps(entries, indent=1, default=_plain) + "\n")


def _plain(value: object) -> object:
    raise TypeError(f"{value!r} has no place in the results")
