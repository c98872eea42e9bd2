"""The format of a history: one JSON object a line, one line for everything that an actor did or saw.

Every event has ``at`` (CLOCK_MONOTONIC in seconds, one clock for all processes of the machine), ``wall`` (epoch
seconds), ``actor`` and ``kind``. The other fields depend on the kind:

=========== ============================================================================================================
workload    ``name``; ``exactly_once``; ``repeats``: a write that failed is run again under its number; ``rows`` of each
            write; ``topic`` where they belong; ``dead_letter_topic``, "" for none; ``dead_letters``: the numbers,
            modulo ``rows``, of the rows that belong there
began       ``write``, ``start``: a driver starts a run of it
handed      ``write``, ``task``, ``attempt``, ``rows``: the sink or the producer is given rows
reported    ``write``, ``entry`` (its name in the ledger), ``task``, ``attempt``, ``transaction``, ``places``: what was
            acknowledged, per partition ``[topic, partition, first offset, last offset, count]``
intent      ``entry``, ``start``, ``transactions``, ``outcome``: asked, decided, not decided or unknown. The commit of a
            producer's transaction is one.
end         ``transaction``, ``commit``, ``outcome``: committed, aborted, gone or undecided
verdict     ``write`` or ``entry``, ``start``, ``by`` (sink, or job for what the job was told), ``outcome``: committed
            or failed; ``error``
gave up     ``entry``, ``start``, ``text``: the sink's abort has said what became of the write
seen        ``reader``, ``isolation``, ``topic``, ``partition``, ``rows``: ``[offset, row]``
passed      ``reader``, ``isolation``, ``topic``, ``partition``, ``offset``: the reader has everything below it
fault       ``name``, ``workload``, ``phase``: begins, ends or missed
ended       ``trouble``: why the run ended before its time, "" if it did not; the last event of a run
=========== ============================================================================================================

A row is named ``workload/number/row``, which is the key of its record; ``workload/number`` is its write, and ``row`` is
its own number. If a record does not have the value that the driver gave for its row, readers add the value to the name,
which then is that of no row. An ``attempt`` is unique among all attempts of the workload, and begins with the ``start``
of its driver and a hyphen. A ``start`` tells the drivers of a workload apart, of which two may be alive. A transaction
is three values that name it among all: its id, producer id and epoch. What an error says about the decision, the
checker takes from its text (``claims.py``).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
FOLDER, ACTOR = "HISTORY_FOLDER", "HISTORY_ACTOR"
"""Environment variables of the processes that record."""


Event = Mapping[str, Any]
"""One line of a history."""


class Recorder:
    """Writes events of ``actor`` into ``folder``: a file for each process, a line at a time, which outlives a SIGKILL.

    Threads may share it, and a forked process gets its own file.
    """

    def __init__(self, folder: Path, actor: str) -> None:
        self._folder = folder
        self._actor = actor
        self._pid = -1
        self._file = -1

    def __call__(self, kind: str, **fields: Any) -> None:
        event = {"at": time.monotonic(), "wall": time.time(), "actor": self._actor, "kind": kind, **fields}
        line = json.dumps(event, separators=(",", ":"), ensure_ascii=False)
        os.write(self._own_file(), f"{line}\n".encode(errors="backslashreplace"))

    def _own_file(self) -> int:
        if self._pid != os.getpid():
            path = self._folder / f"{self._actor}-{os.getpid()}.jsonl"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            self._pid = os.getpid()
        return self._file


def recorder_of_environment() -> Recorder:
    """That of a process which a soak has started."""
    return Recorder(Path(os.environ[FOLDER]), os.environ[ACTOR])


def write_of(row: str) -> str:
    return row.rsplit("/", 1)[0]


def start_of(attempt: str) -> str:
    """The driver of an attempt."""
    return attempt.partition("-")[0]


def workload_of(write: str) -> str:
    return write.rsplit("/", 1)[0]


def number_of(name: str) -> int:
    """The last part of the name of a write or a row."""
    return int(name.rsplit("/", 1)[1])


def read_history(folder: Path) -> list[Event]:
    """The events of all files in the folder in the order in which they happened.

    A process that was killed may leave half a line at the end of its file, which is left out. Any other line that is no
    event raises ``ValueError``.
    """
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in sorted(folder.glob("*.jsonl"))]
    lines = [line for text in texts for line in text.rpartition("\n")[0].split("\n") if line]
    return sorted(map(json.loads, lines), key=lambda event: event["at"])


def rows_seen(events: Iterable[Event], isolation: str) -> set[str]:
    """Those that any reader of this kind saw."""
    seen = (event for event in events if event["kind"] == "seen" and event["isolation"] == isolation)
    return {row for event in seen for _, row in event["rows"]}
