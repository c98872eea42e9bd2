"""A real Kafka of three nodes in trouble: what an independent consumer finds in the log, and that nothing leaks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.producer import core
from spark_kafka_sink.testing import LocalKafka
from tests.faults.kafka_faults import KAFKA_FAULTS, PARTITIONS, KafkaFault, Site
from tests.faults.leaks import nothing_leaks
from tests.faults.promises import Log, Lost, Promise, check
from tests.faults.settings import SETTINGS, Setting
from tests.faults.support.proxy import Address, Proxy, redirected
from tests.faults.workload import Workload
from tests.spark.topics import Topic
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.filterwarnings("ignore::spark_kafka_sink.common.config.producer_config.ConfigWarning"),
]

# Before a merge these two meet one setting each, of the first two, which are what most producers are set to.
BEFORE_A_MERGE = ("network cut in a request", "leader killed")
ROWS = [
    pytest.param(
        fault,
        setting,
        promise,
        id=f"{fault}-{setting}",
        marks=[] if place == number % 2 and str(fault) in BEFORE_A_MERGE else [pytest.mark.slow],
    )
    for number, fault in enumerate(KAFKA_FAULTS)
    for place, setting in enumerate(SETTINGS)
    if (promise := fault.promise_of(setting)) is not None
]
PROPERTIES = {"auto.create.topics.enable": "false"}

_topics = (f"trouble-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[LocalKafka]:
    with LocalKafka(nodes=3, properties=PROPERTIES) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def proxies(three_nodes: LocalKafka) -> Iterator[dict[Address, Proxy]]:
    with ExitStack() as stack:
        addresses = [address.rsplit(":", 1) for address in three_nodes.bootstrap_servers.split(",")]
        brokers = [(host, int(port)) for host, port in addresses]
        yield {broker: stack.enter_context(Proxy(broker)) for broker in brokers}


@pytest.mark.parametrize(("fault", "setting", "promise"), ROWS)
def test_what_is_in_the_log(
    three_nodes: LocalKafka,
    proxies: dict[Address, Proxy],
    monkeypatch: pytest.MonkeyPatch,
    fault: KafkaFault,
    setting: Setting,
    promise: Promise,
) -> None:
    site = Site(three_nodes, next(_topics), proxies)
    three_nodes.create_topic(site.topic, PARTITIONS)
    monkeypatch.setattr(core, "Selector", redirected({at: proxy.address for at, proxy in proxies.items()}))
    with nothing_leaks(files=False):
        run(site, fault, setting, promise)


def run(site: Site, fault: KafkaFault, setting: Setting, promise: Promise) -> None:
    config = {**setting.config(site.kafka.bootstrap_servers), **fault.config}
    with KafkaProducer(config) as kafka_producer:
        workload = Workload(kafka_producer, site.topic, setting)
        failed = workload.go_through(fault, site)
    site.kafka.await_in_sync(site.topic)  # before that a leader may not say how far consumers can read
    if promise.lost is Lost.NOTHING and setting.acks != "all":
        eventually(lambda: count(read(site)) >= workload.written)  # consumers wait for all replicas
    log = read(site)
    check(promise, log, workload.written, failed)
    if promise.lost is not Lost.ANY:  # else another row may be where a lost one was
        workload.check_offsets(log)


def count(log: Log) -> int:
    return len({row for rows in log.values() for row in rows})


def read(site: Site) -> Log:
    log: dict[int, list[int]] = {}
    for record in Topic(site.kafka.bootstrap_servers, site.topic).records():
        log.setdefault(record.partition, []).append(int(record.value or b""))
    return log
