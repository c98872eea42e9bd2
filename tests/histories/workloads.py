"""What runs in a soak: the names of workloads, of the writes in them and of their topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

TASKS = 4
ROWS = 40
"""In a micro-batch, and in a batch job."""

PARTITIONS = 4


@dataclass(frozen=True)
class Write:
    """A kind of write and what it promises. ``repeats``: a run that failed is repeated under the same number."""

    name: str
    exactly_once: bool = True
    repeats: bool = True


@dataclass(frozen=True)
class Workload:
    """Something with a driver of its own. ``topics`` have its rows; the first one is named like its transactions.

    ``is_query``: a stream with a checkpoint of its own, whose commits are Spark's verdicts.
    """

    name: str
    writes: tuple[Write, ...]
    topics: tuple[str, ...]
    is_query: bool = False


PAIRS = Workload("pairs", (Write("pairs-one"), Write("pairs-two")), ("pairs-one", "pairs-two"))
LETTERS = Workload("letters", (Write("letters"),), ("letters", "letters-dead"), is_query=True)
NIGHTLY = Workload("nightly", (Write("nightly"),), ("nightly",))
ONCE = Workload("once", (Write("once", repeats=False),), ("once",))
CONTROL = Workload("control", (Write("control", exactly_once=False),), ("control",), is_query=True)

WORKLOADS: Mapping[str, Workload] = MappingProxyType(
    {workload.name: workload for workload in (PAIRS, LETTERS, NIGHTLY, ONCE, CONTROL)}
)
"""``foreachBatch`` into two topics; a query with dead letters and Avro; jobs with ``txnAppId`` and ``txnVersion``; jobs
that are never repeated; an at-least-once query, which may double rows."""
