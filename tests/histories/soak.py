"""A soak: workloads on one ledger and three brokers, rounds of trouble, and at the end the checker's verdict."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from spark_kafka_sink.testing.local_kafka import DEFAULT_VERSION
from tests.addresses import addresses_of
from tests.faults.chaos.drivers import Drivers
from tests.faults.chaos.kafka import ChaosKafka
from tests.faults.chaos.plan import Round, Step
from tests.faults.chaos.run import cause_of, is_ours
from tests.faults.chaos.running import TroubledRun
from tests.faults.support.fault import Fault
from tests.histories import hooks, job
from tests.histories.checker import checked
from tests.histories.events import read_history, write_history
from tests.histories.evidence import lacking
from tests.histories.figures import Figures, figures_of
from tests.histories.findings import Checked
from tests.histories.index import History
from tests.histories.partings import DriverNetwork
from tests.histories.readers import ReaderError, Source, fresh_reader, live_readers
from tests.histories.recorder import ACTOR, FOLDER, Recorder
from tests.histories.sink_network import SinkNetwork
from tests.histories.troubles import TROUBLES, Victim, victim_of
from tests.histories.workloads import PARTITIONS, ROWS, WORKLOADS, Workload, Write, python_of
from tests.schema_registry_server import SchemaRegistryServer
from tests.spark.cluster import StandaloneCluster

PROGRESS_S = 420.0
END_S = 420.0
_BEGIN_S = 600.0
_CATCH_UP_S = 300.0


@dataclass(frozen=True)
class Judgement:
    """What is left of a soak. ``lacks``: what its history needs before it can prove anything, or "". ``trouble``: why
    it ended before its time, or "". ``failures``: what workloads failed with and were started again."""

    said: Checked
    lacks: str
    figures: Figures
    failures: Counter[str]
    trouble: str
    file: Path

    @property
    def holds(self) -> bool:
        return not (self.said.findings or self.lacks or self.trouble)


@dataclass(frozen=True)
class Settings:
    """``versions``: the one of the brokers, and those to which they are upgraded. ``older_sink``: a folder with a
    package that drivers run now and then."""

    workloads: tuple[Workload, ...] = tuple(each for each in WORKLOADS.values() if python_of(each) is not None)
    versions: tuple[str, ...] = (DEFAULT_VERSION,)
    older_sink: Path | None = None


class Soak(TroubledRun):
    """Brokers, workloads and readers, from ``__enter__`` to ``__exit__``. ``tell`` gets a line for whatever happens.

    The history's parts are written into ``folder``/history, by one file for each process.
    """

    def __init__(self, folder: Path, tell: Callable[[str], None], settings: Settings = Settings()) -> None:
        super().__init__(ChaosKafka(settings.versions), TROUBLES, tell)
        self.folder = folder
        self._settings = settings
        self.victims: dict[str, Victim] = {}
        self._history = folder / "history"
        self._history.mkdir()
        self._record = Recorder(self._history, "soak")
        self._stack = ExitStack()

    def __enter__(self) -> Soak:
        with ExitStack() as stack:
            stack.enter_context(self.kafka)
            registry = stack.enter_context(SchemaRegistryServer())
            workloads = self._settings.workloads
            topics = {topic: PARTITIONS for workload in workloads for topic in workload.topics}
            for topic in topics:
                self.kafka.local.create_topic(topic, PARTITIONS)
            incarnations = {topic: self.kafka.topic_id(topic) for topic in topics}
            for topic, incarnation in incarnations.items():
                self._record("topic", topic=topic, incarnation=incarnation, phase="created")
            self.source = Source(self.kafka.servers, topics, incarnations)
            self.live, self.raw = live_readers(self.source, self._history)
            master = ""
            if any(workload.has_executors for workload in workloads):
                master = stack.enter_context(StandaloneCluster(self.folder, workers=2, cores=2)).url
            for workload in workloads:
                given = {
                    "servers": self.kafka.servers,
                    "registry": registry.url,
                    "folder": str(self.folder / workload.name),
                    "master": master if workload.has_executors else "",
                }
                self.victims[workload.name] = self._victim(workload, given, stack)
            for reader in (self.live, self.raw):
                reader.start()
                stack.callback(reader.close)
            self._verdicts = SparkVerdicts(self.victims, self._record)
            self._verdicts.start()
            stack.callback(self._verdicts.close)
            self.say("the brokers run, the workloads begin")
            for victim in self.victims.values():
                victim.drivers.start()
                stack.callback(victim.drivers.close)
            self.await_rows(dict.fromkeys(self.victims, ROWS), "every workload begins", _BEGIN_S)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def status(self) -> str:
        """One line."""
        doing = ", ".join(f"{step.trouble} ({name})" for step, name in self.now.items()) or "calm"
        rows = ", ".join(f"{name} {each.rows} ({each.stalled_s:.0f} s ago)" for name, each in self.victims.items())
        return f"round {self.rounds} | {rows} | transactions v{self.kafka.transaction_version} | {doing}"

    def run(self, rounds: Iterable[Round]) -> str:
        """Rounds of trouble, and a regular end. Returns why it ended before its time, or ""."""
        try:
            for number, steps in enumerate(rounds, 1):
                self.act(number, steps)
                goal = {name: victim.rows + ROWS for name, victim in self.victims.items()}
                self.await_rows(goal, f"every workload goes on after round {number}", PROGRESS_S)
            self._end()
        except AssertionError as error:
            return str(error)
        return ""

    def judge(self, trouble: str) -> Judgement:
        """Reads everything from the start once more and checks the history. No driver runs any more after it."""
        try:
            for victim in self.victims.values():
                victim.heal()
                victim.drivers.close()
            self.kafka.heal()
            self.say("waiting until no transaction is open")
            ends = self.source.await_nothing_open(_CATCH_UP_S)
            fresh = fresh_reader(self.source, self._history)
            fresh.start()
            try:
                for reader in (self.live, self.raw, fresh):
                    reader.await_passed(ends, _CATCH_UP_S)
            finally:
                fresh.close()
        except AssertionError as error:
            trouble = "; ".join(filter(None, (trouble, str(error))))
        self._verdicts.close()
        failed = [(name, text) for name, each in self.victims.items() for text in each.drivers.failures()]
        ours = [f"{name}: {text}" for name, text in failed if is_ours(text)]
        if ours:
            trouble = "\n".join(filter(None, (trouble, "a workload failed by a fault of ours:", *ours)))
        self._record("ended", trouble=trouble)
        events = read_history(self._history.glob("*.jsonl"))
        file = self.folder / "history.jsonl"
        write_history(events, file)
        failures = Counter(f"{name}: {cause_of(text)}" for name, text in failed)
        return Judgement(checked(History(events)), lacking(events), figures_of(events), failures, trouble, file)

    def _victim(self, workload: Workload, given: dict[str, str], stack: ExitStack) -> Victim:
        folder = self.folder / workload.name
        folder.mkdir()
        for write in workload.writes:
            self._record("workload", **promised(write))
        brokers = dict(zip(self.kafka.local.node_ids, addresses_of(self.kafka.servers), strict=True))
        networks = [SinkNetwork.of(brokers, stack) for _ in range(2 if workload.has_executors else 1)]
        environment = {
            "PYTHONPATH": hooks.PYTHON_PATH,
            FOLDER: str(self._history),
            ACTOR: workload.name,
            hooks.PROXIES: networks[0].variable,
            hooks.PROXIES_OF_EXECUTORS: networks[-1].variable,
        }
        variables: dict[str, str] = {}
        network = DriverNetwork(stack)

        def prepare(start: int) -> dict[str, str]:
            own = dict(variables)
            self._record("driver", workload=workload.name, start=str(start), phase="started", variables=own)
            return {**own, **network.variables()} if workload.has_executors else own

        python = str(python_of(workload))
        environment["PYSPARK_PYTHON"] = python
        command = [python, job.__file__, workload.name, json.dumps(given)]
        drivers = Drivers(folder, command, environment, prepare)
        return Victim(
            workload, self.kafka, drivers, Fault(drivers.fault_file), (self.live, self.raw), self.source, networks,
            network, self._record, self._settings.older_sink, variables,
        )  # fmt: skip

    def _hits(self) -> dict[str, Victim]:
        return self.victims

    def _drawn(self, step: Step) -> str:
        return victim_of(step, self.victims).workload.name

    def _note(self, step: Step, name: str, phase: str) -> None:
        self._record("fault", name=step.trouble, workload=name, phase=phase)

    def _check_readers(self) -> None:
        for reader in (self.live, self.raw):
            if reader.error is not None:
                raise ReaderError(f"{reader.name}: {reader.error}") from reader.error

    def _end(self) -> None:
        """Every workload ends with a write that leaves nothing open."""
        self.say("the workloads end")
        for victim in self.victims.values():
            (victim.drivers.folder / "stop").touch()
        for victim in self.victims.values():
            victim.drivers.finish(END_S)


def promised(write: Write) -> dict[str, object]:
    """What the history says of a kind of write before anything happens."""
    return {
        "name": write.name,
        "exactly_once": write.exactly_once,
        "repeats": write.repeats,
        "rows": ROWS,
        "topic": write.name,
        "dead_letter_topic": write.dead_letter_topic,
        "dead_letters": write.dead_letters,
    }


class SparkVerdicts(threading.Thread):
    """Notes each micro-batch that Spark has written into a query's checkpoint as committed."""

    def __init__(self, victims: dict[str, Victim], record: Recorder) -> None:
        super().__init__(name="verdicts", daemon=True)
        self._queries = [victim for victim in victims.values() if victim.workload.is_query]
        self._noted = {victim.workload.name: -1 for victim in self._queries}
        self._record = record
        self._closing = threading.Event()

    def run(self) -> None:
        while not self._closing.wait(0.5):
            self._note()

    def close(self) -> None:
        """The last ones are noted, too."""
        self._closing.set()
        if self.is_alive():
            self.join(30)
        self._note()

    def _note(self) -> None:
        for victim in self._queries:
            name, last = victim.workload.name, victim.drivers.commits
            for number in range(self._noted[name] + 1, last + 1):
                verdict = {"by": "spark", "outcome": "committed", "error": ""}
                self._record("verdict", write=f"{name}/{number}", **verdict)
            self._noted[name] = max(self._noted[name], last)
