"""Receipts are read as a read_committed consumer would, from topics and folders, once each, and followed."""

import dataclasses

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once.receipts import WriteReceipt, receipt_columns, write_lines
from spark_kafka_sink.producer import SendReceipt
from spark_kafka_sink.spark.receipts.receipt_reader import FolderReceipts, TopicReceipts
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.manual_clock import ManualClock
from tests.waiting import DEADLINE_S

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
    producer._engine.append_columns(topic, receipt_columns(receipts), None, receipt)
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
        assert {partition.topic for partition in reader.hidden} == {topic}
        producer.commit_transaction()
        assert read(reader) == RECEIPTS[4:]
        assert reader.hidden == {}


def test_reading_may_begin_at_a_time(broker, opened, topic):
    config = ProducerConfig.parse({"bootstrap.servers": broker.bootstrap_servers})
    with KafkaProducer(opened()) as producer:
        for timestamp, receipt in ((1_000, RECEIPTS[0]), (2_000, RECEIPTS[1]), (3_000, RECEIPTS[2])):
            producer.send(ProducerRecord(topic, receipt.line().encode(), partition=0, timestamp=timestamp))
            producer.flush()
        for since, expected in ((2_000, RECEIPTS[1:3]), (9_000, [])):
            reader = TopicReceipts(config, topic, SystemClock(), since)
            assert read(reader) == expected
            producer.send(ProducerRecord(topic, RECEIPTS[7].line().encode(), partition=0, timestamp=500)).result(
                DEADLINE_S
            )
            assert read(reader)[-1:] == RECEIPTS[7:]
            reader.close()


def test_foreign_records_are_counted_and_the_first_is_named(opened, topic, reader):
    with KafkaProducer(opened()) as producer:
        producer.send(ProducerRecord(topic, b"\xff{}", partition=1))
        producer.send(ProducerRecord(topic, None, partition=1))
        producer.send(ProducerRecord(topic, RECEIPTS[0].line().encode(), partition=1))
    assert read(reader) == RECEIPTS[:1]
    assert reader.foreign.count == 2
    assert reader.foreign.first.startswith(f"{TopicPartition(topic, 1)} offset 0: ")


def test_a_topic_that_is_not_there_is_an_error(broker):
    reader = TopicReceipts(ProducerConfig.parse({"bootstrap.servers": broker.bootstrap_servers}), "none", SystemClock())
    with pytest.raises(KafkaError, match="receiptsTopic none: there is no such topic"):
        list(reader.read())
    reader.close()


def test_a_file_that_is_written_again_adds_only_what_it_did_not_have(tmp_path):
    reader = FolderReceipts(str(tmp_path), ManualClock())
    first = RECEIPTS[0]
    again = dataclasses.replace(first, task=1)
    write_lines(str(tmp_path), [first])
    assert list(reader.read()) == [first]
    write_lines(str(tmp_path), [first, again])
    assert list(reader.read()) == [again]
    assert list(reader.read()) == []


def test_a_line_that_is_being_written_is_read_when_it_is_whole(tmp_path):
    reader, file = FolderReceipts(str(tmp_path), ManualClock()), tmp_path / "q-0.jsonl"
    text = RECEIPTS[0].line() + "\n" + RECEIPTS[1].line() + "\n"
    file.write_text(text[: len(text) // 2 + 9])
    assert list(reader.read()) == RECEIPTS[:1]
    file.write_text(text)
    assert list(reader.read()) == RECEIPTS[1:2]
    assert reader.foreign.count == 0


def test_incident_a_large_folder_was_listed_whole_at_each_read(tmp_path):
    clock = ManualClock()
    reader = FolderReceipts(str(tmp_path), clock)
    for number in range(2_000):
        (tmp_path / f"{number}.txt").touch()
    write_lines(str(tmp_path), RECEIPTS[:1])
    assert list(reader.read()) == RECEIPTS[:1]
    write_lines(str(tmp_path), RECEIPTS[1:2])
    clock.advance(1_000)
    assert list(reader.read()) == []
    clock.advance(60_000)
    assert list(reader.read()) == RECEIPTS[1:2]
