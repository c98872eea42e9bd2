"""What goes wrong at a ``TestBroker`` while a producer writes, and what each setting promises then."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

from spark_kafka_sink.testing.broker import KEPT, Fault, Faults, TestBroker
from tests.faults import promises
from tests.faults.promises import (
    AGAIN,
    AGAIN_ANY_ORDER,
    ANY_ORDER,
    ONCE,
    REFUSED,
    REFUSED_AGAIN,
    REFUSED_AGAIN_ANY_ORDER,
    SOME,
    Write,
)

TOPIC = "t"
PARTITIONS = 3
SHORT_TIMEOUT_MS = 200
IMPATIENT_MS = 100

Strike = Callable[[TestBroker, Write], None]


@dataclass(frozen=True)
class BrokerFault(promises.Fault):
    """``cold``: it strikes before the first row; ``deletes_earlier_rows``: what was written before it is gone."""

    cold: bool = False
    deletes_earlier_rows: bool = False


def scripted(add: Callable[[Faults], Fault]) -> Strike:
    """A fault of the broker's own script, met while rows are written."""

    def strike(broker: TestBroker, write: Write) -> None:
        fault = add(broker.faults)
        write()
        fault.wait()
        fault.remove()

    return strike


def answers(error: str, times: int = 2) -> Strike:
    return scripted(lambda faults: faults.answer("Produce", error, topic=TOPIC, times=times))


def outlast(timeout_ms: int) -> None:
    time.sleep(1.2 * timeout_ms / 1000)


def longer_than_the_timeout(add: Callable[[Faults], Fault]) -> Strike:
    def strike(broker: TestBroker, write: Write) -> None:
        fault = add(broker.faults)
        write()
        outlast(SHORT_TIMEOUT_MS)
        fault.remove()

    return strike


def while_metadata_is_asked_for(add: Callable[[Faults], Fault]) -> Strike:
    """A fault that Metadata requests meet, and a reason to ask for metadata."""

    def strike(broker: TestBroker, write: Write) -> None:
        broker.faults.answer("Produce", "NOT_LEADER_OR_FOLLOWER")
        scripted(add)(broker, write)

    return strike


def in_mid_write(action: Callable[[TestBroker], None], mend: Callable[[TestBroker], None]) -> Strike:
    """``action`` just before the leader of partition 0 handles the third Produce request from now."""

    def strike(broker: TestBroker, write: Write) -> None:
        requests = itertools.count(1)
        struck = broker.faults.run("Produce", lambda: action(broker), only=lambda _: next(requests) == 3)
        write()
        struck.wait()
        write()
        mend(broker)

    return strike


def leader(broker: TestBroker) -> int:
    return broker.leader(TOPIC, 0)


def all_nodes_restart(broker: TestBroker, write: Write) -> None:
    for node in broker.node_ids:
        broker.kill(node)
    write()
    for node in broker.node_ids:
        broker.start(node)


def rolling_restart(broker: TestBroker, write: Write) -> None:
    for node in broker.node_ids:
        broker.kill(node)
        write()
        broker.start(node)
        write()


def bootstrap_server_is_down(broker: TestBroker, write: Write) -> None:
    broker.kill(1)
    write()
    broker.start(1)


def leader_hangs(broker: TestBroker, write: Write) -> None:
    """Longer than request.timeout.ms: what waits in its sockets is handled when it goes on."""
    hanging = leader(broker)
    broker.pause(hanging)
    write()
    outlast(IMPATIENT_MS)
    other_nodes = [node for node in broker.node_ids if node != hanging]
    for partition in range(PARTITIONS):
        if broker.leader(TOPIC, partition) == hanging:
            broker.move_leader(TOPIC, partition, other_nodes[0])
    broker.resume(hanging)


def no_leader(broker: TestBroker, write: Write) -> None:
    before = {partition: broker.leader(TOPIC, partition) for partition in range(PARTITIONS)}
    asked = len(broker.requests.of("Metadata"))
    for partition in before:
        broker.move_leader(TOPIC, partition)
    write()
    broker.requests.wait_for("Metadata", asked + 1)
    for partition, node in before.items():
        broker.move_leader(TOPIC, partition, node)


