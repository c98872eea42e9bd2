"""What can be done to a query, its executors and its brokers: one function each, and the table of them.

Each does it, lets ``step.seconds`` pass, and mends it. What is hit is drawn from what is there, by ``step.random()``.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from confluent_kafka.admin import AclOperation, ResourceType

from spark_kafka_sink.exactly_once.ledger_topic import ledger_partitions
from spark_kafka_sink.exactly_once.values import driver_id, task_id
from tests.faults.chaos.drivers import Drivers, await_that
from tests.faults.chaos.kafka import ChaosKafka, Right
from tests.faults.chaos.processes import Kind, send
from tests.faults.support.fault import Fault

if TYPE_CHECKING:
    from tests.faults.chaos.plan import Step

LEDGER = "__pykafka_ledger"
_TRANSACTIONS = "__transaction_state"
REACHED_S = 240.0
_FULL_S = 60.0
_ELECTED_S = 20.0
_T = TypeVar("_T")

PLANNING = ("driver initialised", "planned")
COMMIT = ("before the intent", "intent in the log", "intent committed", "between EndTxns", "before done", "committed")
TASK = ("task initialised", "task in mid-write", "task prepared")
ABORT = ("abort fenced",)


class Troubled(Protocol):
    """What a trouble is done to: a write, or several under one driver."""

    @property
    def kafka(self) -> ChaosKafka: ...

    @property
    def drivers(self) -> Drivers: ...

    @property
    def fault(self) -> Fault: ...

    @property
    def topic(self) -> str:
        """One that its rows are written to."""

    @property
    def rows(self) -> int:
        """How many a reader has got so far."""

    @property
    def id_prefix(self) -> str:
        """What the transactional ids of one of its writes begin with, in each of its runs; "" at-least-once."""

    @property
    def write_name(self) -> str:
        """The name of the write that runs now: of its entry in the ledger, and of its driver's transactional id. Raises
        ``NotReachedError`` if none runs."""

    def heal(self) -> None:
        """No fault is armed, everything that is stopped goes on, and of several drivers the last one stays."""


_Hit_contra = TypeVar("_Hit_contra", bound=Troubled, contravariant=True)


class Group(Enum):
    """What a trouble strikes, as plots show it."""

    BROKERS = "brokers"
    NETWORK = "network"
    PROCESSES = "processes"
    SETTINGS = "topics, rights and settings"


class NotReachedError(Exception):
    """There was nothing to do it to: no process came to the point, or none was there."""


def pick(choices: Sequence[_T], random: Random) -> _T:
    if not choices:
        raise NotReachedError
    return random.choice(choices)


def arm(hit: Troubled, point: str, action: str = "kill") -> None:
    """Only a write that fails comes to the points of ``ABORT``: then the next commit is made to fail before that."""
    hit.fault.arm(point, action, after="before the intent" if point in ABORT else None)


def await_point(hit: Troubled) -> None:
    """Until a process has come to the point that was armed."""
    if not await_that(lambda: hit.fault.happened, REACHED_S):
        raise NotReachedError


# -- brokers ------------------------------------------------------------------------------------------------------


def broker_killed(hit: Troubled, step: Step) -> None:
    node = pick(hit.kafka.local.node_ids, step.random())
    hit.kafka.kill(node)
    time.sleep(step.seconds)
    hit.kafka.start(node)


def broker_stopped(hit: Troubled, step: Step) -> None:
    node = pick(hit.kafka.local.node_ids, step.random())
    hit.kafka.pause(node)
    time.sleep(step.seconds)
    hit.kafka.resume(node)


def majority_stopped(hit: Troubled, step: Step) -> None:
    spared = pick(hit.kafka.local.node_ids, step.random())
    stopped = [node for node in hit.kafka.local.node_ids if node != spared]
    for node in stopped:
        hit.kafka.pause(node)
    time.sleep(step.seconds)
    for node in stopped:
        hit.kafka.resume(node)


def too_few_in_sync(hit: Troubled, step: Step) -> None:
    """Leaders are there and take nothing: one replica of three is missing, and three are asked for."""
    topics = _topics(hit)
    for topic in topics:
        hit.kafka.set_min_in_sync(topic, 3)
    node = pick(hit.kafka.local.node_ids, step.random())
    hit.kafka.pause(node)
    time.sleep(step.seconds + 4)  # replica.lag.time.max.ms
    hit.kafka.resume(node)
    for topic in topics:
        hit.kafka.set_min_in_sync(topic, 2)


def _topics(hit: Troubled) -> tuple[str, ...]:
    """Those that its writes need."""
    return (hit.topic, LEDGER) if hit.id_prefix else (hit.topic,)


def _leader_that_matters(hit: Troubled, random: Random) -> Callable[[], int]:
    """Asks who leads the ledger's partition that has the entries of the running write, or who coordinates the
    transactional id of its driver."""
    name = hit.write_name
    if random.random() < 0.5:
        place = ledger_partitions(name, LEDGER)
        return lambda: hit.kafka.leader(place.topic, place.partition)
    return lambda: hit.kafka.coordinator(driver_id(name))


def _election_at(hit: Troubled, step: Step, points: Sequence[str]) -> None:
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


def election_inside_planning(hit: Troubled, step: Step) -> None:
    _election_at(hit, step, PLANNING)


def election_inside_commit(hit: Troubled, step: Step) -> None:
    _election_at(hit, step, COMMIT)


def broker_restarted(hit: Troubled, step: Step) -> None:
    """A controlled shutdown: its leaders and coordinators move away before it ends, and it starts at once."""
    hit.kafka.restart(pick(hit.kafka.local.node_ids, step.random()))


def leaders_moved(hit: Troubled, step: Step) -> None:
    """By elections while all brokers run: those of the ledger, of the transactions of all ids, or of the topic."""
    topic = pick((*_topics(hit), *([_TRANSACTIONS] if hit.id_prefix else [])), step.random())
    for partition in range(hit.kafka.partitions(topic)):
        hit.kafka.move_leader(topic, partition)
    time.sleep(step.seconds)


def disk_full(hit: Troubled, step: Step) -> None:
    """A broker cannot write any more. It ends, as its only log directory has failed, and has space when it starts."""
    node = pick(hit.kafka.local.node_ids, step.random())
    if not hit.kafka.fill_disk(node, _FULL_S):
        raise NotReachedError
    time.sleep(step.seconds)
    hit.kafka.start(node)


# -- drivers and executors ----------------------------------------------------------------------------------------


def driver_killed(hit: Troubled, step: Step) -> None:
    hit.drivers.kill()
    time.sleep(step.seconds)


def driver_stopped(hit: Troubled, step: Step) -> None:
    stopped = hit.drivers.own_processes()
    send(stopped, signal.SIGSTOP)
    time.sleep(step.seconds)
    send(stopped, signal.SIGCONT)


def driver_replaced(hit: Troubled, step: Step) -> None:
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


def killed_at_a_point(hit: Troubled, step: Step) -> None:
    arm(hit, pick((*PLANNING, *TASK, *COMMIT, *ABORT), step.random()))
    await_point(hit)


def executor_killed(hit: Troubled, step: Step) -> None:
    send([pick(hit.drivers.processes(Kind.EXECUTOR), step.random())], signal.SIGKILL)
    time.sleep(step.seconds)


def executor_stopped(hit: Troubled, step: Step) -> None:
    """Longer than Spark waits for its heartbeats, or shorter; its workers with it."""
    stopped = hit.drivers.processes(Kind.EXECUTOR, Kind.DAEMON, Kind.WORKER, of_executor=True)
    send(stopped, signal.SIGSTOP)
    time.sleep(step.seconds)
    send(stopped, signal.SIGCONT)


def worker_killed(hit: Troubled, step: Step) -> None:
    send([pick(hit.drivers.processes(Kind.WORKER), step.random())], signal.SIGKILL)
    time.sleep(step.seconds)


def workers_outlive_the_driver(hit: Troubled, step: Step) -> None:
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


# -- rights and features ------------------------------------------------------------------------------------------


def rights_revoked(hit: Troubled, step: Step) -> None:
    right = pick(_rights(hit), step.random())
    hit.kafka.revoke(right)
    time.sleep(step.seconds)
    hit.kafka.give_back(right)


def _rights(hit: Troubled) -> list[Right]:
    """Those that its writes need. Rights on transactional ids are left out if no broker knows such an id."""
    of_topic = Right(ResourceType.TOPIC, hit.topic, AclOperation.WRITE)
    if not hit.id_prefix:
        return [of_topic]
    name = hit.id_prefix.removesuffix("-")
    of_ids = (
        Right(ResourceType.TRANSACTIONAL_ID, f"{hit.id_prefix}*", AclOperation.WRITE),
        Right(ResourceType.TRANSACTIONAL_ID, f"{hit.id_prefix}*", AclOperation.DESCRIBE),
        Right(ResourceType.TRANSACTIONAL_ID, driver_id(name), AclOperation.WRITE),
        Right(ResourceType.TRANSACTIONAL_ID, task_id(name, 1), AclOperation.DESCRIBE),
    )
    known = hit.kafka.transactional_ids(hit.id_prefix)
    return [
        of_topic,
        *(
            Right(ResourceType.TOPIC, LEDGER, operation)
            for operation in (AclOperation.WRITE, AclOperation.READ, AclOperation.DESCRIBE)
        ),
        *(right for right in of_ids if any(map(right.covers, known))),
    ]


def transaction_protocol_changed(hit: Troubled, step: Step) -> None:
    """From 1 to 2, or back, for the rounds to come too; brokers that were just upgraded have 0."""
    if not hit.kafka.knows_transaction_versions:
        raise NotReachedError
    hit.kafka.set_transaction_version(2 if hit.kafka.transaction_version == 1 else 1)
    time.sleep(step.seconds)


@dataclass(frozen=True)
class Trouble(Generic[_Hit_contra]):
    """``needs``: what it has to itself; two that need the same do not happen together. ``weight``: how often it is
    drawn. ``every``: it begins each round whose number is a multiple of that; 0: it takes its turn with the others."""

    act: Callable[[_Hit_contra, Step], None]
    group: Group
    needs: frozenset[str]
    weight: int = 1
    every: int = 0


def trouble(
    act: Callable[[_Hit_contra, Step], None], group: Group, *needs: str, weight: int = 1, every: int = 0
) -> Trouble[_Hit_contra]:
    return Trouble(act, group, frozenset(needs), weight, every)


def table_of(*troubles: Trouble[_Hit_contra]) -> dict[str, Trouble[_Hit_contra]]:
    """By their names."""
    return {each.act.__name__.replace("_", " "): each for each in troubles}


TROUBLES = table_of(
    trouble(broker_killed, Group.BROKERS, "brokers", weight=2),
    trouble(broker_stopped, Group.BROKERS, "brokers", weight=2),
    trouble(majority_stopped, Group.BROKERS, "brokers"),
    trouble(too_few_in_sync, Group.BROKERS, "brokers"),
    trouble(broker_restarted, Group.BROKERS, "brokers"),
    trouble(leaders_moved, Group.BROKERS, "brokers", weight=2),
    trouble(disk_full, Group.BROKERS, "brokers"),
    trouble(election_inside_planning, Group.BROKERS, "brokers", "point", weight=2),
    trouble(election_inside_commit, Group.BROKERS, "brokers", "point", weight=3),
    trouble(driver_killed, Group.PROCESSES, "driver", weight=2),
    trouble(driver_stopped, Group.PROCESSES, "driver"),
    trouble(driver_replaced, Group.PROCESSES, "driver", "point", weight=2),
    trouble(killed_at_a_point, Group.PROCESSES, "point", weight=2),
    trouble(executor_killed, Group.PROCESSES, "executors"),
    trouble(executor_stopped, Group.PROCESSES, "executors"),
    trouble(worker_killed, Group.PROCESSES, "workers"),
    trouble(workers_outlive_the_driver, Group.PROCESSES, "driver", "executors", "workers", "point", weight=2),
    trouble(rights_revoked, Group.SETTINGS, "rights", weight=2),
    trouble(transaction_protocol_changed, Group.SETTINGS, "protocol", weight=2),
)
