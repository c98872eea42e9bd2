"""``Recorder``: an actor's pen. Each process writes a file of its own, a line at a time, which outlives a SIGKILL."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from tests.histories.events import CUT_OUT, LONGEST, Event

FOLDER, ACTOR = "HISTORY_FOLDER", "HISTORY_ACTOR"
"""Environment variables of the processes that record."""


class Recorder:
    """Writes events of ``actor`` into ``folder``. Threads may share it, and a forked process gets its own file."""

    def __init__(self, folder: Path, actor: str) -> None:
        self.actor = actor
        self._folder = folder
        self._pid = -1
        self._file = -1

    def __call__(self, kind: str, **fields: Any) -> None:
        event = Event(time.monotonic(), time.time(), self.actor, kind, fields)
        os.write(self._own_file(), (event.line() + "\n").encode())

    def _own_file(self) -> int:
        if self._pid != os.getpid():
            path = self._folder / f"{self.actor}-{os.getpid()}.jsonl"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            self._pid = os.getpid()
        return self._file


def short(text: str) -> str:
    """A text of an error as histories have it: one line of at most ``LONGEST`` characters, which are the first and the
    last of a longer text. Spark's traces are shorter. A phrase that is cut out could change what the error says."""
    line = " ".join(text.split())
    half = LONGEST // 2
    return line if len(line) <= LONGEST else f"{line[: half - 1]}{CUT_OUT}{line[-half:]}"


def recorder_of_environment() -> Recorder:
    """That of a process which a soak has started."""
    return Recorder(Path(os.environ[FOLDER]), os.environ[ACTOR])
