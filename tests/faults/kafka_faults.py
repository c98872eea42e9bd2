"""What goes wrong at a real Kafka of three nodes while a producer writes, and what each setting promises then."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from spark_kafka_sink.testing import LocalKafka
from tests.faults.promises import AGAIN, AGAIN_ANY_ORDER, ONCE, SOME, Fault, Lost, Promise, Write
from tests.faults.settings import Setting
from tests.faults.support.proxy import Address, Direction, Proxy
from tests.support.waiting import eventually

PARTITIONS = 3
SHORT_TIMEOUT_MS = 1500


@dataclass(frozen=True)
class Site:
    """The cluster, a topic of it, and a proxy before each node."""

    kafka: LocalKafka
    topic: str
    proxies: Mapping[Address, Proxy]

    def leader(self) -> int:
        return self.kafka.leader(self.topic, 0)

    def proxy(self, node: int) -> Proxy:
        host, port = self.kafka.bootstrap_servers.split(",")[node - 1].split(":")
        return self.proxies[host, int(port)]


@dataclass(frozen=True)
class KafkaFault(Fault):
    """``loses_leaders``: what only a leader has may be lost with it, so that acks=1 promises no row."""

    loses_leaders: bool = False

    def promise_of(self, setting: Setting) -> Promise | None:
        promise = self.promise(setting.guarantee)
        if promise is not None and self.loses_leaders and setting.acks == "1":
            return replace(promise, lost=Lost.ANY)
        return promise


def leader_is_killed(site: Site, write: Write) -> None:
    killed = site.leader()
    write()
    site.kafka.kill(killed)
    write()
    eventually(lambda: site.leader() not in (killed, -1))
    write()
    site.kafka.start(killed)


def rolling_restart(site: Site, write: Write) -> None:
    for node in site.kafka.node_ids:
        write()
        site.kafka.stop(node)
        write()
        site.kafka.start(node)
        site.kafka.await_in_sync(site.topic)


def cut(direction: Direction, after_bytes: int) -> Callable[[Site, Write], None]:
    def strike(site: Site, write: Write) -> None:
        proxy = site.proxy(site.leader())
        proxy.cut(direction, after_bytes)
        write()
        eventually(lambda: proxy.is_cut)

    return strike


def half_open_connection(site: Site, write: Write) -> None:
    assert site.proxy(site.leader()).silence()
    write()


def leader_hangs(site: Site, write: Write) -> None:
    hanging = site.leader()
    write()
    site.kafka.pause(hanging)
    write()
    time.sleep(1.5 * SHORT_TIMEOUT_MS / 1000)
    site.kafka.resume(hanging)


IMPATIENT = {"request.timeout.ms": SHORT_TIMEOUT_MS}

KAFKA_FAULTS = (
    #           fault, idempotent, one in flight, five in flight, acks=0
    KafkaFault("network cut in a request", cut(Direction.TO_BROKER, 90), ONCE, AGAIN, AGAIN_ANY_ORDER, SOME),
    KafkaFault("network cut in an answer", cut(Direction.TO_CLIENT, 10), ONCE, AGAIN, AGAIN_ANY_ORDER, None),
    KafkaFault("half-open connection", half_open_connection, ONCE, AGAIN, AGAIN_ANY_ORDER, SOME, config=IMPATIENT),
    KafkaFault("leader hangs", leader_hangs, ONCE, AGAIN, AGAIN_ANY_ORDER, SOME, config=IMPATIENT),
    KafkaFault("leader killed", leader_is_killed, ONCE, AGAIN, AGAIN_ANY_ORDER, SOME, loses_leaders=True),
    KafkaFault("rolling restart", rolling_restart, ONCE, AGAIN, AGAIN_ANY_ORDER, SOME, loses_leaders=True),
)  # fmt: skip
