"""Calls of one thread keep their order: what ``send`` has buffered goes before columns that are sent after it. And code
that runs in the middle of a call on its thread (signal handlers, partitioners) calls the producer again."""

import signal
import threading
from typing import Any, ClassVar

import numpy as np
import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import IllegalStateError
from spark_kafka_sink.producer import intake
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.records.arrays import bytes_column
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from tests.contract.brokers import broker_with
from tests.support.waiting import DEADLINE_S

broker = broker_with("t", "u", "v", partitions=2)


@pytest.fixture
def producer(broker):
    options = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 60_000, "batch.size": 16_384}
    with KafkaProducer(options) as producer:
        yield producer


def logged(broker, topic="t"):
    return [value for partition in (0, 1) for value in broker.topic(topic).values(partition)]


@pytest.mark.parametrize(("key", "partition"), [(b"key", None), (b"key", 1), (None, 0)])
@pytest.mark.parametrize("size", [1, 10_000], ids=["small call", "batches of its own"])
def test_incident_columns_overtook_the_record_of_the_same_key_that_was_sent_before_them(
    broker, producer, key, partition, size
):
    values = [b"%d" % number * size for number in range(7)]
    for number in range(0, 6, 2):
        producer.send(ProducerRecord("t", values[number], key, partition))
        given = None if partition is None else [partition]
        producer.send_columns("t", key=key and [key], value=[values[number + 1]], partition=given)
    producer.send(ProducerRecord("t", values[6], key, partition))
    producer.flush()
    assert logged(broker) == values


def test_columns_of_many_topics_come_behind_the_records_of_each(broker, producer):
    for topic in ("t", "u", "v"):
        producer.send(ProducerRecord(topic, b"first", b"key"))
    columns = RecordColumns(bytes_column([b"key"] * 4), bytes_column([b"second", b"second", b"third", b"third"]))
    topics = TopicColumn(("t", "u"), np.array([0, 1, 0, 1], np.int32))
    producer._core.append_columns(topics, columns, None, SendReceipt())
    producer.flush()
    assert [logged(broker, topic) for topic in ("t", "u", "v")] == [[b"first", b"second", b"third"]] * 2 + [[b"first"]]


def test_records_of_other_threads_that_came_before_go_before_a_threads_columns(broker, producer):
    def in_a_thread(number):
        thread = threading.Thread(target=producer.send, args=(ProducerRecord("t", b"%d" % number, b"key"),))
        thread.start()
        thread.join(60)

    producer.send(ProducerRecord("t", b"0", b"key"))
    in_a_thread(1)
    producer.send(ProducerRecord("t", b"2", b"key"))
    in_a_thread(3)
    producer.send_columns("t", key=["key"], value=["4"])
    producer.flush()
    assert logged(broker) == [b"%d" % number for number in range(5)]


def test_a_record_that_cannot_be_appended_does_not_fail_the_columns_behind_it(producer, broker, monkeypatch):
    lost = producer.send(ProducerRecord("t", b"lost"))
    failing = monkeypatch.context()

    def fail(*_):
        failing.__exit__(None, None, None)
        raise MemoryError

    failing.__enter__().setattr(intake, "append", fail)
    producer.send_columns("t", value=["kept"])
    producer.flush()
    assert isinstance(lost.exception(60), MemoryError)
    assert logged(broker) == [b"kept"]


CALLS = 100


@pytest.mark.parametrize("fields", [{}, {"key": b"k"}, {"headers": [("h", b"x")]}], ids=["value", "key", "headers"])
def test_incident_a_signal_handler_that_sends_while_send_runs_mixed_up_futures_or_waited_for_its_own_lock(
    broker, fields
):
    sent: list[tuple[bytes, Any]] = []
    handled: list[bool] = []

    def send():
        value = b"%d" % len(sent)
        sent.append((value, producer.send(ProducerRecord("t", value, **fields))))

    def handle(*_):
        try:
            send()
            if len(handled) % 4 == 0:
                producer.flush()
            handled.append(True)
        except IllegalStateError:
            handled.append(False)
        signal.setitimer(signal.ITIMER_REAL, 0.001)

    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 1}) as producer:
        before = signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        try:
            while len(handled) < CALLS:
                send()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        producer.flush()
    logs = [broker.topic("t").values(partition) for partition in (0, 1)]
    results = [(value, future.result(0)) for value, future in sent]
    assert [logs[each.partition][each.offset] for _, each in results] == [value for value, _ in results]
    assert sum(map(len, logs)) == len(sent)
    assert any(handled)


class FlushingPartitioner:
    producers: ClassVar[list[KafkaProducer]] = []

    def partition(self, topic, columns, *_):
        for producer in self.producers:
            producer.flush()
        return np.zeros(len(columns), np.int32)


def test_a_partitioner_that_flushes_its_own_producer_is_told_instead_of_waiting_for_itself(broker, monkeypatch):
    options = {"partitioner.class": f"{__name__}:FlushingPartitioner", "linger.ms": 3_600_000}
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers, **options}) as producer:
        monkeypatch.setattr(FlushingPartitioner, "producers", [producer])
        failed = producer.send(ProducerRecord("t", b"v"))
        producer.flush()
        with pytest.raises(IllegalStateError, match="would wait for itself"):
            failed.result(DEADLINE_S)
        FlushingPartitioner.producers.clear()
        assert producer.send(ProducerRecord("t", b"w")) is not failed
