"""What a benchmark is and what it gives: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal[
    "batch",
    "first",
    "stream",
    "aging",
    "commit",
    "send",
    "latency",
    "import",
    "profile",
    "encoding",
    "letters",
    "real-time",
]
Relation = Literal["at least ×", "at most ×", "at most +", "at most", "floor ÷"]


LOCAL = "local[2]"
TWO_WORKERS = "local-cluster[2,1,2048]"
"""A standalone cluster: two workers with a core and 2 GiB each."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What is written where: ``frame`` is a key of ``frames.FRAMES``, ``partitions`` are those of each topic."""

    frame: str = "keyed"
    tasks: int = 2
    topics: int = 1
    partitions: int = 4
    topic_configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Side:
    """One way to do the work of a part.

    ``writer``: key of ``spark_sides.WRITERS``; of ``clients.CLIENTS`` where there is no Spark; or as the part's runner
    knows it. ``options``: the producer's, by Kafka's names. ``share`` of the part's rows (streams: of its
    micro-batches), for those that would take all day; they are compared by rows per second. ``shape``: other than the
    part's. ``exactly_once``: with deliveryGuarantee=exactly-once. ``tls``: over TLS. ``own``: the sink's options, for
    streams.
    """

    name: str
    writer: str
    options: Mapping[str, str] = field(default_factory=dict)
    share: float = 1.0
    shape: Shape | None = None
    exactly_once: bool = False
    tls: bool = False
    own: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Target:
    """A wanted figure: ``measure`` of ``side``, by itself or next to ``against``.

    ``ratio_of``: two sides; ``bound`` is relative to their ratio in the same round. "floor ÷": at least so much of the
    CPU that a row takes is the floor's (``measures.shares_of_the_floor``, by the do-nothing writer ``against``).
    """

    side: str
    measure: str
    relation: Relation
    bound: float
    against: str | None = None
    ratio_of: tuple[str, str] | tuple[()] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """``rows`` are those of one run, for ``stream`` of one micro-batch.

    Frames are cached first unless ``cached`` is False. ``broker_bytes_per_s`` slows the way to the broker down.
    ``keeps_topics``: runs of one shape write to the same topics, which take long to create. ``fresh_workers``: every
    run begins with new Python workers. ``most_rounds``: for what takes long and hardly varies. ``master``: Spark's.
    """

    name: str
    what: str
    kind: Kind
    rows: int
    sides: tuple[Side, ...]
    targets: tuple[Target, ...] = ()
    shape: Shape = Shape()
    cached: bool = True
    broker_bytes_per_s: int | None = None
    keeps_topics: bool = False
    fresh_workers: bool = False
    most_rounds: int | None = None
    master: str = LOCAL

    def shape_of(self, side: Side) -> Shape:
        return side.shape or self.shape


@dataclass(frozen=True, slots=True)
class Run:
    """One side in one round; ``measures`` by the names of ``measures.MEASURES``."""

    side: str
    round: int
    rows: int
    measures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Session:
    """Rounds of a part that ran one after the other: ``rounds`` of them, ``seconds`` with their preparation."""

    at: str
    rounds: int
    seconds: float
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Result:
    """All runs of a part, round by round, and the sessions in which they were made, in the same order."""

    part: str
    sessions: tuple[Session, ...]
    runs: tuple[Run, ...]

    @property
    def rounds(self) -> int:
        return sum(session.rounds for session in self.sessions)

    def followed_by(self, later: Result) -> Result:
        """With the rounds of ``later`` numbered after these."""
        runs = (Run(run.side, run.round + self.rounds, run.rows, run.measures) for run in later.runs)
        return Result(self.part, self.sessions + later.sessions, (*self.runs, *runs))
