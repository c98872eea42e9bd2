"""What runs in a soak: the names of workloads, of the writes in them and of their topics."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tests.histories.events import workload_of, write_of

TASKS = 4
ROWS = 40
"""In a micro-batch, and in a batch job."""

PARTITIONS = 4
OPTIONS_FILE = "options.json"
"""In a workload's folder: options that its drivers write with instead of their own."""

RUNNING_FILE = "running"
"""In the folder of a workload whose writes are batches: the write that runs now or was the last one."""

HALT_FILE = "halt"
"""In a workload's folder: its driver stops the query, removes the file, and goes on with a new one."""

DRIVER_HOST = "127.0.0.5"
"""Where executors reach their driver: by gates at the ports that ``DRIVER_PORTS`` in its environment names."""

DRIVER_PORTS = "HISTORY_DRIVER_PORTS"

# Confluent's wire format: a magic byte, four bytes with the id that the registry gave to the schema, and Avro.
_MAGIC, _AVRO = b"\0", 5


@dataclass(frozen=True)
class Write:
    """A kind of write and what it promises. Its topic has the same name.

    ``write_name``: the name that its transactional ids and its entries in the ledger have; "" at-least-once. A write
    that is not repeated has another name each time: this one, and its number. ``repeats``: a run that failed is
    repeated under the same number. ``dead_letters``: the rows that cannot be written and go to
    ``dead_letter_topic``, by their numbers modulo ``ROWS``.
    """

    name: str
    write_name: str = ""
    repeats: bool = True
    dead_letter_topic: str = ""
    dead_letters: tuple[int, ...] = ()

    @property
    def exactly_once(self) -> bool:
        return bool(self.write_name)


@dataclass(frozen=True)
class Workload:
    """Something with a driver of its own. ``topics`` have its rows.

    ``is_query``: a stream with a checkpoint of its own, whose commits are Spark's verdicts. ``in_batches``: a query
    whose ``foreachBatch`` writes. ``has_executors``: it runs on a standalone cluster. ``spark``: a version of Spark
    that has an environment of its own; "" is the one at hand.
    """

    name: str
    writes: tuple[Write, ...]
    topics: tuple[str, ...]
    is_query: bool = False
    in_batches: bool = False
    has_executors: bool = False
    spark: str = ""


PAIRS = Workload(
    "pairs",
    (Write("pairs-one", "txn-pairs-one"), Write("pairs-two", "txn-pairs-two")),
    ("pairs-one", "pairs-two"),
    in_batches=True,
    has_executors=True,
)
_LETTERS = Write("letters", "letters", dead_letter_topic="letters-dead", dead_letters=tuple(range(7, ROWS, 10)))
LETTERS = Workload("letters", (_LETTERS,), ("letters", "letters-dead"), is_query=True)
NIGHTLY = Workload("nightly", (Write("nightly", "txn-nightly"),), ("nightly",))
ONCE = Workload("once", (Write("once", "txn-once", repeats=False),), ("once",))
OLDEST = Workload("oldest", (Write("oldest", "txn-oldest"),), ("oldest",), spark="3.5")
CONTROL = Workload("control", (Write("control"),), ("control",), is_query=True)

WORKLOADS: Mapping[str, Workload] = MappingProxyType(
    {workload.name: workload for workload in (PAIRS, LETTERS, NIGHTLY, ONCE, OLDEST, CONTROL)}
)
"""``foreachBatch`` into two topics, on executors; a query with dead letters and Avro; jobs with ``txnAppId`` and
``txnVersion``; one-off jobs, each under a name of its own; ``write_kafka`` on the oldest Spark; an at-least-once query,
which may double rows."""


def replace_file(file: Path, text: str) -> None:
    """Readers find the old text or the new one."""
    scratch = file.with_suffix(f".{os.getpid()}")  # two drivers of a workload may be alive
    scratch.write_text(text)
    scratch.rename(file)


def has_its_value(row: str, value: bytes | None) -> bool:
    """Whether a record of this row has the value that its driver has written: the row's number, as text, or as Avro in
    the rows of ``letters``. A dead letter has the value that its row would have had."""
    number = row.rsplit("/", 1)[-1]
    if workload_of(write_of(row)) != _LETTERS.name:
        return value == number.encode()
    return value is not None and number.isdecimal() and value[:1] == _MAGIC and value[_AVRO:] == _avro(int(number))


def _avro(number: int) -> bytes:
    """A record with one field, a union of long and null: the index of the long, and its zigzag varint."""
    left, parts = number << 1, []
    while left > 0x7F:
        parts.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((0, *parts, left))


def python_of(workload: Workload) -> Path | None:
    """The Python that has its Spark, as ``make test-spark-3.5`` installs it; None if it is not there."""
    if not workload.spark:
        return Path(sys.executable)
    python = Path(__file__).parents[2] / ".cache" / f"spark-{workload.spark}" / "bin" / "python"
    return python if python.exists() else None
