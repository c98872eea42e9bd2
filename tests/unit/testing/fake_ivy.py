"""A java that answers ``-version``, and as Ivy copies files to where ``-retrieve`` says."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_sink.testing.maven import CACHE_VARIABLE

_JAVA = """#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "17.0.1"' >&2; exit 0; fi
echo run >> "{runs}"
for last; do [ "$before" = -cache ] && cache=$last; before=$last; done
{do}
"""


class FakeIvy:
    """The cache is ``folder/cache``."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(CACHE_VARIABLE, str(folder / "cache"))
        monkeypatch.setenv("JAVA_HOME", str(folder / "java"))
        (folder / "java/bin").mkdir(parents=True)
        self._java = folder / "java/bin/java"
        self._log = folder / "runs"

    def does(self, shell: str) -> None:
        """``$last``: the pattern of ``-retrieve``; ``$cache``: the folder of ``-cache``."""
        self._java.write_text(_JAVA.format(runs=self._log, do=shell))
        self._java.chmod(0o755)

    def copies(self, files: str) -> None:
        self.does(f'cp {files} "$(dirname "$last")"')

    def runs(self) -> int:
        """How often it was asked to fetch."""
        return len(self._log.read_text().splitlines()) if self._log.exists() else 0


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))
