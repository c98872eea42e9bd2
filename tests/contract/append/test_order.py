"""Calls of one thread keep their order: what ``send`` has buffered goes before columns that are sent after it."""

import threading

import numpy as np
import pytest

from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.producer import KafkaProducer
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.producer.record import ProducerRecord
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn, bytes_column
from tests.contract.brokers import broker_with
from tests.unit.scripted_engine import TOPIC, Engine

broker = broker_with("t", "u", "v", partitions=2)


@pytest.fixture
def producer(broker):
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 60_000}) as producer:
        yield producer


def logged(broker, topic="t"):
    return [value for partition in (0, 1) for value in broker.topic(topic).values(partition)]


@pytest.mark.parametrize(("key", "partition"), [(b"key", None), (b"key", 1), (None, 0)])
def test_incident_columns_overtook_the_record_of_the_same_key_that_was_sent_before_them(
    broker, producer, key, partition
):
    for number in range(0, 6, 2):
        producer.send(ProducerRecord("t", b"%d" % number, key, partition))
        given = None if partition is None else [partition]
        producer.send_columns("t", key=key and [key], value=[b"%d" % (number + 1)], partition=given)
    producer.send(ProducerRecord("t", b"6", key, partition))
    producer.flush()
    assert logged(broker) == [b"%d" % number for number in range(7)]


def test_columns_of_many_topics_come_behind_the_records_of_each(broker, producer):
    for topic in ("t", "u", "v"):
        producer.send(ProducerRecord(topic, b"first", b"key"))
    columns = RecordColumns(bytes_column([b"key"] * 4), bytes_column([b"second", b"second", b"third", b"third"]))
    topics = TopicColumn(("t", "u"), np.array([0, 1, 0, 1], np.int32))
    producer._core.append_columns(topics, columns, None, SendReceipt())
    producer.flush()
    assert [logged(broker, topic) for topic in ("t", "u", "v")] == [[b"first", b"second", b"third"]] * 2 + [[b"first"]]


def test_records_that_other_threads_made_a_thread_share_go_before_its_columns(broker, producer):
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

    def fail(_pending):
        raise MemoryError

    with monkeypatch.context() as failing:
        failing.setattr(producer._core.appender, "append_pending", fail)
        producer.send_columns("t", value=["kept"])
    producer.flush()
    assert isinstance(lost.exception(60), MemoryError)
    assert logged(broker) == [b"kept"]


@pytest.mark.parametrize("max_block_ms", [0, 60_000])
def test_columns_wait_until_another_thread_has_appended_the_records_before_them(monkeypatch, max_block_ms):
    engine = Engine(linger_ms=1000, max_block_ms=max_block_ms)
    engine.connect()
    pending = engine.parts.pending
    pending.append(ProducerRecord(TOPIC, b"before"), None, b"before")
    append_pending = engine.parts.appender.append_pending
    appending, go_on = threading.Event(), threading.Event()

    def append_slowly(records):
        appending.set()
        assert go_on.wait(60)
        append_pending(records)

    monkeypatch.setattr(engine.parts.appender, "append_pending", append_slowly)
    other = threading.Thread(target=pending.flush)
    other.start()
    assert appending.wait(60)
    if max_block_ms:
        threading.Timer(0.05, go_on.set).start()
        pending.go_before([TOPIC])
        engine.append([b"after"])
    else:
        with pytest.raises(KafkaTimeoutError, match="Earlier records of topic t were not appended in 0 ms"):
            pending.go_before([TOPIC])
        go_on.set()
    other.join(60)
    engine.settle()
    assert engine.values() == ([b"before", b"after"] if max_block_ms else [b"before"])
