"""All brokers of a cluster are upgraded, one by one, between two attempts to end the same transactions, or under open
producers; then transaction.version changes.
"""

from __future__ import annotations

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from functools import cache
from itertools import count, takewhile
from threading import Event

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord, resume
from spark_kafka_sink.exactly_once.commit import commit_batch
from spark_kafka_sink.exactly_once.plan import plan_write
from spark_kafka_sink.exactly_once.task import opened
from spark_kafka_sink.testing import LocalKafka
from tests.contract.exactly_once.runs import Query
from tests.faults.exactly_once.processes import LEDGER
from tests.faults.exactly_once.reader import read_committed
from tests.faults.exactly_once.test_crashes import EACH_ONCE, MORE, ROWS
from tests.faults.exactly_once.three_nodes import (
    END_TXN,
    PROPERTIES,
    SENT_END_TXN_VERSIONS,
    all_in_sync,
    await_that,
    cut_at_the_end,
)
from tests.faults.support.proxy import Direction
from tests.support.waiting import DEADLINE_S

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

OLD, NEW = "3.9.1", "4.4.0"
WAIT_MS = int(DEADLINE_S * 1_000)


@pytest.fixture(params=[1, 3], ids=["alone", "rolling"])
def kafka(request):
    properties = PROPERTIES if request.param == 3 else {}
    with LocalKafka(nodes=request.param, version=OLD, properties=properties) as kafka:
        yield kafka


def test_an_upgrade_between_two_attempts_of_an_end(kafka, parted, proxies):
    """The answer to one end is lost with the network; the next attempt meets brokers of another release."""
    parted.options = {"delivery.timeout.ms": 300_000}
    parted.timeout_ms = 600_000
    reports = parted.tasks(parted.plan(), 0, ROWS)
    commit, _ = cut_at_the_end(Direction.TO_CLIENT, parted=True).strike(kafka, parted, proxies, reports)
    for proxy in proxies.values():
        proxy.part()
    for node in kafka.node_ids:
        kafka.stop(node)
        kafka.start(node, version=NEW)
        all_in_sync(kafka, parted)
    for proxy in proxies.values():
        proxy.heal()
    commit.result()
    assert set().union(*(proxy.versions(END_TXN) for proxy in proxies.values())) == {SENT_END_TXN_VERSIONS[1]}
    parted.run(1, MORE)
    assert parted.committed() == {**EACH_ONCE, b"e": 1, b"f": 1}


def end_in_turn(kafka, topic, committed, stop):
    """A commit and an abort in turn, by one producer; or "elsewhere", after which another producer goes on."""
    config = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic, "max.block.ms": WAIT_MS}
    with ExitStack() as stack:
        producer = stack.enter_context(KafkaProducer(config))
        producer.init_transactions()
        for number in takewhile(lambda _: not stop.is_set(), count()):
            commit = number % 2 == 0
            producer.begin_transaction()
            sent = [producer.send(ProducerRecord(topic, b"%d" % number, partition=each)) for each in range(2)]
            producer.flush()
            if topic == "elsewhere":
                ending = resume(producer.prepare_transaction(), config)
                identity = ending.commit() if commit else ending.abort()
                stack.close()
                producer = stack.enter_context(KafkaProducer(config))
                producer.resume_transactions(identity)
            else:
                (producer.commit_transaction if commit else producer.abort_transaction)()
            committed.update({b"%d" % number: len(sent)} if commit else {})


def write_batches(kafka, topic, committed, stop):
    """The sink, with one driver and one producer for all its batches."""
    query = Query(kafka.bootstrap_servers, name=topic, topic=topic, ledger=LEDGER)
    with ExitStack() as stack:
        core = cache(lambda config: stack.enter_context(opened(config)))
        query.lease = lambda config: nullcontext(core(config))
        while not stop.is_set():
            number = len(committed)
            commit_batch(query.settings, query.tasks(plan_write(query.settings), number, [[b"%d" % number]] * 2))
            committed[b"%d" % number] = 2


def skipped_markers(kafka):
    """The topics of which Kafka left out markers: while its only broker stops, it takes partitions without a leader for
    deleted ones. The rows of such a transaction end with the next one, which no client can know.
    """
    logs = "".join(log.read_text() for log in kafka.folder.glob("node-*/broker.log"))
    found = re.findall(r"Couldn't find leader endpoint for partitions Set\(([^)]*)\)", logs)
    return {partition.rpartition("-")[0] for partitions in found for partition in partitions.split(", ")}


@pytest.mark.timeout(1_200)
def test_incident_records_of_an_abort_were_read_when_the_cluster_changed_its_protocol_under_open_producers(kafka):
    """A connection that was made anew chose protocol v2 in the epoch of v1, whose markers were still pending."""
    expected = {topic: Counter() for topic in ("batches", "elsewhere", "1", "2", "3", "4")}
    for topic in expected:
        kafka.create_topic(topic, 2)

    def go_on():
        before = {topic: len(committed) for topic, committed in expected.items()}
        await_that(
            lambda: (
                any(work.done() for work in works)
                or all(len(expected[topic]) > before[topic] + 5 for topic in expected)
            ),
            "they go on",
        )
        for work in works:
            assert not work.done(), work.exception()

    stop = Event()
    with ThreadPoolExecutor(len(expected)) as threads:
        works = [
            threads.submit(write_batches if topic == "batches" else end_in_turn, kafka, topic, committed, stop)
            for topic, committed in expected.items()
        ]
        try:
            for level in (0, 2, 1, 2):
                go_on()
                kafka.set_feature("transaction.version", level)
                for node in kafka.node_ids:
                    kafka.stop(node)
                    kafka.start(node, version=NEW)
                    for topic in (*expected, "__transaction_state"):
                        kafka.await_in_sync(topic)
            go_on()
        finally:
            stop.set()
        for work in works:
            work.result()
    skipped = skipped_markers(kafka)
    for topic, committed in expected.items():
        if skipped & ({topic, LEDGER} if topic == "batches" else {topic}):
            continue
        found = read_committed(kafka.bootstrap_servers, topic)
        assert Counter(value for values in found.values() for value in values) == committed
