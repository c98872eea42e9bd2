"""A soak: workloads on one ledger and three brokers, rounds of trouble, and at the end the checker's verdict."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from spark_kafka_sink.testing.local_kafka import DEFAULT_VERSION
from tests.faults.support.fault import Fault
from tests.soak import hooks, job, transfers
from tests.soak.brokers import SoakKafka
from tests.soak.checker import checked
from tests.soak.drivers import Drivers
from tests.soak.events import ACTOR, COMMITTED, FOLDER, UNCOMMITTED, Event, Recorder, read_history, rows_seen
from tests.soak.evidence import lacking
from tests.soak.findings import Checked
from tests.soak.history import History
from tests.soak.network import SinkNetwork
from tests.soak.plan import TROUBLES, Round, Step, victim_of
from tests.soak.readers import Reader, Source
from tests.soak.troubles import NotReachedError, Victim
from tests.soak.workloads import PARTITIONS, PLANTED, ROWS, WORKLOADS, Workload
from tests.spark.cluster import StandaloneCluster
from tests.support.addresses import addresses_of

_BEGIN_S = 600.0
_STEP_S = 600.0
_PROGRESS_S = 420.0
_END_S = 420.0
_CATCH_UP_S = 300.0

# What no broker and no dead process can give a workload to fail with: a fault of ours. The JVM's have a package before
# their names.
_OURS = re.compile(
    r"(?<![.\w])(KeyError|IndexError|AttributeError|TypeError|NameError|AssertionError|IllegalStateError|RuntimeError"
    r"|UnboundLocalError|RecursionError|ValueError)\b"
)
_CAUSE = re.compile(r"\w+(Error|Exception): ")
_DIGITS = re.compile(r"\b[0-9a-f]{8,}\b|[0-9]+")


class RunError(AssertionError):
    """A workload that does not go on, or an end that does not come."""


@dataclass(frozen=True)
class Settings:
    """``versions``: the one of the brokers, and those to which they are upgraded. ``planted``: by workload, the fault
    that is in the product."""

    workloads: Sequence[Workload] = tuple(WORKLOADS.values())
    versions: Sequence[str] = (DEFAULT_VERSION,)
    planted: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Judgement:
    """``lacks``: what the history needs before it can prove anything, or "". ``counts``: what was done and seen."""

    said: Checked
    lacks: str
    counts: list[str]

    @property
    def holds(self) -> bool:
        return not (self.said.findings or self.lacks)


def judged(folder: Path) -> Judgement:
    """The verdict on the history in this folder."""
    events = read_history(folder)
    return Judgement(checked(History(events)), lacking(events), _counts(events))


def _counts(events: Sequence[Event]) -> list[str]:
    handed = {row for event in events if event["kind"] == "handed" for row in event["rows"]}
    visible, written = (len(rows_seen(events, isolation)) for isolation in (COMMITTED, UNCOMMITTED))
    told = Counter(event["outcome"] for event in events if event["kind"] == "verdict" and event["by"] == "job")
    faults = Counter((event["name"], event["phase"]) for event in events if event["kind"] == "fault")
    return [
        f"{len(handed)} rows were handed over, {visible} are visible, {written} were written",
        f"verdicts: {told['committed']} committed, {told['failed']} failed",
        *(f"{count:5} {name}" for (name, phase), count in sorted(faults.items()) if phase == "ends"),
        *(f"{count:5} {name} (nothing there)" for (name, phase), count in sorted(faults.items()) if phase == "missed"),
    ]


class Soak:
    """Brokers, workloads and readers, from ``__enter__`` to ``__exit__``. ``tell`` gets a line for whatever happens.

    ``history``: the folder with what each process has recorded.
    """

    def __init__(self, folder: Path, tell: Callable[[str], None], settings: Settings = Settings()) -> None:
        self.history = folder / "history"
        self.history.mkdir()
        self.victims: dict[str, Victim] = {}
        self._folder = folder
        self._settings = settings
        self._tell = tell
        self._kafka = SoakKafka(settings.versions)
        self._record = Recorder(self.history, "soak")
        self._errors: list[str] = []
        self._began = time.monotonic()
        self._stack = ExitStack()

    def __enter__(self) -> Soak:
        with ExitStack() as stack:
            stack.enter_context(self._kafka)
            workloads = self._settings.workloads
            topics = {topic: PARTITIONS for workload in workloads for topic in workload.topics}
            for topic in topics:
                self._kafka.create_topic(topic, PARTITIONS)
            self._source = Source(self._kafka.bootstrap_servers, topics)
            self._live = Reader(self._source, "live", COMMITTED, self.history)
            self._raw = Reader(self._source, "raw", UNCOMMITTED, self.history)
            master = ""
            if any("executors" in workload.has for workload in workloads):
                master = stack.enter_context(StandaloneCluster(self._folder, workers=2, cores=2)).url
            for workload in workloads:
                self.victims[workload.name] = self._victim(workload, master, stack)
            for reader in (self._live, self._raw):
                reader.start()
                stack.callback(reader.close)
            self._say("the brokers run, the workloads begin")
            for victim in self.victims.values():
                victim.drivers.start()
                stack.callback(victim.drivers.close)
            self._await_rows("every workload begins", _BEGIN_S)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, rounds: Iterable[Round]) -> None:
        """Rounds of trouble, after each of which everything goes on, and an end that leaves nothing open."""
        troubles: list[str] = []
        try:
            for number, steps in enumerate(rounds, 1):
                self._act(number, steps)
                self._await_rows(f"every workload goes on after round {number}", _PROGRESS_S)
            self._say("the workloads end")
            for victim in self.victims.values():
                victim.drivers.stop()
            for victim in self.victims.values():
                victim.drivers.finish(_END_S)
        except AssertionError as error:
            troubles.append(str(error))
        for victim in self.victims.values():
            victim.heal()
            victim.drivers.close()
        self._kafka.heal()
        try:
            self._read_all()
        except AssertionError as error:
            troubles.append(str(error))
        self._note_commits()
        troubles += [f"{name}: {text}" for name, text in self._failures() if _OURS.search(text)]
        self._record("ended", trouble="\n".join(troubles))

    def failures(self) -> Counter[str]:
        """What workloads failed with, and were started again."""
        return Counter(f"{name}: {cause_of(text)}" for name, text in self._failures())

    def _failures(self) -> list[tuple[str, str]]:
        return [(name, text) for name, victim in self.victims.items() for text in victim.drivers.failures()]

    def _read_all(self) -> None:
        """Everything once more from the start, when no transaction is open."""
        ends = self._source.await_nothing_open(_CATCH_UP_S)
        fresh = Reader(self._source, "fresh", COMMITTED, self.history)
        fresh.start()
        try:
            for reader in (self._live, self._raw, fresh):
                reader.await_passed(ends, _CATCH_UP_S)
        finally:
            fresh.close()

    def _note_commits(self) -> None:
        """Each micro-batch that Spark has written into a query's checkpoint is told committed."""
        for name, victim in self.victims.items():
            for number in range(victim.drivers.commits + 1) if victim.workload.is_query else ():
                self._record("verdict", write=f"{name}/{number}", by="job", outcome="committed", error="")

    def _victim(self, workload: Workload, master: str, stack: ExitStack) -> Victim:
        folder = self._folder / workload.name
        folder.mkdir()
        for write in workload.writes:
            self._record("workload", **write.promised)
        has_executors = "executors" in workload.has
        brokers = dict(zip(self._kafka.node_ids, addresses_of(self._kafka.bootstrap_servers), strict=True))
        networks = [SinkNetwork.of(brokers, stack) for _ in range(2 if has_executors else 1)]
        environment = {
            "PYTHONPATH": hooks.PYTHON_PATH,
            FOLDER: str(self.history),
            ACTOR: workload.name,
            PLANTED: self._settings.planted.get(workload.name, ""),
            hooks.PROXIES: networks[0].variable,
            hooks.PROXIES_OF_EXECUTORS: networks[-1].variable,
        }
        given = {
            "servers": self._kafka.bootstrap_servers,
            "folder": str(folder),
            "master": master if has_executors else "",
        }
        program = job if workload.name in job.JOBS else transfers
        command = [sys.executable, str(program.__file__), workload.name, json.dumps(given)]
        drivers = Drivers(folder, command, environment)
        return Victim(workload, self._kafka, drivers, Fault(drivers.fault_file), self._live, networks)

    def _say(self, line: str) -> None:
        rows = ", ".join(f"{name} {victim.rows}" for name, victim in self.victims.items())
        self._tell(f"{time.monotonic() - self._began:7.1f} s  {line} ({rows})")

    def _check(self) -> None:
        self._live.check()
        self._raw.check()
        if self._errors:
            raise RunError("; ".join(self._errors))

    def _act(self, number: int, steps: Round) -> None:
        """A round: a thread for each step, and after it everything is healed."""
        self._say(f"round {number}: {'; '.join(map(str, steps))}")
        threads = [threading.Thread(target=self._do, args=(step,), daemon=True) for step in steps]
        deadline = time.monotonic() + _STEP_S
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.2)
            self._check()
            if time.monotonic() > deadline:
                raise RunError(f"round {number} did not end within {_STEP_S:.0f} s")
        self._check()
        for victim in self.victims.values():
            victim.heal()
        self._kafka.heal()

    def _do(self, step: Step) -> None:
        time.sleep(step.at)
        victim = victim_of(step, self.victims)
        name = victim.workload.name
        self._record("fault", name=step.trouble, workload=name, phase="begins")
        try:
            TROUBLES[step.trouble].act(victim, step)
            phase = "ends"
        except NotReachedError:
            victim.fault.disarm()
            phase = "missed"
            self._say(f"nothing there for {step.trouble} of {name}")
        except BaseException as error:
            self._errors.append(f"{step}: {error!r}")
            return
        self._record("fault", name=step.trouble, workload=name, phase=phase)

    def _await_rows(self, what: str, timeout_s: float) -> None:
        """Until each workload has written a batch more."""
        deadline = time.monotonic() + timeout_s
        goal = {name: victim.rows + ROWS for name, victim in self.victims.items()}
        while late := [victim for name, victim in self.victims.items() if victim.rows < goal[name]]:
            self._check()
            if time.monotonic() > deadline:
                tails = "\n".join(f"{victim.workload.name}:\n{victim.drivers.log_tail()}" for victim in late)
                raise RunError(f"waited {timeout_s:.0f} s in vain until {what}\n{tails}")
            time.sleep(0.2)


def cause_of(text: str) -> str:
    """The last error that a text tells of, ids left out."""
    causes = list(_CAUSE.finditer(text))
    return _DIGITS.sub("#", text[causes[-1].start() :] if causes else text)[:240]
