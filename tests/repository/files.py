"""The files of this repository, without asking git: a source archive has none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "spark_kafka_sink"

# What tools leave behind, see .gitignore.
_NOT_OURS = {"__pycache__", "build", "dist", "metastore_db", "spark-warehouse", "artifacts", "derby.log"}
_OURS_WITH_A_DOT = {".ci", ".gitignore", ".importlinter"}


def source_files() -> Iterator[Path]:
    """Every text file of the repository but generated ones, relative to the root."""
    for top in ROOT.iterdir():
        if top.name in _NOT_OURS or (top.name.startswith(".") and top.name not in _OURS_WITH_A_DOT):
            continue
        for path in [top] if top.is_file() else top.rglob("*"):
            if path.is_file() and not _NOT_OURS.intersection(path.relative_to(ROOT).parts) and _is_text(path):
                yield path.relative_to(ROOT)


def _is_text(path: Path) -> bool:
    with path.open("rb") as file:
        return b"\0" not in file.read(1024)
