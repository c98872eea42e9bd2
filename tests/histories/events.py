"""The format of a history: one JSON object a line, one line for everything that an actor did or saw.

Every event has ``at`` (CLOCK_MONOTONIC in seconds, one clock for all processes of the machine), ``wall`` (epoch
seconds), ``actor`` and ``kind``. The other fields depend on the kind:

=========== ============================================================================================================
workload    ``name``; ``exactly_once``; ``repeats``: a write that failed is run again under its number; ``rows`` of each
            write; ``topic`` where they belong; ``dead_letter_topic``, "" for none; ``dead_letters``: the numbers,
            modulo ``rows``, of the rows that belong there (older histories do not have the last three)
began       ``write``, ``start``: a driver starts a run of it
handed      ``write``, ``task``, ``attempt``, ``rows``: Spark has handed rows to the sink in a task
failed      ``write``, ``task``, ``attempt``, ``error``: the task raised
reported    ``write``, ``entry`` (its name in the ledger), ``task``, ``attempt``, ``action``, ``transaction``,
            ``places``: per partition ``[topic, partition, first offset, last offset, count]``; ``topics``: the
            incarnation of each topic that the task wrote to, if the sink knows it
intent      ``entry``, ``start``, ``state``, ``transactions``, ``outcome``: asked, decided, not decided or unknown
end         ``transaction``, ``commit``, ``outcome``: asked, committed, aborted, gone or undecided
verdict     ``write`` or ``entry``, ``start``, ``by`` (sink or spark), ``outcome``: committed or failed; ``error``
            (of a text that is longer than 64 KiB, the first and the last half of that; ``is_cut``)
gave up     ``entry``, ``start``, ``text``: the sink's abort has said what became of the write
trusted     ``write`` or the name of a query, ``ledger_start``: given to its next run, because the sink has refused to
            skip a committed write whose topic was created again
topic       ``topic``, ``incarnation``, ``phase``: created or deleted
seen        ``reader``, ``isolation``, ``topic``, ``partition``, ``incarnation``, ``rows``: ``[offset, row]``
passed      ``reader``, ``isolation``, ``topic``, ``partition``, ``incarnation``, ``offset``: the reader has everything
            below it
fault       ``name``, ``workload``, ``phase``: begins, ends or missed
late        ``api``, ``repeated``: a request arrives that a proxy has held back; whether its repetition came before it
driver      ``workload``, ``start``, ``phase``: started, or session when it has a session of Spark
step        ``start``, ``step``: the driver has come to this step of planning
ended       ``trouble``: why the run ended before its time, "" if it did not (older histories do not say so)
=========== ============================================================================================================

A row is named ``workload/number/row``, which is the key of its record; ``workload/number`` is its write, and ``row`` is
its own number. If a record does not have the value that the driver gave to Spark for its row, readers add the value to
the name, which then is that of no row. An ``attempt`` is unique among all attempts of the workload, and begins with the
``start`` of its driver and a hyphen. A ``start`` tells the drivers of a workload apart, of which two may be alive. A
transaction is its id, producer id and epoch. What an error says about the decision, the checker takes from its text
(``claims.py``). An ``incarnation`` is the id of a topic, which has another one when it is created again. Histories of
runs in which no topic could be created again have none. ``ended`` is the last event that the soak itself records; a run
that was interrupted has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIVE, RAW = "live", "raw"
"""The readers that read all the time; the first one reads what is committed."""

KINDS = frozenset(
    {
        "workload",
        "began",
        "handed",
        "failed",
        "reported",
        "intent",
        "end",
        "verdict",
        "gave up",
        "trusted",
        "topic",
        "seen",
        "passed",
        "fault",
        "late",
        "driver",
        "step",
        "ended",
    }
)


CUT_OUT = "…"
LONGEST = 65_536
_LONGEST_ONCE = 4_000
"""What stands in the middle of a text that was cut, and how long it is then; in older histories it is shorter."""


@dataclass(frozen=True)
class Event:
    """One line of a history. ``fields``: those of its kind."""

    at: float
    wall: float
    actor: str
    kind: str
    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def get(self, name: str) -> Any:
        """The field, None if the event does not have it."""
        return self.fields.get(name)

    def line(self) -> str:
        common = {"at": self.at, "wall": self.wall, "actor": self.actor, "kind": self.kind}
        return json.dumps({**common, **self.fields}, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def parse(cls, line: str) -> Event:
        """Raises ``ValueError`` for anything but an event."""
        fields = json.loads(line)
        try:
            common = [fields.pop(name) for name in ("at", "wall", "actor", "kind")]
        except (KeyError, AttributeError) as error:
            raise ValueError(f"not an event: {line[:100]}") from error
        if common[3] not in KINDS:
            raise ValueError(f"{common[3]!r} is no kind of event")
        return cls(*common, fields)


def is_cut(text: str) -> bool:
    """Whether a recorder has cut something out of the text."""
    return len(text) in (LONGEST, _LONGEST_ONCE) and text[len(text) // 2 - 1] == CUT_OUT


def write_of(row: str) -> str:
    return row.rsplit("/", 1)[0]


def start_of(attempt: str) -> str | None:
    """The driver of an attempt, None if its name does not say it."""
    start, hyphen, _ = attempt.partition("-")
    return start if hyphen else None


def workload_of(write: str) -> str:
    return write.rsplit("/", 1)[0]


def number_of(name: str) -> int:
    """The last part of the name of a write or a row."""
    return int(name.rsplit("/", 1)[1])


def read_history(files: Iterable[Path]) -> list[Event]:
    """The events of all files in the order in which they happened.

    A process that was killed may leave half a line at the end of its file, which is left out. Any other line that is no
    event raises ``ValueError``.
    """
    found = [event for file in files for event in _events(file)]
    return sorted(found, key=lambda event: event.at)


def write_history(events: Iterable[Event], file: Path) -> None:
    with file.open("w", encoding="utf-8") as lines:
        lines.writelines(event.line() + "\n" for event in events)


def _events(file: Path) -> Iterator[Event]:
    text = file.read_text(encoding="utf-8", errors="replace")
    whole, _, _ = text.rpartition("\n")
    return (Event.parse(line) for line in whole.split("\n") if line)
