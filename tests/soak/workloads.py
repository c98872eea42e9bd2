"""What runs in a soak: the names of workloads, of the writes in them and of their topics."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

TASKS = 4
ROWS = 40
"""In a micro-batch, in a batch job, and in a transaction of the producer."""

PARTITIONS = 4
RUNNING_FILE = "running"
"""In the folder of a workload whose writes are batches: the write that runs now or was the last one."""

STOP_FILE = "stop"
"""In a workload's folder: its driver ends with a write that leaves nothing open."""

HALT_FILE = "halt"
"""In a workload's folder: its driver stops the query, removes the file, and goes on with a new one."""

PLANTED = "SOAK_PLANTED"
"""Environment variable: the fault of ``planted.py`` that is in the product in this process."""


@dataclass(frozen=True)
class Write:
    """A kind of write and what it promises. Its topic has the same name.

    ``write_name``: what its transactional ids begin with, and the name of its entries in the ledger; "" at-least-once.
    ``repeats``: a run that failed is repeated under the same number. ``dead_letters``: the rows that cannot be written
    and go to ``dead_letter_topic``, by their numbers modulo ``ROWS``.
    """

    name: str
    write_name: str = ""
    repeats: bool = True
    dead_letter_topic: str = ""
    dead_letters: tuple[int, ...] = ()

    @property
    def promised(self) -> dict[str, object]:
        """What the history says of the write before anything happens."""
        return {
            "name": self.name,
            "exactly_once": bool(self.write_name),
            "repeats": self.repeats,
            "rows": ROWS,
            "topic": self.name,
            "dead_letter_topic": self.dead_letter_topic,
            "dead_letters": self.dead_letters,
        }


@dataclass(frozen=True)
class Workload:
    """Something with a driver of its own.

    ``is_query``: a stream with a checkpoint of its own, whose commits are Spark's verdicts. ``has``: what some troubles
    need: ``query``, one that can be stopped; ``point``, processes that come to the named steps of the exactly-once
    protocol; ``transactions``; ``workers``, Spark's Python processes; ``executors`` on a standalone cluster.
    """

    name: str
    writes: tuple[Write, ...]
    has: frozenset[str]
    is_query: bool = False

    @property
    def topics(self) -> list[str]:
        return [topic for write in self.writes for topic in (write.name, write.dead_letter_topic) if topic]


_EXACTLY_ONCE = frozenset({"point", "transactions", "workers"})
_PAIRS = (Write("pairs-one", "txn-pairs-one"), Write("pairs-two", "txn-pairs-two"))
LETTERS = Write("letters", "letters", dead_letter_topic="letters-dead", dead_letters=tuple(range(7, ROWS, 10)))

WORKLOADS: Mapping[str, Workload] = MappingProxyType(
    {
        workload.name: workload
        for workload in (
            Workload("pairs", _PAIRS, _EXACTLY_ONCE | {"query", "executors"}),
            Workload("letters", (LETTERS,), _EXACTLY_ONCE | {"query"}, is_query=True),
            Workload("nightly", (Write("nightly", "txn-nightly"),), _EXACTLY_ONCE),
            Workload("transfers", (Write("transfers", "transfers", repeats=False),), frozenset({"transactions"})),
            Workload("control", (Write("control"),), frozenset({"query", "workers"}), is_query=True),
        )
    }
)
"""``foreachBatch`` into two topics, on executors; a query with dead letters; jobs with ``txnAppId`` and ``txnVersion``;
transactions of the producer, without Spark; an at-least-once query, which may double rows."""


def replace_file(file: Path, text: str) -> None:
    """Readers find the old text or the new one."""
    scratch = file.with_suffix(f".{os.getpid()}")  # two drivers of a workload may be alive
    scratch.write_text(text)
    scratch.rename(file)
