"""What a start costs after a day at 200 tasks a second, on the log that the topic's settings leave then."""

import sys
import time

import pytest

from spark_kafka_sink.exactly_once.decisions import done
from spark_kafka_sink.exactly_once.ledger_format import encode_batch, entry_write
from spark_kafka_sink.exactly_once.ledger_topic import SETTINGS, ledger_partitions
from spark_kafka_sink.exactly_once.plan import plan_write
from spark_kafka_sink.exactly_once.values import Entry, EntryState, RowSum, TaskShare
from spark_kafka_sink.records.batch import TRANSACTIONAL, BatchHeader
from spark_kafka_sink.records.decode import batch_headers
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.state.log import Marker as ControlRecord
from spark_kafka_sink.transactions.values import PreparedTransaction
from tests.unit.exactly_once.runs import LEDGER, Query, new_process

pytestmark = pytest.mark.slow

CPU_S = 2.0
DRIVER = 7_000_000, 2
PARTITIONS = 10
"""Queries share them evenly: this is the log of the one that ours is in."""


@pytest.mark.parametrize(
    ("tasks", "batches_per_s"),
    [(200, 1), (20, 10), (1, 200 / PARTITIONS)],
    ids=["one query", "one query of ten batches a second", "two hundred queries of one task"],
)
def test_a_start_after_a_day_takes_less_than_two_seconds_of_cpu(tasks, batches_per_s, capsys):
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
        began, cpu = time.perf_counter(), time.thread_time()
        plan = plan_write(Query(broker.bootstrap_servers).settings)
        cpu, took = time.thread_time() - cpu, time.perf_counter() - began
        new_process()
    with capsys.disabled():
        line = f"{count:,} record batches, {cpu:.2f} s of CPU ({took:.2f} s)"
        sys.stdout.write(f"\n{tasks} tasks, {batches_per_s:g} batches a second: {line}\n")
    assert len(plan.entries["q1"].tasks) == tasks
    assert cpu < CPU_S


def records(tasks):
    """The intent and the done record of a batch, as they lie in the log."""
    shares = [
        TaskShare(
            RowSum(5_000, task * 0x9E3779B97F4A7C15 % 2**64),
            PreparedTransaction(f"app-{task}", 10**6 + task, 3, 5),
            task,
        )
        for task in range(tasks)
    ]
    entry = Entry("q1", 5, EntryState.INTENT, tuple(shares), 1_700_000_000_000, None, 13, tasks)
    header = BatchHeader(TRANSACTIONAL, 1, 0, 0, *DRIVER, 0)
    return [encode_batch(header, entry_write("app", each).entries) for each in (entry, done(entry))]
