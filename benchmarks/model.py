"""What a benchmark is and what it gives: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["batch", "stream", "commit", "send", "latency", "import", "profile"]
Relation = Literal["at least ×", "at most ×", "at most +", "at most"]


@dataclass(frozen=True, slots=True)
class Side:
    """One way to do the work of a part.

    ``writer``: key of ``spark_sides.WRITERS``; of ``clients.CLIENTS`` where there is no Spark; or as the part's runner
    knows it. ``options``: the producer's, by Kafka's names. ``share`` of the part's rows, for those that would take all
    day; they are compared by rows per second. ``partitions``: other than the part's. ``exactly_once``: with
    deliveryGuarantee=exactly-once.
    """

    name: str
    writer: str
    options: Mapping[str, str] = field(default_factory=dict)
    share: float = 1.0
    partitions: int | None = None
    exactly_once: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """A figure to be had: ``measure`` of ``side``, by itself or next to ``against``."""

    side: str
    measure: str
    relation: Relation
    bound: float
    against: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """``rows`` are those of one run, for streams of one micro-batch.

    ``frame``: key of ``frames.FRAMES``, made by ``tasks`` tasks, and cached first unless ``cached`` is False.
    ``partitions`` is per topic. ``broker_bytes_per_s`` slows the way to the broker down. ``fresh_workers``: every run
    begins with new Python workers. ``most_rounds``: for what takes long and hardly varies.
    """

    name: str
    what: str
    kind: Kind
    rows: int
    sides: tuple[Side, ...]
    targets: tuple[Target, ...] = ()
    frame: str = "keyed"
    tasks: int = 2
    cached: bool = True
    topics: int = 1
    partitions: int = 4
    broker_bytes_per_s: int | None = None
    fresh_workers: bool = False
    most_rounds: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One side in one round; ``measures`` by the names of ``measures.MEASURES``."""

    side: str
    round: int
    rows: int
    measures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Result:
    """All runs of a part, and where and when they were made."""

    part: str
    at: str
    environment: Mapping[str, str]
    runs: tuple[Run, ...]
