"""What a task asks the core for besides rows: requests of its own, on the producer's connections; and the figures of
this task alone."""

import pickle
import threading
from contextlib import closing

import pyarrow as pa
import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.task_figures import TaskFigures
from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError, ProducerClosedError
from spark_kafka_sink.network.api_versions import METADATA
from spark_kafka_sink.network.calls import Call
from spark_kafka_sink.network.metadata_api import MetadataEntity
from spark_kafka_sink.network.topics import NewTopic, create_topic, topic_metadata
from spark_kafka_sink.producer import core
from spark_kafka_sink.producer.core import ProducerCore
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.producer.task_output import TaskMeter
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.faults import KEPT
from tests.contract.brokers import broker_with
from tests.support.manual_clock import ManualClock
from tests.support.waiting import DEADLINE_S, eventually

PATIENT = {"request.timeout.ms": 3_600_000, "delivery.timeout.ms": 7_200_000}
"""Longer than a test may take."""

broker = broker_with("small", config={"auto.create.topics.enable": False})


def opened(broker, **options):
    return closing(ProducerCore.open(ProducerConfig.parse({"bootstrap.servers": broker.bootstrap_servers, **options})))


def asked(broker, api):
    return sum(seen.api == api for seen in broker.requests)


def soon(made, ms=60_000):
    return made.calls.now() + ms


def test_a_caller_that_waits_learns_of_the_close(broker):
    broker.faults.lose_answer("Metadata", times=KEPT)
    outcomes = []

    def wait(made):
        try:
            topic_metadata(made.calls, ["small"], soon(made, 3_600_000))
        except KafkaError as error:
            outcomes.append(error)

    with opened(broker, **PATIENT) as made:
        waiting = threading.Thread(target=wait, args=(made,))
        waiting.start()
        eventually(lambda: asked(broker, "Metadata"))
    waiting.join(DEADLINE_S)
    assert [type(each) for each in outcomes] == [ProducerClosedError]


def test_a_call_that_its_caller_gave_up_is_not_sent_again(broker):
    with opened(broker, **{"retry.backoff.ms": 1, "retry.backoff.max.ms": 1}) as made:
        broker.kill(broker.node_ids[0])
        # Whether the call still had a broker when its time was up depends on when the refused connections were noticed.
        with pytest.raises(
            KafkaTimeoutError, match="No broker of .* has responded: |CreateTopics has no response after"
        ):
            create_topic(made.calls, NewTopic("late"), soon(made, 300))
        eventually(lambda: not made.sender.calls.busy)
        broker.start(broker.node_ids[0])
        assert made.partition_count("small") == 1
        assert "late" not in broker.topics


def test_a_call_that_is_given_up_before_the_sender_has_seen_it_is_never_sent(broker):
    with opened(broker) as made:
        calls = made.calls
        call = Call("metadata", METADATA, None, MetadataEntity(["small"], False), lambda _: ())
        call.stopped = True
        calls.start(call, None)
        made.sender_thread.wakeup()
        eventually(lambda: not calls.busy)
        assert asked(broker, "Metadata") == 0 or not call.in_flight
        assert call.began == float("inf")


class Counting:
    """A producer's counters, as a test sets them."""

    longest_latency_ms = 0.0

    def __init__(self, begun):
        self.current = begun

    def totals(self, without=()):
        return self.current


def test_figures_are_the_growth_of_the_counters_during_the_task():
    names = ("bytes", "batches", "retries", "responses", "latency_ms", "throttle_ms", "memory_waited_ns", "waited_ms")
    producer = Counting(dict(zip(names, (1000, 10, 7, 4, 400.0, 90.0, 50e6, 30.0), strict=True)))
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
    producer.current = dict(zip(names, (1500, 12, 9, 8, 420.0, 95.0, 65e6, 35.0), strict=True))
    producer.longest_latency_ms = 9.0
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


def test_incident_at_the_end_of_a_program_the_dead_broker_of_one_producer_took_the_time_of_all(broker, monkeypatch):
    broker.create_topic("lingers")
    with opened(broker) as dead, opened(broker, **{"linger.ms": 3_600_000}) as alive:
        receipt, waited = SendReceipt(), []
        alive.append_columns("lingers", RecordColumns(value=pa.array([b"v"], pa.binary())), None, receipt)
        monkeypatch.setattr(core, "_running", [dead, alive])
        # While the first one waits for its broker, the other one's rows arrive.
        monkeypatch.setattr(dead, "_flush", lambda *_: waited.append(receipt.wait(20_000)))
        core._flush_at_exit()
        assert waited == [None]
