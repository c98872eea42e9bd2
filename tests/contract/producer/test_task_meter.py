"""A task's figures: what the producer counted between two readings, of this task alone."""

import pickle
from contextlib import closing

import pyarrow as pa
import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.task_figures import TaskFigures
from spark_kafka_sink.producer.core import ProducerCore
from spark_kafka_sink.producer.metrics import ProducerTotals
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.producer.task_output import TaskMeter
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.testing import TestBroker
from tests.support.manual_clock import ManualClock


class Counting:
    """A producer's counters, as a test sets them."""

    def __init__(self, begun):
        self.current = begun

    def begin_totals(self, without=()):
        return self.current

    def totals(self, without=()):
        return self.current


def test_figures_are_the_growth_of_the_counters_during_the_task():
    producer = Counting(ProducerTotals(1000, 10, 7, 4, 400.0, 90.0, 50.0, 30.0))
    clock = ManualClock()
    meter = TaskMeter(clock)
    meter.lease(producer)
    clock.advance(20)
    with meter.appending():
        clock.advance(70)
    with meter.awaiting():
        clock.advance(10)
    meter.add_dead_letters("encode", 2)
    meter.add_dead_letters("encode", 1)
    producer.current = ProducerTotals(1500, 12, 9, 8, 420.0, 95.0, 65.0, 35.0, 9.0)
    figures = meter.figures(SendReceipt())
    assert (figures.compressed_bytes, figures.batches, figures.retries, figures.requests) == (500, 2, 2, 4)
    assert (figures.latency_avg_ms, figures.latency_max_ms, figures.throttle_ms) == (5.0, 9.0, 5.0)
    assert (figures.duration_ms, figures.encode_ms, figures.memory_wait_ms) == (100.0, 50.0, 15.0)
    assert (figures.ack_wait_ms, figures.other_ms) == (10.0, 25.0)
    assert figures.dead_letters == (("encode", 3),)
    assert pickle.loads(pickle.dumps(figures)) == figures
    assert hash(figures) == hash(pickle.loads(pickle.dumps(figures)))


def test_a_task_that_leased_no_producer_has_its_time_and_dead_letters():
    meter = TaskMeter(clock := ManualClock(1_000))
    clock.advance(7)
    meter.add_dead_letters("encode", 2)
    assert meter.figures(SendReceipt()) == TaskFigures(began_at=1_000, duration_ms=7.0, dead_letters=(("encode", 2),))


def write(producer, meter, topic, rows):
    receipt = SendReceipt()
    meter.lease(producer.accumulator.metrics)
    with meter.appending():
        producer.append_columns(topic, RecordColumns(None, pa.array([b"x" * 100] * rows, pa.binary())), None, receipt)
    with meter.awaiting():
        producer.flush()
    return meter.figures(receipt)


@pytest.fixture
def producer():
    with TestBroker() as broker:
        broker.create_topic("t", partitions=1)
        broker.create_topic("own", partitions=1)
        config = ProducerConfig.parse({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "lz4"})
        with closing(ProducerCore.open(config)) as producer:
            yield producer


def test_two_tasks_in_turn_on_one_producer_each_have_their_own_figures(producer):
    clock = SystemClock()
    first, second = (write(producer, TaskMeter(clock), "t", rows) for rows in (5000, 300))
    assert (first.rows, second.rows) == (5000, 300)
    assert first.bytes > 500_000 > 35_000 > second.bytes > 30_000
    assert first.bytes > 5 * first.compressed_bytes > 0
    assert (second.batches, second.requests, second.retries) == (1, 1, 0)
    assert 0 < second.latency_avg_ms == second.latency_max_ms <= second.duration_ms
    spent = first.encode_ms + first.memory_wait_ms + first.ack_wait_ms
    assert 0 < spent <= first.duration_ms


def test_the_sinks_own_records_do_not_count(producer):
    meter = TaskMeter(SystemClock(), own_topics=("own",))
    write(producer, TaskMeter(SystemClock()), "own", 100)
    receipt = SendReceipt()
    figures = write(producer, meter, "t", 10)
    producer.append_columns("own", RecordColumns(None, pa.array([b"x" * 999], pa.binary())), None, receipt)
    producer.flush()
    again = meter.figures(receipt)
    assert (figures.batches, again.batches) == (1, 1)
    assert figures.compressed_bytes == again.compressed_bytes
