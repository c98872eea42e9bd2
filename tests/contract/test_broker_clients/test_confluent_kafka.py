"""librdkafka, a client that shares nothing with this package, works against TestBroker."""

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from spark_kafka_sink.testing import StoredRecord, TestBroker
from tests.support.waiting import DEADLINE_S, eventually

RECORDS = 200


def producer(broker, **config):
    dotted = {name.replace("_", "."): value for name, value in config.items()}
    return Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5, **dotted})


def write(to, topic, values, *, partition=0):
    """Every delivery report, in order; fails the test when one is an error."""
    reports: list[Message] = []
    for value in values:
        to.produce(
            topic, value, key=b"key of " + value, partition=partition, on_delivery=lambda _, m: reports.append(m)
        )
    assert to.flush(DEADLINE_S) == 0
    assert [report.error() for report in reports if report.error()] == []
    return reports


def consume(broker, topic, count, partitions=1, **config):
    """``count`` messages of an assigned (not subscribed) consumer, by partition and offset."""
    dotted = {name.replace("_", "."): value for name, value in config.items()}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", **dotted})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    messages: list[Message] = []
    eventually(lambda: len(messages) >= count or messages.extend(consumer.consume(count - len(messages), 0.2)))
    consumer.close()
    assert [message.error() for message in messages if message.error()] == []
    return sorted(messages, key=lambda message: (message.partition(), message.offset()))


def as_stored(message):
    headers = tuple((name.encode(), value) for name, value in message.headers() or ())
    return StoredRecord(
        message.partition(), message.offset(), message.timestamp()[1], message.key(), message.value(), headers
    )


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_it_produces_is_what_it_consumes_and_what_the_topic_holds(kafka_test_broker, codec):
    topic = kafka_test_broker.create_topic("t", partitions=2)
    values = [b"value %d" % number for number in range(RECORDS)]
    writer = producer(kafka_test_broker, enable_idempotence=True, compression_type=codec)

    reports = write(writer, "t", values) + write(writer, "t", values, partition=1)

    assert [report.offset() for report in reports] == [*range(RECORDS), *range(RECORDS)]
    assert topic.values(0) == topic.values(1) == values
    consumed = consume(kafka_test_broker, "t", 2 * RECORDS, partitions=2)
    assert [as_stored(message) for message in consumed] == topic.records()


@pytest.mark.parametrize("like", ["2.8", "3.5", "3.9", "4.1"])
def test_read_committed_sees_committed_transactions_only(like):
    with TestBroker(nodes=3, like=like) as broker:
        topic = broker.create_topic("t")
        writer = producer(broker, transactional_id="tx")
        writer.init_transactions(DEADLINE_S)
        for number, end in enumerate((writer.commit_transaction, writer.abort_transaction, writer.commit_transaction)):
            writer.begin_transaction()
            write(writer, "t", [b"%d" % number] * 3)
            end(DEADLINE_S)

        committed = [b"0"] * 3 + [b"2"] * 3
        assert topic.values() == committed
        messages = consume(broker, "t", 6, isolation_level="read_committed")
        assert [message.value() for message in messages] == committed
        everything = consume(broker, "t", 9, isolation_level="read_uncommitted")
        assert [as_stored(message) for message in everything] == topic.records(read_committed=False)


def test_admin_requests_it_knows(kafka_test_broker):
    from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

    admin = AdminClient({"bootstrap.servers": kafka_test_broker.bootstrap_servers})
    done(admin.create_topics([NewTopic("t", 2, 1, config={"cleanup.policy": "compact"})]))
    done(admin.create_partitions([NewPartitions("t", 3)]))
    described = done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, "t")]))

    assert len(admin.list_topics(timeout=DEADLINE_S).topics["t"].partitions) == 3
    assert described["cleanup.policy"].value == "compact"
    done(admin.delete_topics(["t"]))
    assert "t" not in admin.list_topics(timeout=DEADLINE_S).topics


def done(futures):
    (future,) = futures.values()
    return future.result(DEADLINE_S)