def leaders_move(broker: TestBroker) -> None:
    for partition in range(PARTITIONS):
        broker.move_leader(TOPIC, partition, broker.leader(TOPIC, partition) % len(broker.node_ids) + 1)


def isr_shrinks(broker: TestBroker) -> None:
    for partition in range(PARTITIONS):
        broker.set_isr(TOPIC, partition, [broker.leader(TOPIC, partition)])


def isr_is_whole(broker: TestBroker) -> None:
    for partition in range(PARTITIONS):
        broker.set_isr(TOPIC, partition, broker.node_ids)


def followers_stop(broker: TestBroker) -> None:
    for partition in range(PARTITIONS):
        broker.hold_followers(TOPIC, partition)


def followers_go_on(broker: TestBroker) -> None:
    for partition in range(PARTITIONS):
        broker.release_followers(TOPIC, partition)


def disk_fails(broker: TestBroker) -> None:
    broker.fail_storage(TOPIC, 0)


def disk_is_mended(broker: TestBroker) -> None:
    broker.fail_storage(TOPIC, 0, failed=False)


def producers_are_forgotten(refuse_unknown: bool) -> Strike:
    def strike(broker: TestBroker, write: Write) -> None:
        for partition in range(PARTITIONS):
            broker.drop_producer_state(TOPIC, partition, refuse_unknown=refuse_unknown)
        write()

    return strike


def topic_is_made_again(broker: TestBroker, write: Write) -> None:
    """Between two Metadata requests that do not find it, so that nothing of it is in flight."""
    broker.delete_topic(TOPIC)
    asked = itertools.count(1)
    made = broker.faults.run(
        "Metadata", lambda: broker.create_topic(TOPIC, PARTITIONS) and None, only=lambda _: next(asked) == 3
    )
    while not made.hits:
        write()


def partitions_are_added(broker: TestBroker, write: Write) -> None:
    write()
    broker.create_partitions(TOPIC, 2 * PARTITIONS)
    broker.requests.wait_for("Metadata", len(broker.requests.of("Metadata")) + 2)
    write()


RETRIABLE = (
    "NOT_LEADER_OR_FOLLOWER",
    "NOT_ENOUGH_REPLICAS",
    "CORRUPT_MESSAGE",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
)
FINAL = ("TOPIC_AUTHORIZATION_FAILED", "INVALID_RECORD")
IMPATIENT = {"request.timeout.ms": IMPATIENT_MS}
# Rows end with it, so that it also has to be long enough for those that nothing keeps.
EXPIRES = {"request.timeout.ms": SHORT_TIMEOUT_MS, "delivery.timeout.ms": SHORT_TIMEOUT_MS + 1}

