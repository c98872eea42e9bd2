"""Receipts are read as a read_committed consumer would, once each, and followed."""

import dataclasses

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once.receipts import WriteReceipt, receipt_columns
from spark_kafka_sink.producer import SendReceipt
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.tools.exporter import TopicReceipts

RECEIPTS = [WriteReceipt(f"q{n}", n, 0, "t", 0, 5 * n, 5 * n + 4, 5, 50, 1000, 1010) for n in range(8)]


@pytest.fixture(scope="module")
def broker():
    with TestBroker() as broker:
        yield broker


@pytest.fixture
def topic(broker, request):
    name = f"receipts-{abs(hash(request.node.name))}"
    broker.create_topic(name, partitions=3)
    return name


@pytest.fixture
def opened(broker, topic):
    def config(**more):
        return {"bootstrap.servers": broker.bootstrap_servers, "compression.type": "zstd", **more}

    return config


@pytest.fixture
def reader(broker, topic):
    config = ProducerConfig.parse({"bootstrap.servers": broker.bootstrap_servers})
    reader = TopicReceipts(config, topic, SystemClock())
    yield reader
    reader.close()


def send(producer, topic, receipts):
    receipt = SendReceipt()
    producer._core.append_columns(topic, receipt_columns(receipts), None, receipt)
    producer.flush()
    receipt.wait(10_000)


def read(reader):
    return sorted(reader.read(), key=lambda each: each.query)


def test_all_partitions_are_read_once_and_then_what_is_new(opened, topic, reader):
    with KafkaProducer(opened()) as producer:
        send(producer, topic, RECEIPTS[:5])
        assert read(reader) == RECEIPTS[:5]
        assert read(reader) == []
        send(producer, topic, RECEIPTS[5:])
        assert read(reader) == RECEIPTS[5:]


def test_aborted_receipts_are_left_out_and_open_ones_are_hidden(opened, topic, reader):
    with KafkaProducer(opened(**{"transactional.id": topic})) as producer:
        producer.init_transactions()
        expected = []
        for number, end in enumerate((producer.abort_transaction, producer.commit_transaction) * 2):
            producer.begin_transaction()
            part = [dataclasses.replace(each, batch=number) for each in RECEIPTS[:4]]
            send(producer, topic, part)
            end()
            expected += part if number % 2 else []
        producer.begin_transaction()
        send(producer, topic, RECEIPTS[4:])
        assert sorted(reader.read(), key=lambda each: (each.batch, each.query)) == expected
        producer.commit_transaction()
        assert read(reader) == RECEIPTS[4:]


def test_foreign_records_are_counted_and_left_out(opened, topic, reader):
    with KafkaProducer(opened()) as producer:
        producer.send(ProducerRecord(topic, b"\xff{}", partition=1))
        producer.send(ProducerRecord(topic, None, partition=1))
        producer.send(ProducerRecord(topic, RECEIPTS[0].line().encode(), partition=1))
    assert read(reader) == RECEIPTS[:1]
    assert reader.foreign == 2


def test_a_topic_that_is_not_there_is_an_error(broker):
    reader = TopicReceipts(ProducerConfig.parse({"bootstrap.servers": broker.bootstrap_servers}), "none", SystemClock())
    with pytest.raises(KafkaError, match="receiptsTopic none: there is no such topic"):
        list(reader.read())
    reader.close()
