"""One bad row of many, and processes that are killed: how often confluent-kafka finds each row and dead letter."""

import time
from collections import Counter

import pytest

from tests.faults.exactly_once.reader import read_committed
from tests.faults.exactly_once.supervised import SupervisedBatch

pytestmark = pytest.mark.jvm

LIMIT = 100_000
"""max.message.bytes of the rows' topic; that of dead letters takes twice as much."""
PARTITIONS = 4
MANY = 100_000


@pytest.fixture
def topics(kafka):
    """Of rows and of dead letters."""
    rows, dead = (f"{kind}-{time.monotonic_ns()}" for kind in ("rows", "dead"))
    kafka.create_topic(rows, PARTITIONS, {"max.message.bytes": str(LIMIT)})
    kafka.create_topic(dead, 1)
    return rows, dead


def job(kafka, topics, fault, folder):
    """Writes ``MANY`` rows; the one in their middle is too large."""
    large = f"if(id = {MANY // 2}, repeat('x', {2 * LIMIT}), cast(id as string)) value"
    options = {
        "rows": MANY, "columns": ["cast(id % 100 as string) key", large], "deadLetterTopic": topics[1],
        "deliveryGuarantee": "exactly-once", "txnAppId": topics[0], "txnVersion": 1,
    }  # fmt: skip
    return SupervisedBatch(kafka.bootstrap_servers, topics[0], folder, fault, options)


def found(kafka, topics):
    """How often each value is in the topic of rows, and in that of dead letters."""
    return [
        Counter(value for values in read_committed(kafka.bootstrap_servers, topic).values() for value in values)
        for topic in topics
    ]


@pytest.mark.slow
def test_one_bad_row_of_many_while_a_task_and_the_commit_are_killed(kafka, topics, fault, tmp_path):
    written = job(kafka, topics, fault, tmp_path)
    try:
        for point in ("task in mid-write", "intent committed"):
            fault.arm(point)
            written.run_until(lambda: fault.happened, timeout_s=120)
        written.run_until(lambda: False, timeout_s=120)
    finally:
        fault.disarm()
        written.end()
    assert written.starts == 2, "Spark replaces the worker; a job that has lost its commit is started again"
    delivered, dead = found(kafka, topics)
    assert delivered == {str(number).encode(): 1 for number in range(MANY) if number != MANY // 2}
    assert dead == {b"x" * 2 * LIMIT: 1}