BROKER_FAULTS = (
    #            fault, idempotent, one in flight, five in flight, acks=0
    *(BrokerFault(f"answers {error}", answers(error), ONCE, ONCE, ANY_ORDER, SOME) for error in RETRIABLE),
    *(BrokerFault(f"answers {error}", answers(error, times=1), REFUSED, REFUSED, REFUSED, SOME) for error in FINAL),
    BrokerFault("request lost", scripted(lambda script: script.drop_before("Produce", times=2)),
                ONCE, ONCE, AGAIN_ANY_ORDER, SOME),  # the answer before it may be lost with the connection
    BrokerFault("answer lost", scripted(lambda script: script.drop_after("Produce", times=2)),
                ONCE, AGAIN, AGAIN_ANY_ORDER, None),
    BrokerFault("answer never comes", scripted(lambda script: script.lose_answer("Produce")),
                ONCE, AGAIN, AGAIN_ANY_ORDER, None, config=IMPATIENT),
    BrokerFault("answer cut in mid-frame", scripted(lambda script: script.cut("Produce", 20)),
                ONCE, AGAIN, AGAIN_ANY_ORDER, None),
    BrokerFault("answers out of order", scripted(lambda script: script.reorder("Produce")),
                ONCE, AGAIN, AGAIN_ANY_ORDER, None, config=IMPATIENT),
    BrokerFault("slow requests", scripted(lambda script: script.delay("Produce", 30, times=3)), ONCE, ONCE, ONCE, ONCE),
    BrokerFault("slow answers", scripted(lambda script: script.delay_answer("Produce", 30, times=3)),
                ONCE, ONCE, ONCE, None),
    BrokerFault("throttled", scripted(lambda script: script.throttle("Produce", 30, times=3)), ONCE, ONCE, ONCE, None),
    BrokerFault("not written, and expired",
                longer_than_the_timeout(lambda script: script.drop_before("Produce", times=KEPT)),
                REFUSED, REFUSED, REFUSED, None, config=EXPIRES),
    BrokerFault("written, but expired",
                longer_than_the_timeout(lambda script: script.lose_answer("Produce", times=KEPT)),
                REFUSED, REFUSED_AGAIN, REFUSED_AGAIN_ANY_ORDER, None, config=EXPIRES),
    BrokerFault("metadata lost", while_metadata_is_asked_for(lambda script: script.drop_before("Metadata", times=3)),
                ONCE, AGAIN, AGAIN_ANY_ORDER, SOME),
    BrokerFault("connections cut", in_mid_write(lambda broker: broker.cut_connections(leader(broker)), lambda _: None),
                ONCE, AGAIN, AGAIN_ANY_ORDER, SOME),
    BrokerFault("leader killed", in_mid_write(lambda broker: broker.kill(leader(broker)), lambda _: None),
                ONCE, AGAIN, AGAIN_ANY_ORDER, SOME),
    BrokerFault("all nodes restart", all_nodes_restart, ONCE, AGAIN, AGAIN_ANY_ORDER, SOME),
    BrokerFault("rolling restart", rolling_restart, ONCE, AGAIN, AGAIN_ANY_ORDER, SOME),
    BrokerFault("leader hangs, others lead", leader_hangs, ONCE, AGAIN, AGAIN_ANY_ORDER, SOME,
                config=IMPATIENT),
    BrokerFault("leaders move", in_mid_write(leaders_move, lambda _: None), ONCE, ONCE, ANY_ORDER, SOME),
    BrokerFault("no leader for a while", no_leader, ONCE, ONCE, ANY_ORDER, SOME),
    BrokerFault("min ISR lost and regained", in_mid_write(isr_shrinks, isr_is_whole),
                ONCE, AGAIN, AGAIN_ANY_ORDER, ONCE),
    BrokerFault("followers behind", in_mid_write(followers_stop, followers_go_on), ONCE, ONCE, ONCE, ONCE),
    BrokerFault("disk fails", in_mid_write(disk_fails, disk_is_mended), ONCE, ONCE, ANY_ORDER, SOME),
    BrokerFault("producers forgotten", producers_are_forgotten(False), ONCE, ONCE, ONCE, ONCE),
    BrokerFault("producers forgotten, and refused", producers_are_forgotten(True), ONCE, ONCE, ONCE, ONCE),
    BrokerFault("topic made again", topic_is_made_again, ONCE, ONCE, ANY_ORDER, SOME, deletes_earlier_rows=True),
    BrokerFault("partitions added", partitions_are_added, ONCE, ONCE, ONCE, ONCE,
                config={"metadata.max.age.ms": 20}),
    BrokerFault("bootstrap server down", bootstrap_server_is_down, ONCE, AGAIN, AGAIN_ANY_ORDER, SOME, cold=True),
    BrokerFault("first connection lost", scripted(lambda script: script.drop_before("ApiVersions", times=3)),
                ONCE, ONCE, ONCE, ONCE, cold=True),
    BrokerFault("handshake never answered", scripted(lambda script: script.lose_answer("ApiVersions")),
                ONCE, AGAIN, AGAIN_ANY_ORDER, ONCE, cold=True, config=IMPATIENT),
    BrokerFault("no leader at first", scripted(lambda script: script.answer("Metadata", "LEADER_NOT_AVAILABLE")),
                ONCE, ONCE, ONCE, ONCE, cold=True),
    BrokerFault("coordinator loads",
                scripted(lambda script: script.answer("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS", times=3)),
                ONCE, None, None, None, cold=True),
    BrokerFault("producer id lost", scripted(lambda script: script.drop_after("InitProducerId", times=2)),
                ONCE, None, None, None, cold=True),
)  # fmt: skip
