"""What a start costs after a day at 200 tasks a second, on the log that the topic's settings leave then."""

import sys

import pytest

from benchmarks.guard import objects_kernel
from spark_kafka_sink.exactly_once.decode import batch_headers
from spark_kafka_sink.exactly_once.ledger_format import encode_batch, entry_write
from spark_kafka_sink.exactly_once.ledger_topic import SETTINGS, ledger_partitions
from spark_kafka_sink.exactly_once.plan import plan_write
from spark_kafka_sink.exactly_once.values import Entry, EntryState, RowChecksum, TaskOutcome
from spark_kafka_sink.producer.transaction_requests import PreparedTransaction
from spark_kafka_sink.records.batch import TRANSACTIONAL, BatchHeader
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.state.log import EndTransactionMarker as ControlRecord
from tests.contract.exactly_once.runs import LEDGER, Query
from tests.support.waiting import cpu_ratio

pytestmark = pytest.mark.slow

MOST_TIMES = 8
"""Of ``about_half_a_second``: a start takes 0.8 to 3.4 times as long."""
DRIVER = 7_000_000, 2
PARTITIONS = 10
"""Queries share them evenly: this is the log of the one that ours is in."""


@pytest.mark.parametrize(
    ("tasks", "batches_per_s"),
    [(200, 1), (20, 10), (1, 200 / PARTITIONS)],
    ids=["one query", "one query of ten batches a second", "two hundred queries of one task"],
)
def test_a_start_after_a_day_takes_about_two_seconds_of_cpu_at_most(tasks, batches_per_s, capsys):
    """The segment that is written to and one that waits for the cleaner have everything; behind them are the control
    records of delete.retention.ms, and of the time that the cleaner takes to come by twice."""
    segment_s, retention_s = int(SETTINGS["segment.ms"]) / 1000, int(SETTINGS["delete.retention.ms"]) / 1000
    with TestBroker() as broker:
        broker.create_topic(LEDGER, 20, {**SETTINGS, "min.insync.replicas": 1})
        intent, finished = map(bytes, records(tasks))

        def a_day_later(server):
            partition = server.state.cluster.partition(LEDGER, ledger_partitions("app", LEDGER).partition)
            for _ in range(int(2 * batches_per_s * (retention_s + 2 * segment_s))):
                partition.append_marker(ControlRecord(*DRIVER, True), 0)
            for _ in range(int(batches_per_s * 2 * segment_s)):
                for data in (intent, finished):
                    partition.log.append(data, batch_headers(data)[0], 0)
                    partition.append_marker(ControlRecord(*DRIVER, True), 0)
            return partition.log.end_offset

        count = broker._call(a_day_later)
        plans = []
        times = cpu_ratio(
            lambda: plans.append(plan_write(Query(broker.bootstrap_servers).settings)), about_half_a_second, 1
        )
    with capsys.disabled():
        line = f"{count:,} record batches, {times:.2f} times the guard's objects"
        sys.stdout.write(f"\n{tasks} tasks, {batches_per_s:g} batches a second: {line}\n")
    assert len(plans[0].entries["q1"].tasks) == tasks
    assert times < MOST_TIMES


def about_half_a_second():
    """What a start is compared with: small objects, dicts and checksums."""
    kernel = objects_kernel()
    for _ in range(1_000):
        kernel()


def records(tasks):
    """The intent and the done record of a batch, as they lie in the log."""
    shares = [
        TaskOutcome(
            RowChecksum(5_000, task * 0x9E3779B97F4A7C15 % 2**64),
            PreparedTransaction(f"app-{task}", 10**6 + task, 3, 5),
            task,
        )
        for task in range(tasks)
    ]
    entry = Entry(
        "q1", 5, EntryState.INTENT, tuple(shares), 1_700_000_000_000, marker_partition=13, old_marker_count=tasks
    )
    header = BatchHeader(TRANSACTIONAL, 1, 0, 0, *DRIVER, 0)
    return [encode_batch(header, entry_write("app", each).entries) for each in (entry, entry.done())]
