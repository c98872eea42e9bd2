"""A ``RecordPartitioner`` of the user behind ``send`` and ``send_columns``."""

from itertools import pairwise

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.producer.kafka_partitioners import murmur2
from spark_kafka_sink.records.arrays import bytes_column
from tests.contract.brokers import broker_with
from tests.unit.partitioning.own_partitioners import Noted

OWN = "tests.unit.partitioning.own_partitioners"
broker = broker_with("t", partitions=3)


@pytest.fixture
def options(broker):
    """Nothing is sent before ``flush``."""
    return {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 10_000, "request.timeout.ms": 5_000}


def opened(options, name, **more):
    given = {key.replace("_", "."): value for key, value in more.items()}
    return KafkaProducer({**options, "partitioner.class": f"{OWN}:{name}", **given})


def test_it_is_configured_gets_objects_bytes_and_the_cluster_and_is_closed(broker, options):
    Noted.calls.clear()
    string = "StringSerializer"
    with opened(options, "Noted", client_id="c", key_serializer=string, value_serializer=string) as producer:
        partition = producer.send(ProducerRecord("t", "2nd", "ü"))
        named = producer.send(ProducerRecord("t", "1st", partition=0))
        producer.flush()
    assert (partition.result(0).partition, named.result(0).partition) == (2, 0)
    assert Noted.calls == [("configure", "c"), ("t", "ü", "ü".encode(), "2nd", b"2nd", (0, 1, 2)), ("close",)]


def test_an_error_of_it_fails_its_own_record_in_send_and_no_other(broker, options):
    with opened(options, "RaisesForKeys") as producer:
        before = producer.send(ProducerRecord("t", b"before"))
        with pytest.raises(LookupError, match="no region for b'k'"):
            producer.send(ProducerRecord("t", b"failed", b"k"))
        after = producer.send(ProducerRecord("t", b"after"))
        producer.flush()
    assert (before.result(0).partition, after.result(0).partition) == (1, 1)
    assert broker.topic("t").values() == [b"before", b"after"]


def test_a_partition_that_does_not_exist_fails_in_send(options):
    Noted.calls.clear()
    with (
        opened(options, "Noted", value_serializer="StringSerializer") as producer,
        pytest.raises(
            InvalidRecordError, match="chose partition 7 for a record of topic t, which has partitions 0 to 2"
        ),
    ):
        producer.send(ProducerRecord("t", "7"))


def test_a_record_that_finds_no_room_in_its_batch_asks_again(broker, options):
    with opened(options, "Sticky", batch_size=1_000) as producer:
        futures = [producer.send(ProducerRecord("t", b"x" * 200)) for _ in range(20)]
        producer.flush()
        sticky = producer._core.appender.partitioner._partitioner
    partitions = [future.result(0).partition for future in futures]
    assert partitions == [1] * 4 + [2] * 4 + [0] * 4 + [1] * 4 + [2] * 4
    assert sticky.left == [0, 1, 2, 0, 1]


def test_columns_ask_again_where_a_row_needs_a_new_batch(broker, options):
    with opened(options, "Sticky", batch_size=1_000) as producer:
        producer.send_columns("t", value=[b"%d" % row + b"x" * 199 for row in range(10)])
        producer.flush()
    rows = {p: [int(value[:1]) for value in broker.topic("t").values(p)] for p in range(3)}
    assert rows == {1: [0, 1, 2, 3], 2: [4, 5, 6, 7], 0: [8, 9]}


def test_one_that_is_not_asked_again_fills_batches_of_its_partition(broker, options):
    with opened(options, "RaisesForKeys", batch_size=1_000) as producer:
        futures = [producer.send(ProducerRecord("t", b"x" * 200)) for _ in range(20)]
        producer.flush()
    assert {future.result(0).partition for future in futures} == {1}


def test_incident_kafkas_former_default_partitioner_stayed_on_a_partition_for_several_batches(broker, options):
    """Four records of 200 bytes fill a batch."""
    name = "org.apache.kafka.clients.producer.internals.DefaultPartitioner"
    with KafkaProducer({**options, "partitioner.class": name, "batch.size": 1_000}) as producer:
        futures = [producer.send(ProducerRecord("t", b"x" * 200)) for _ in range(120)]
        keyed = [producer.send(ProducerRecord("t", b"x" * 200, b"N14228")) for _ in range(8)]
        producer.flush()
    partitions = [future.result(0).partition for future in futures]
    batches = [set(partitions[start : start + 4]) for start in range(0, 120, 4)]
    assert all(len(batch) == 1 for batch in batches)
    assert all(one != other for one, other in pairwise(batches))
    assert {future.result(0).partition for future in keyed} == set(murmur2.partitions(bytes_column([b"N14228"]), 3))
