"""kafka-python, a client in pure Python that shares nothing with this package, works against TestBroker."""

from __future__ import annotations

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from spark_kafka_sink.testing import StoredRecord, TestBroker
from tests.support.waiting import DEADLINE_S, eventually

RECORDS = 100


def write(broker: TestBroker, topic: str, count: int = RECORDS, **config: object) -> list[int]:
    """The offsets that the producer was told."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=5, **config)
    futures = [
        producer.send(topic, b"value %d" % number, b"key", headers=[("h", b"%d" % number)]) for number in range(count)
    ]
    offsets = [future.get(DEADLINE_S).offset for future in futures]
    producer.close()
    return offsets


def consume(broker: TestBroker, topic: str, **config: object) -> list[StoredRecord]:
    """Everything from the beginning to the end at the time of the call."""
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, **config)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning()
    end = consumer.end_offsets([partition])[partition]
    polled = []
    eventually(lambda: consumer.position(partition) >= end or polled.extend(consumer.poll(100).get(partition, ())))
    consumer.close()
    return [
        StoredRecord(
            each.partition,
            each.offset,
            each.timestamp,
            each.key,
            each.value,
            tuple((name.encode(), value) for name, value in each.headers),
        )
        for each in polled
    ]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_what_it_produces_is_what_it_consumes_and_what_the_topic_holds(
    kafka_test_broker: TestBroker, codec: str | None
) -> None:
    topic = kafka_test_broker.create_topic("t")

    offsets = write(kafka_test_broker, "t", compression_type=codec)

    assert offsets == list(range(RECORDS))
    assert topic.values() == [b"value %d" % number for number in range(RECORDS)]
    assert consume(kafka_test_broker, "t") == topic.records()


def test_it_reads_what_is_committed(kafka_test_broker: TestBroker) -> None:
    topic = kafka_test_broker.create_topic("t")
    producer = KafkaProducer(bootstrap_servers=kafka_test_broker.bootstrap_servers, transactional_id="tx")
    producer.init_transactions()
    for value, end in ((b"0", producer.commit_transaction), (b"1", producer.abort_transaction)):
        producer.begin_transaction()
        producer.send("t", value).get(DEADLINE_S)
        end()
    producer.close()

    committed = consume(kafka_test_broker, "t", isolation_level="read_committed")

    assert [record.value for record in committed] == topic.values() == [b"0"]
    assert consume(kafka_test_broker, "t") == topic.records(read_committed=False)
