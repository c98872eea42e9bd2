"""A whole Spark query under faults: every row once, in order, and no transaction left open."""

import logging
import time
from random import Random

import pytest

from tests.faults.exactly_once.query_job import LEDGER, ROWS, TASKS
from tests.faults.exactly_once.reader import read_committed
from tests.faults.exactly_once.supervised import Supervised

pytestmark = pytest.mark.jvm

_log = logging.getLogger(__name__)


@pytest.fixture
def query(kafka, fault, tmp_path):
    topic = f"query-{time.monotonic_ns()}"
    kafka.create_topic(topic, TASKS)
    query = Supervised(kafka.bootstrap_servers, topic, tmp_path, fault)
    yield query
    fault.disarm()
    query.end()


def check(query):
    """Every row of every micro-batch that Spark has committed is there once, and nothing else; nothing is open."""
    rows = {
        partition: [int(value) for value in values]
        for partition, values in read_committed(query.servers, query.topic).items()
    }
    numbers = sorted(number for values in rows.values() for number in values)
    assert numbers == list(range((query.commits + 1) * ROWS)), "rows are missing or doubled"
    assert all(values == sorted(values) for values in rows.values()), "rows are out of order"
    read_committed(query.servers, LEDGER)


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
    done = query.commits + 1
    _log.info("%d kills, %d of the driver; %d starts, %d micro-batches", kills, drivers, query.starts, done)


@pytest.mark.timeout(900)
def test_a_short_soak(query):
    soak(query, kills=5, driver_share=0.2, random=Random(1))


@pytest.mark.slow
@pytest.mark.timeout(2700)
def test_a_hundred_processes_are_killed(query):
    soak(query, kills=100, driver_share=0.2, random=Random(2))
