"""Rows of several topics in one append: each goes where it would go if its topic were appended alone."""

from random import Random

import numpy as np
import pytest

from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.errors import BrokerError, InvalidRecordError, RecordTooLargeError
from spark_kafka_sink.producer.kafka_partitioners import murmur2
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.records.arrays import bytes_column
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn

NAMES = ("a", "b", "c")
PARTITIONS = (3, 1, 8)


@pytest.fixture
def broker(kafka_test_broker):
    for name, partitions in zip(NAMES, PARTITIONS, strict=True):
        kafka_test_broker.create_topic(name, partitions=partitions)
    return kafka_test_broker


def codes_of(rows):
    return np.array(Random(1).choices(range(len(NAMES)), k=rows), np.int32)


def append(broker, codes, values, *, keys=None, partitions=None, **options):
    receipt = SendReceipt()
    columns = RecordColumns(None if keys is None else bytes_column(keys), bytes_column(values))
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers} | options) as producer:
        producer._core.append_columns(TopicColumn(NAMES, np.asarray(codes, np.int32)), columns, partitions, receipt)
        producer.flush()
    receipt.wait(0)
    return receipt


def expected(codes, values, partitions):
    """The values of each topic's partitions, in order."""
    logs = {(name, partition): [] for name, count in zip(NAMES, PARTITIONS, strict=True) for partition in range(count)}
    for code, value, partition in zip(codes, values, partitions, strict=True):
        logs[NAMES[code], int(partition)].append(value)
    return logs


def written(broker):
    return {
        (name, partition): broker.topic(name).values(partition)
        for name, count in zip(NAMES, PARTITIONS, strict=True)
        for partition in range(count)
    }


each_slicing = pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch.size": 300, "compression.type": "gzip"},
        {"batch.size": 4096, "buffer.memory": 40_000},  # several slices, cut by topic and partition
        {"batch.size": 500, "buffer.memory": 40_000},  # several slices in the caller's order
    ],
)


@each_slicing
def test_keyed_rows_go_to_their_topics_partitions_in_order(broker, options):
    codes = codes_of(3000)
    keys = [b"key-%d" % (row % 700) for row in range(3000)]
    values = [b"%d" % row for row in range(3000)]
    receipt = append(broker, codes, values, keys=keys, **options)
    hashes = murmur2(bytes_column(keys)) & np.uint32(0x7FFFFFFF)
    logs = expected(codes, values, hashes % np.array(PARTITIONS, np.uint32)[codes])
    assert written(broker) == logs
    delivered = {tuple(partition): delivery.count for partition, delivery in receipt.deliveries.items()}
    assert delivered == {partition: len(log) for partition, log in logs.items() if log}


@each_slicing
def test_rows_keep_the_partitions_they_name(broker, options):
    codes = codes_of(3000)
    partitions = np.array([row % PARTITIONS[code] for row, code in enumerate(codes.tolist())], np.int32)
    values = [b"%d" % row for row in range(3000)]
    append(broker, codes, values, partitions=partitions, **options)
    assert written(broker) == expected(codes, values, partitions)


@pytest.mark.parametrize("options", [{}, {"linger.ms": 60_000}, {"batch.size": 300, "compression.type": "gzip"}])
def test_incident_the_largest_record_of_an_append_counted_for_every_topic_in_it(broker, options):
    codes = codes_of(600)
    sizes = [50, 100, 4_000]
    values = [b"x" * (sizes[code] - row % 40) for row, code in enumerate(codes.tolist())]
    columns = RecordColumns(None, bytes_column(values))
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers, **options}) as producer:
        producer._core.append_columns(TopicColumn(NAMES, codes), columns, None, SendReceipt())
        producer.flush()
        metrics = producer.metrics()
    for code, name in enumerate(NAMES):
        largest = max(len(value) for value, each in zip(values, codes.tolist(), strict=True) if each == code)
        assert largest < metrics[f"producer-topic-metrics.{name}"]["record-size-max"] < largest + 30
    assert metrics["producer-metrics"]["record-size-max"] > 3_960


@pytest.mark.parametrize("name", ["round_robin", "uniform_sticky", f"{__name__}:ByLength"])
def test_other_partitioners_choose_for_each_topic_by_itself(broker, name):
    codes, values = codes_of(600), [b"x" * (row % 50) for row in range(600)]
    append(broker, codes, values, **{"partitioner.class": name})
    logs = written(broker)
    for code, topic in enumerate(NAMES):
        of_topic = [value for value, each in zip(values, codes.tolist(), strict=True) if each == code]
        counts = [len(logs[topic, partition]) for partition in range(PARTITIONS[code])]
        assert sum(counts) == len(of_topic)
        if name == "round_robin":
            assert max(counts) - min(counts) <= 1
        elif name != "uniform_sticky":
            lengths = [len(value) % PARTITIONS[code] for value in of_topic]
            assert counts == np.bincount(lengths, minlength=PARTITIONS[code]).tolist()


class ByLength:
    """Over columns: bytes of the value."""

    def partition(self, topic, columns, named, sizes, count, load):
        return np.array([len(value.as_py()) % count for value in columns.value])


class RefusesB(ByLength):
    """The same, but it misplaces topic b's third row."""

    def partition(self, topic, columns, named, sizes, count, load):
        chosen = super().partition(topic, columns, named, sizes, count, load)
        if topic == "b":
            chosen[2] = 7
        return chosen


def test_a_row_that_a_partitioner_misplaces_is_named_as_the_caller_counts(broker):
    codes = [0, 1, 2, 1, 0, 1, 1]
    with pytest.raises(InvalidRecordError, match=r"chose partition 7 for row 2 of topic b, .* partitions 0 to 0") as it:
        append(broker, codes, [b"x"] * 7, **{"partitioner.class": f"{__name__}:RefusesB"})
    assert it.value.row == 5
    assert not any(written(broker).values())


def test_the_first_oversized_row_is_named_whatever_its_topic(broker):
    values = [b"x", b"y", b"z" * 2000, b"z" * 3000]
    text = (
        r"^The message is \d{4} bytes when serialized which is larger than 1000, which is the value of the "
        r"max\.request\.size configuration\.$"
    )
    with pytest.raises(RecordTooLargeError, match=text) as it:
        append(broker, [0, 1, 2, 0], values, **{"max.request.size": 1000})
    assert it.value.row == 2
    assert not any(written(broker).values())


def test_a_topic_that_brokers_refuse_is_told_and_no_row_is_appended(broker):
    receipt, topics = SendReceipt(), TopicColumn(("a", "b?"), np.array([0, 1], np.int32))
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        with pytest.raises(BrokerError, match=r"b\?"):
            producer._core.append_columns(topics, RecordColumns(value=bytes_column([b"x", b"y"])), None, receipt)
        producer.flush()
    assert broker.topic("a").values() == []
