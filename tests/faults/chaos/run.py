"""A run: rounds of trouble, and after each the query has to go on; a reader looks on all the time."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

from tests.faults.chaos import query_job
from tests.faults.chaos.drivers import Drivers
from tests.faults.chaos.kafka import ChaosKafka
from tests.faults.chaos.plan import Round, Step
from tests.faults.chaos.query_job import ROWS, TASKS
from tests.faults.chaos.reader import Reader
from tests.faults.chaos.running import RunError, TroubledRun
from tests.faults.chaos.troubles import LEDGER, TROUBLES
from tests.faults.exactly_once.reader import read_committed, read_uncommitted
from tests.faults.support.fault import Fault
from tests.spark.cluster import StandaloneCluster

PROGRESS_S = 240.0
END_S = 300.0
_BATCHES = 2
_QUERY = "the query"
_ABORTS_WITHIN_S = 300.0

# What no broker and no dead process can give a query to fail with: a fault of ours. The JVM's have a package in front.
_OURS = re.compile(
    r"(?<![.\w])(KeyError|IndexError|AttributeError|TypeError|NameError|AssertionError|IllegalStateError|RuntimeError"
    r"|UnboundLocalError|RecursionError|ValueError)\b"
)
_CAUSE = re.compile(r"\w+(Error|Exception): ")
_DIGITS = re.compile(r"\b[0-9a-f]{8,}\b|[0-9]+")


class Chaos(TroubledRun):
    """Cluster, query and reader, from ``__enter__`` to ``__exit__``. ``tell`` gets a line for whatever happens."""

    def __init__(self, folder: Path, tell: Callable[[str], None]) -> None:
        super().__init__(ChaosKafka(), TROUBLES, tell)
        self.folder = folder
        self.topic = "chaos"
        self.counts: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.aborted = 0
        self._stack = ExitStack()

    def __enter__(self) -> Chaos:
        with ExitStack() as stack:
            stack.enter_context(self.kafka)
            self.kafka.local.create_topic(self.topic, TASKS)
            cluster = stack.enter_context(StandaloneCluster(self.folder, workers=2, cores=4))
            self.reader = Reader(self.kafka.servers, self.topic)
            query = [sys.executable, query_job.__file__, cluster.url, self.kafka.servers, self.topic, str(self.folder)]
            self.drivers = Drivers(self.folder, query)
            self.fault = Fault(self.drivers.fault_file)
            stack.callback(self.drivers.close)
            self.reader.start()
            stack.callback(self.reader.close)
            self.drivers.start()
            self._await_rows(ROWS, "the query begins")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def rows(self) -> int:
        """How many a reader has got so far."""
        return self.reader.expected.total

    @property
    def id_prefix(self) -> str:
        return f"{self.write_name}-"

    @property
    def write_name(self) -> str:
        """The query's ``transactionalIdPrefix``."""
        return self.topic

    def status(self) -> str:
        """One line."""
        doing = ", ".join(step.trouble for step in self.now) or "calm"
        reader = self.reader
        return (
            f"round {self.rounds} | {reader.expected.whole_batches} batches, {reader.expected.total} rows | "
            f"{self.drivers.starts} drivers | no row for {reader.stalled_s:.0f} s, at most {reader.longest.seconds:.0f}"
            f" s | transactions v{self.kafka.transaction_version} | {doing}"
        )

    def run(self, rounds: Iterable[Round]) -> None:
        for number, steps in enumerate(rounds, 1):
            self.act(number, steps)
            self._await_rows(self.rows + _BATCHES * ROWS, f"the query goes on after round {number}")
        self._end()

    def heal(self) -> None:
        self.fault.disarm()
        self.drivers.go_on()

    def _hits(self) -> dict[str, Chaos]:
        return {_QUERY: self}

    def _drawn(self, step: Step) -> str:
        return _QUERY

    def _note(self, step: Step, name: str, phase: str) -> None:
        if phase == "ends":
            self.counts[step.trouble] += 1
        elif phase == "missed":
            self.missed[step.trouble] += 1

    def _check_readers(self) -> None:
        if self.reader.error is not None:
            raise RunError(f"the reader: {self.reader.error}") from self.reader.error

    def _await_rows(self, total: int, what: str) -> None:
        self.await_rows({_QUERY: total}, what, PROGRESS_S)

    def _end(self) -> None:
        """Every row of every micro-batch that Spark has committed is there, no other, and nothing is open."""
        self.say("the query ends")
        self.drivers.finish(END_S)
        batches = self.drivers.commits + 1
        self._await_rows(batches * ROWS, f"all {batches} batches are there")
        values = read_committed(self.kafka.servers, self.topic)
        there = sum(map(len, values.values()))
        if there != batches * ROWS or self.reader.expected.total != there:
            raise RunError(f"Spark has committed {batches * ROWS} rows, {there} are there")
        self.aborted = sum(map(len, read_uncommitted(self.kafka.servers, self.topic).values())) - there
        read_committed(self.kafka.servers, LEDGER)
        self.check()
        ours = [text for text in self.drivers.failures() if is_ours(text)]
        if ours:
            raise RunError("the query failed by a fault of ours:\n" + "\n".join(ours))
        idle = _untroubled(self.counts, self.missed, self.aborted, self.elapsed_s)
        if idle:
            raise RunError(f"nothing is shown: {idle}")

    def report(self) -> str:
        if not hasattr(self, "drivers") or not self.drivers.starts:
            return "it has not begun"
        lines = [
            f"{self.rounds} rounds in {self.elapsed_s / 60:.1f} minutes: {self.reader.expected.whole_batches} batches, "
            f"{self.reader.expected.total} rows, {self.drivers.starts} drivers",
            f"longest time without a row: {self.reader.longest.seconds:.0f} s, until {self.reader.longest.at:.0f} s",
            f"{self.aborted} rows were written and aborted",
            *(f"{count:5} {name}" for name, count in sorted(self.counts.items())),
            *(f"{count:5} {name} (nothing there)" for name, count in sorted(self.missed.items())),
            "what the query failed with, and was started again:",
            *(f"{count:5} {text}" for text, count in Counter(map(cause_of, self.drivers.failures())).most_common()),
        ]
        return "\n".join(lines)


def cause_of(text: str) -> str:
    """The last error that a text tells of, ids left out."""
    causes = list(_CAUSE.finditer(text))
    return _DIGITS.sub("#", text[causes[-1].start() :] if causes else text)[:240]


def _untroubled(counts: Counter[str], missed: Counter[str], aborted: int, elapsed_s: float) -> str:
    """What the run was to do to the query and never did; empty when there is no such thing."""
    never = sorted(missed.keys() - counts.keys())
    if never:
        return f"{', '.join(never)} found nothing to trouble, not once"
    return "no row was ever aborted" if not aborted and elapsed_s >= _ABORTS_WITHIN_S else ""


def is_ours(text: str) -> bool:
    return _OURS.search(text) is not None
