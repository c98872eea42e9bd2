"""What can be done to a query, its executors and its brokers: one function each, and the table of them.

Each does it, lets ``step.seconds`` pass, and mends it. What is hit is drawn from what is there, by ``step.draw``.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka.admin import AclOperation, ResourceType

from tests.faults.chaos.drivers import await_that
from tests.faults.chaos.kafka import Right
from tests.faults.chaos.processes import Kind, send

if TYPE_CHECKING:
    from tests.faults.chaos.plan import Step
    from tests.faults.chaos.run import Chaos

LEDGER = "__pykafka_commits"
_TRANSACTIONS = "__transaction_state"
REACHED_S = 240.0
_FULL_S = 60.0
_ELECTED_S = 20.0
_T = TypeVar("_T")

PLANNING = ("driver initialised", "planned")
COMMIT = ("before the intent", "intent in the log", "intent committed", "between EndTxns", "before done", "committed")
TASK = ("task initialised", "task in mid-write", "task prepared")


class NotReachedError(Exception):
    """There was nothing to do it to: no process came to the point, or none was there."""


def pick(choices: Sequence[_T], draw: float) -> _T:
    if not choices:
        raise NotReachedError
    return choices[int(draw * len(choices))]


def another_draw(draw: float) -> float:
    return (draw * 7919) % 1


# -- brokers ------------------------------------------------------------------------------------------------------


def broker_killed(chaos: Chaos, step: Step) -> None:
    node = pick(chaos.kafka.local.node_ids, step.draw)
    chaos.kafka.kill(node)
    time.sleep(step.seconds)
    chaos.kafka.start(node)


def broker_stopped(chaos: Chaos, step: Step) -> None:
    node = pick(chaos.kafka.local.node_ids, step.draw)
    chaos.kafka.pause(node)
    time.sleep(step.seconds)
    chaos.kafka.resume(node)


def majority_stopped(chaos: Chaos, step: Step) -> None:
    spared = pick(chaos.kafka.local.node_ids, step.draw)
    stopped = [node for node in chaos.kafka.local.node_ids if node != spared]
    for node in stopped:
        chaos.kafka.pause(node)
    time.sleep(step.seconds)
    for node in stopped:
        chaos.kafka.resume(node)


def too_few_in_sync(chaos: Chaos, step: Step) -> None:
    """Leaders are there and take nothing: one replica of three is missing, and three are asked for."""
    topics = (chaos.topic, LEDGER)
    for topic in topics:
        chaos.kafka.set_min_in_sync(topic, 3)
    node = pick(chaos.kafka.local.node_ids, step.draw)
    chaos.kafka.pause(node)
    time.sleep(step.seconds + 4)  # replica.lag.time.max.ms
    chaos.kafka.resume(node)
    for topic in topics:
        chaos.kafka.set_min_in_sync(topic, 2)


def _leader_that_matters(chaos: Chaos, draw: float) -> tuple[int, Callable[[], int]]:
    """Of the ledger's partition or the driver's id, and how to ask again."""
    if draw < 0.5:
        partition = chaos.kafka.ledger_partition(LEDGER)
        return chaos.kafka.leader(LEDGER, partition), lambda: chaos.kafka.leader(LEDGER, partition)
    name = f"{chaos.topic}-driver"
    return chaos.kafka.coordinator(name), lambda: chaos.kafka.coordinator(name)


def _election_at(chaos: Chaos, step: Step, point: str) -> None:
    """A process stops at ``point``; another broker is elected meanwhile, and the deposed one comes back later."""
    chaos.fault.arm(point, "stop")
    if not await_that(lambda: chaos.fault.happened, REACHED_S):
        raise NotReachedError
    deposed, leader = _leader_that_matters(chaos, another_draw(step.draw))
    chaos.kafka.pause(deposed)
    elected = await_that(lambda: leader() != deposed, _ELECTED_S)
    with suppress(ProcessLookupError):  # it was killed meanwhile
        chaos.fault.wake()
    time.sleep(step.seconds)
    chaos.kafka.resume(deposed)
    assert elected, f"no broker was elected in place of {deposed}"


def election_inside_planning(chaos: Chaos, step: Step) -> None:
    _election_at(chaos, step, pick(PLANNING, step.draw))


def election_inside_commit(chaos: Chaos, step: Step) -> None:
    _election_at(chaos, step, pick(COMMIT, step.draw))


def broker_restarted(chaos: Chaos, step: Step) -> None:
    """A controlled shutdown: its leaders and coordinators move away before it ends, and it starts at once."""
    chaos.kafka.restart(pick(chaos.kafka.local.node_ids, step.draw))


def leaders_moved(chaos: Chaos, step: Step) -> None:
    """By elections while all brokers run: those of the ledger, of the transactions of all ids, or of the topic."""
    topic = pick((LEDGER, _TRANSACTIONS, chaos.topic), step.draw)
    for partition in range(chaos.kafka.partitions(topic)):
        chaos.kafka.move_leader(topic, partition)
    time.sleep(step.seconds)


def disk_full(chaos: Chaos, step: Step) -> None:
    """A broker cannot write any more. It ends, as its only log directory has failed, and has space when it starts."""
    node = pick(chaos.kafka.local.node_ids, step.draw)
    if not chaos.kafka.fill_disk(node, _FULL_S):
        raise NotReachedError
    time.sleep(step.seconds)
    chaos.kafka.start(node)


# -- drivers and executors ----------------------------------------------------------------------------------------


def driver_killed(chaos: Chaos, step: Step) -> None:
    chaos.drivers.kill()
    time.sleep(step.seconds)


def driver_stopped(chaos: Chaos, step: Step) -> None:
    stopped = chaos.drivers.own_processes()
    send(stopped, signal.SIGSTOP)
    time.sleep(step.seconds)
    send(stopped, signal.SIGCONT)


def driver_replaced(chaos: Chaos, step: Step) -> None:
    """It stops in mid-commit, its successor goes on, and then it wakes up and goes on too."""
    point = pick((*PLANNING, *COMMIT), step.draw)
    chaos.fault.arm(point, "stop")
    if not await_that(lambda: chaos.fault.happened, REACHED_S):
        raise NotReachedError
    old, before = chaos.drivers.own_processes(), chaos.rows
    send(old, signal.SIGSTOP)
    chaos.drivers.abandon()
    await_that(lambda: chaos.rows > before, REACHED_S)
    send(old, signal.SIGCONT)
    time.sleep(step.seconds)
    send(old, signal.SIGKILL)


def killed_at_a_point(chaos: Chaos, step: Step) -> None:
    chaos.fault.arm(pick((*PLANNING, *TASK, *COMMIT), step.draw))
    if not await_that(lambda: chaos.fault.happened, REACHED_S):
        raise NotReachedError


def executor_killed(chaos: Chaos, step: Step) -> None:
    send([pick(chaos.drivers.processes(Kind.EXECUTOR), step.draw)], signal.SIGKILL)
    time.sleep(step.seconds)


def executor_stopped(chaos: Chaos, step: Step) -> None:
    """Longer than Spark waits for its heartbeats, or shorter; its workers with it."""
    stopped = chaos.drivers.processes(Kind.EXECUTOR, Kind.DAEMON, Kind.WORKER, of_executor=True)
    send(stopped, signal.SIGSTOP)
    time.sleep(step.seconds)
    send(stopped, signal.SIGCONT)


def worker_killed(chaos: Chaos, step: Step) -> None:
    send([pick(chaos.drivers.processes(Kind.WORKER), step.draw)], signal.SIGKILL)
    time.sleep(step.seconds)


def workers_outlive_the_driver(chaos: Chaos, step: Step) -> None:
    """A task waits in mid-work; driver and executors die, a successor goes on, and then the task does too."""
    chaos.fault.arm(pick(TASK, step.draw), "hold")
    if not await_that(lambda: chaos.fault.happened, REACHED_S):
        raise NotReachedError
    tasks = chaos.drivers.processes(Kind.WORKER, of_executor=True)
    # A daemon that is dead tells its workers nothing when its executor ends.
    send(chaos.drivers.processes(Kind.DAEMON, of_executor=True), signal.SIGKILL)
    chaos.drivers.kill()
    before = chaos.rows
    if another_draw(step.draw) < 0.5:  # else they write while the successor starts
        await_that(lambda: chaos.rows > before, REACHED_S)
    if not chaos.fault.release():
        raise NotReachedError
    time.sleep(step.seconds)
    send(tasks, signal.SIGKILL)


# -- rights and features ------------------------------------------------------------------------------------------


def rights_revoked(chaos: Chaos, step: Step) -> None:
    right = pick(
        (
            Right(ResourceType.TOPIC, chaos.topic, AclOperation.WRITE),
            Right(ResourceType.TOPIC, LEDGER, AclOperation.WRITE),
            Right(ResourceType.TOPIC, LEDGER, AclOperation.READ),
            Right(ResourceType.TOPIC, LEDGER, AclOperation.DESCRIBE),
            Right(ResourceType.TRANSACTIONAL_ID, f"{chaos.topic}*", AclOperation.WRITE),
            Right(ResourceType.TRANSACTIONAL_ID, f"{chaos.topic}-driver", AclOperation.WRITE),
            Right(ResourceType.TRANSACTIONAL_ID, f"{chaos.topic}-1", AclOperation.DESCRIBE),
        ),
        step.draw,
    )
    chaos.kafka.revoke(right)
    time.sleep(step.seconds)
    chaos.kafka.give_back(right)


def transaction_protocol_changed(chaos: Chaos, step: Step) -> None:
    """From 1 to 2, or back, for the rounds to come too; brokers that were just upgraded have 0."""
    if not chaos.kafka.knows_transaction_versions:
        raise NotReachedError
    chaos.kafka.set_transaction_version(2 if chaos.kafka.transaction_version == 1 else 1)
    time.sleep(step.seconds)


@dataclass(frozen=True)
class Trouble:
    """``needs``: what it has to itself; two that need the same do not happen together. ``weight``: how often."""

    act: Callable[[Chaos, Step], None]
    needs: frozenset[str]
    weight: int = 1


def trouble(act: Callable[[Chaos, Step], None], *needs: str, weight: int = 1) -> Trouble:
    return Trouble(act, frozenset(needs), weight)


def table_of(*troubles: Trouble) -> dict[str, Trouble]:
    """By their names."""
    return {each.act.__name__.replace("_", " "): each for each in troubles}


TROUBLES = table_of(
    trouble(broker_killed, "brokers", weight=2),
    trouble(broker_stopped, "brokers", weight=2),
    trouble(majority_stopped, "brokers"),
    trouble(too_few_in_sync, "brokers"),
    trouble(broker_restarted, "brokers"),
    trouble(leaders_moved, "brokers", weight=2),
    trouble(disk_full, "brokers"),
    trouble(election_inside_planning, "brokers", "point", weight=2),
    trouble(election_inside_commit, "brokers", "point", weight=3),
    trouble(driver_killed, "driver", weight=2),
    trouble(driver_stopped, "driver"),
    trouble(driver_replaced, "driver", "point", weight=2),
    trouble(killed_at_a_point, "point", weight=2),
    trouble(executor_killed, "executors"),
    trouble(executor_stopped, "executors"),
    trouble(worker_killed, "workers"),
    trouble(workers_outlive_the_driver, "driver", "executors", "workers", "point", weight=2),
    trouble(rights_revoked, "rights", weight=2),
    trouble(transaction_protocol_changed, "protocol", weight=2),
)
