"""A query whose planning, tasks, commit and abort are real processes, for the day they are killed."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.exactly_once.session import CommitSettings
from spark_kafka_sink.exactly_once.values import STRICT, WriteId, WriteKind
from tests.faults.exactly_once.reader import read_committed
from tests.faults.exactly_once.role import play
from tests.faults.support.fault import Fault

LEDGER = "__ledger"
_DEADLINE_S = 60.0


# Each role is forked from a process that has imported everything and holds no thread: a tenth of a second, not two.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.faults.exactly_once.role"])


class KilledError(Exception):
    """The process ended without an answer."""


@dataclass
class Role:
    """A process at work on one call."""

    process: BaseProcess
    answer: Connection

    def result(self):
        """What the call returned; raises what it raised, ``KilledError`` when the process died."""
        if not self.answer.poll(_DEADLINE_S):
            raise TimeoutError(f"{self.process.name} does not answer")
        try:
            outcome = self.answer.recv()
        except EOFError:
            self.process.join(_DEADLINE_S)
            raise KilledError(self.process.exitcode) from None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@dataclass
class Query:
    """``options``: more for its producers. ``through``: broker → proxy of planning, commit and abort."""

    servers: str
    topic: str
    fault: Fault
    name: str = "q1"
    timeout_ms: int = 60_000
    options: dict = field(default_factory=dict)
    through: dict = field(default_factory=dict)
    roles: list = field(default_factory=list)

    @property
    def settings(self) -> CommitSettings:
        options = {
            "bootstrap.servers": self.servers,
            "linger.ms": 0,
            "transaction.timeout.ms": self.timeout_ms,
            "request.timeout.ms": 5_000,
            "delivery.timeout.ms": 30_000,
        }
        return CommitSettings(ProducerConfig.parse({**options, **self.options}), self.topic, LEDGER)

    def start(self, role: str, *arguments: object) -> Role:
        ours, theirs = _FORKS.Pipe(duplex=False)
        process = _FORKS.Process(target=play, args=(theirs, role, arguments, self.through), name=role, daemon=True)
        process.start()
        theirs.close()
        self.roles.append(Role(process, ours))
        return self.roles[-1]

    def plan(self, ledger_start=STRICT):
        return self.start("plan", self.settings, None, ledger_start).result()

    def start_task(self, plan, number, task, values) -> Role:
        write_id = WriteId(self.name, number, WriteKind.MICRO_BATCH)
        return self.start("task", self.settings.producer, plan, write_id, task, self.topic, values)

    def tasks(self, plan, number, rows):
        """All tasks' reports, None for one that was killed."""
        reports = []
        for role in [self.start_task(plan, number, task, values) for task, values in enumerate(rows)]:
            try:
                reports.append(role.result())
            except KilledError:
                reports.append(None)
        return reports

    def start_commit(self, reports) -> Role:
        return self.start("commit", self.settings, reports)

    def abort(self, reports):
        return self.start("abort", self.settings, reports).result()

    def run(self, number, rows):
        return self.start_commit(self.tasks(self.plan(), number, rows)).result()

    def end(self) -> None:
        """Whatever still runs, zombies too."""
        self.fault.disarm()
        for role in self.roles:
            role.process.kill()
            role.process.join(_DEADLINE_S)
            role.answer.close()

    def committed(self) -> Counter:
        """How often each value is there for an independent reader; fails while a transaction is open."""
        rows = read_committed(self.servers, self.topic)
        return Counter(value for values in rows.values() for value in values)
