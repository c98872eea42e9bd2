"""A whole Spark query under faults: every row once, in order, and no transaction left open."""

import time
from random import Random

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.faults.exactly_once.query_job import ROWS, TASKS
from tests.faults.exactly_once.supervised import Supervised

pytestmark = pytest.mark.jvm


@pytest.fixture
def query(kafka, fault, tmp_path):
    topic = f"query-{time.monotonic_ns()}"
    kafka.create_topic(topic, TASKS)
    query = Supervised(kafka.bootstrap_servers, topic, tmp_path, fault)
    yield query
    fault.disarm()
    query.end()


def read_committed(query):
    """The numbers of each partition in their order, up to its very end: an open transaction would hide it."""
    settings = {"bootstrap.servers": query.servers, "group.id": "reader", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
    rows = {partition: [] for partition in range(TASKS)}
    try:
        places = [TopicPartition(query.topic, partition, 0) for partition in rows]
        ends = {each.partition: consumer.get_watermark_offsets(each, timeout=30)[1] for each in places}
        consumer.assign(places)
        left = set(rows)
        deadline = time.monotonic() + 60
        while left:
            assert time.monotonic() < deadline, f"partitions {left} do not come to their end: a transaction is open"
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is None:
                rows[message.partition()].append(int(message.value()))
            elif message.offset() >= ends[message.partition()]:
                left.discard(message.partition())
    finally:
        consumer.close()
    return rows


def check(query):
    rows = read_committed(query)
    numbers = sorted(number for partition in rows.values() for number in partition)
    assert len(numbers) >= ROWS
    assert numbers == list(range(len(numbers))), "rows are missing or doubled"
    assert all(partition == sorted(partition) for partition in rows.values()), "rows are out of order"


@pytest.mark.timeout(900)
def test_a_query_survives_being_killed_wherever_it_hurts(query):
    for point in ("task in mid-write", "before the intent", "intent committed", "between EndTxns", "committed"):
        query.fault.arm(point)
        query.run_until(lambda: query.fault.happened, timeout_s=240)
    query.fault.arm("intent committed", "stop")
    query.run_until(lambda: query.fault.happened, timeout_s=240)
    query.kill_driver()
    query.finish(timeout_s=240)
    check(query)


def soak(query, kills, driver_share, random):
    """``kills`` processes of the query, ``driver_share`` of them the driver: each a few seconds after the query has
    committed again, since a query that is still starting has nothing to lose.
    """
    drivers = round(kills * driver_share)
    plan = [True] * drivers + [False] * (kills - drivers)
    random.shuffle(plan)
    for driver in plan:
        before = query.commits
        query.run_until(lambda before=before: query.commits > before, timeout_s=300)
        pause = time.monotonic() + random.uniform(0, 3)
        query.run_until(lambda until=pause: time.monotonic() > until, timeout_s=60)
        if driver:
            query.kill_driver()
        else:
            query.run_until(lambda: query.kill_worker(random), timeout_s=240)
    query.finish(timeout_s=300)
    check(query)


@pytest.mark.timeout(900)
def test_a_short_soak(query):
    soak(query, kills=5, driver_share=0.2, random=Random(1))


@pytest.mark.slow
@pytest.mark.timeout(2700)
def test_a_hundred_processes_are_killed(query):
    soak(query, kills=100, driver_share=0.2, random=Random(2))
