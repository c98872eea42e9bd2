"""What can be done to a workload, its processes and its brokers: one function each.

Each does it, lets ``step.seconds`` pass, and mends it. What is hit is drawn from what is there, by ``step.random()``.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, TypeVar

from spark_kafka_sink.exactly_once.ledger_topic import ledger_partitions
from spark_kafka_sink.exactly_once.values import driver_id
from tests.faults.support.fault import Fault
from tests.soak.brokers import SoakKafka
from tests.soak.drivers import Drivers, await_that
from tests.soak.network import SinkNetwork
from tests.soak.processes import Kind, SparkProcess, send
from tests.soak.readers import Reader
from tests.soak.workloads import HALT_FILE, RUNNING_FILE, Workload, Write

if TYPE_CHECKING:
    from tests.soak.plan import Step

LEDGER = "__pykafka_ledger"
REACHED_S = 240.0
_ELECTED_S = 20.0
_STOPS_S = 60.0
_ANY_TIME = ""
_T = TypeVar("_T")

PLANNING = ("driver initialised", "planned")
COMMIT = ("before the intent", "intent in the log", "intent committed", "between EndTxns", "before done", "committed")
TASK = ("task initialised", "task in mid-write", "task prepared")
ABORT = ("abort fenced",)


@dataclass(frozen=True)
class Victim:
    """A workload, with what troubles need of it. ``networks``: the one between its drivers and the brokers, and that of
    its executors if it has any. ``reader``: the read_committed one that reads all the time."""

    workload: Workload
    kafka: SoakKafka
    drivers: Drivers
    fault: Fault
    reader: Reader
    networks: Sequence[SinkNetwork]

    @property
    def write(self) -> Write:
        """The one that runs now, or was the last one, which the driver of batch writes notes."""
        running = self.drivers.folder / RUNNING_FILE
        name = running.read_text().partition("/")[0] if running.exists() else ""
        return next((each for each in self.workload.writes if each.name == name), self.workload.writes[0])

    @property
    def rows(self) -> int:
        """How many of its rows a read_committed reader has got."""
        return sum(self.reader.rows[write.name] for write in self.workload.writes)

    def heal(self) -> None:
        """No fault is armed, its network is whole, everything that is stopped goes on, and of several drivers the last
        one stays."""
        self.fault.disarm()
        for network in self.networks:
            network.heal()
        self.drivers.go_on()


class NotReachedError(Exception):
    """There was nothing to do it to: no process came to the point, or none was there."""


def pick(choices: Sequence[_T], random: Random) -> _T:
    if not choices:
        raise NotReachedError
    return random.choice(choices)


def arm(hit: Victim, point: str, action: str = "kill") -> None:
    """Only a write that fails comes to the points of ``ABORT``: then the next commit is made to fail before that."""
    hit.fault.arm(point, action, after="before the intent" if point in ABORT else None)


def await_point(hit: Victim) -> None:
    """Until a process has come to the point that was armed."""
    if not await_that(lambda: hit.fault.happened, REACHED_S):
        raise NotReachedError


# -- brokers ------------------------------------------------------------------------------------------------------


def lasting(step: Step, things: Iterable[_T], do: Callable[[_T], object], mend: Callable[[_T], object]) -> None:
    """What is done to each of the things lasts as long as the step says."""
    struck = [*things]
    for each in struck:
        do(each)
    time.sleep(step.seconds)
    for each in struck:
        mend(each)


def broker_killed(hit: Victim, step: Step) -> None:
    lasting(step, [pick(hit.kafka.node_ids, step.random())], hit.kafka.kill, hit.kafka.start)


def broker_stopped(hit: Victim, step: Step) -> None:
    lasting(step, [pick(hit.kafka.node_ids, step.random())], hit.kafka.pause, hit.kafka.resume)


def majority_stopped(hit: Victim, step: Step) -> None:
    lasting(step, step.random().sample(hit.kafka.node_ids, 2), hit.kafka.pause, hit.kafka.resume)


def too_few_in_sync(hit: Victim, step: Step) -> None:
    """Leaders are there and take nothing: one replica of three is missing, and three are asked for."""
    topics = _topics(hit)
    for topic in topics:
        hit.kafka.set_min_in_sync(topic, 3)
    node = pick(hit.kafka.node_ids, step.random())
    hit.kafka.pause(node)
    time.sleep(step.seconds + 4)  # replica.lag.time.max.ms
    hit.kafka.resume(node)
    for topic in topics:
        hit.kafka.set_min_in_sync(topic, 2)


def _topics(hit: Victim) -> tuple[str, ...]:
    """Those that its writes need."""
    return (*hit.workload.topics, LEDGER) if "point" in hit.workload.has else (*hit.workload.topics,)


def _leader_that_matters(hit: Victim, random: Random) -> Callable[[], int]:
    """Asks who leads the ledger's partition that has the entries of the running write, or who coordinates the
    transactional id of its driver."""
    name = hit.write.write_name
    if random.random() < 0.5:
        place = ledger_partitions(name, LEDGER)
        return lambda: hit.kafka.leader(place.topic, place.partition)
    return lambda: hit.kafka.coordinator(driver_id(name))


def _election_at(hit: Victim, step: Step, points: Sequence[str]) -> None:
    """A process stops at one of the points; another broker is elected meanwhile, and the deposed one comes back
    later."""
    random = step.random()
    arm(hit, pick(points, random), "stop")
    await_point(hit)
    leader = _leader_that_matters(hit, random)
    deposed = leader()
    hit.kafka.pause(deposed)
    elected = await_that(lambda: leader() != deposed, _ELECTED_S)
    with suppress(ProcessLookupError):  # it was killed meanwhile
        hit.fault.wake()
    time.sleep(step.seconds)
    hit.kafka.resume(deposed)
    assert elected, f"no broker was elected in place of {deposed}"


def election_inside_planning(hit: Victim, step: Step) -> None:
    _election_at(hit, step, PLANNING)


def election_inside_commit(hit: Victim, step: Step) -> None:
    _election_at(hit, step, COMMIT)


def broker_restarted(hit: Victim, step: Step) -> None:
    """A controlled shutdown: its leaders and coordinators move away before it ends, and it starts at once."""
    hit.kafka.restart(pick(hit.kafka.node_ids, step.random()))


# -- drivers and executors ----------------------------------------------------------------------------------------


def driver_killed(hit: Victim, step: Step) -> None:
    hit.drivers.kill()
    time.sleep(step.seconds)


def driver_terminated(hit: Victim, step: Step) -> None:
    """SIGTERM in mid-work, as cluster managers send it."""
    send(hit.drivers.processes(Kind.DRIVER, start=hit.drivers.starts), signal.SIGTERM)
    time.sleep(step.seconds)


def _stopped(step: Step, processes: list[SparkProcess]) -> None:
    lasting(step, [processes], lambda each: send(each, signal.SIGSTOP), lambda each: send(each, signal.SIGCONT))


def driver_stopped(hit: Victim, step: Step) -> None:
    _stopped(step, hit.drivers.own_processes())


def driver_replaced(hit: Victim, step: Step) -> None:
    """It stops while it plans, commits or aborts, its successor goes on, and then it wakes up and goes on too."""
    arm(hit, pick((*PLANNING, *COMMIT, *ABORT), step.random()), "stop")
    await_point(hit)
    old, before = hit.drivers.own_processes(), hit.rows
    send(old, signal.SIGSTOP)
    hit.drivers.abandon()
    await_that(lambda: hit.rows > before, REACHED_S)
    send(old, signal.SIGCONT)
    time.sleep(step.seconds)
    send(old, signal.SIGKILL)


def killed_at_a_point(hit: Victim, step: Step) -> None:
    arm(hit, pick((*PLANNING, *TASK, *COMMIT, *ABORT), step.random()))
    await_point(hit)


def query_stopped(hit: Victim, step: Step) -> None:
    """``query.stop()`` at any time, or while a task or its driver waits at a step of the protocol and goes on as the
    query stops. The driver goes on with a new query."""
    random = step.random()
    point = pick((*PLANNING, *TASK, *COMMIT, *ABORT, _ANY_TIME), random)
    if point:
        arm(hit, point, "hold")  # a driver that is stopped could not stop its query
        await_point(hit)
    halt = hit.drivers.folder / HALT_FILE
    halt.touch()
    stops = await_that(lambda: not halt.exists(), _STOPS_S)
    halt.unlink(missing_ok=True)
    if point:
        time.sleep(random.random() * step.seconds)
        hit.fault.release()  # unless Spark has ended it
    if not stops:
        raise NotReachedError
    time.sleep(step.seconds)


def executor_killed(hit: Victim, step: Step) -> None:
    send([pick(hit.drivers.processes(Kind.EXECUTOR), step.random())], signal.SIGKILL)
    time.sleep(step.seconds)


def executor_stopped(hit: Victim, step: Step) -> None:
    """Longer than Spark waits for its heartbeats, or shorter; its workers with it."""
    _stopped(step, hit.drivers.processes(Kind.EXECUTOR, Kind.DAEMON, Kind.WORKER, of_executor=True))


def worker_killed(hit: Victim, step: Step) -> None:
    send([pick(hit.drivers.processes(Kind.WORKER), step.random())], signal.SIGKILL)
    time.sleep(step.seconds)


def workers_outlive_the_driver(hit: Victim, step: Step) -> None:
    """A task waits in mid-work; driver and executors die, a successor goes on, and then the task does too."""
    random = step.random()
    arm(hit, pick(TASK, random), "hold")
    await_point(hit)
    tasks = hit.drivers.processes(Kind.WORKER, of_executor=True)
    # A daemon that is dead tells its workers nothing when its executor ends.
    send(hit.drivers.processes(Kind.DAEMON, of_executor=True), signal.SIGKILL)
    hit.drivers.kill()
    before = hit.rows
    if random.random() < 0.5:  # else they write while the successor starts
        await_that(lambda: hit.rows > before, REACHED_S)
    if not hit.fault.release():
        raise NotReachedError
    time.sleep(step.seconds)
    send(tasks, signal.SIGKILL)


# -- releases and features ---------------------------------------------------------------------------------------


def broker_upgraded(hit: Victim, step: Step) -> None:
    """The next one of three, by a controlled shutdown, or the features once all have the next release."""
    if not hit.kafka.upgrade():
        raise NotReachedError
    time.sleep(step.seconds)


def transaction_protocol_changed(hit: Victim, step: Step) -> None:
    """From 1 to 2, or back, for the rounds to come too; brokers that were just upgraded have 0."""
    if not hit.kafka.knows_transaction_versions:
        raise NotReachedError
    hit.kafka.set_transaction_version(2 if hit.kafka.transaction_version == 1 else 1)
    time.sleep(step.seconds)
