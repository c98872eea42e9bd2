"""librdkafka, a client that shares nothing with this package, works against TestBroker: its consumers share a
topic as one of a real Kafka."""

import threading
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_kafka_sink.testing import StoredRecord, TestBroker
from tests.contract.brokers import broker_with
from tests.contract.plain_client import PlainClient
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


PARTITIONS = 4


class Member:
    """A librdkafka consumer that is polled on a thread of its own, as an application does."""

    def __init__(self, broker, **config):
        dotted = {name.replace("_", "."): value for name, value in config.items()}
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 100,
            **dotted,
        }
        self.values: list[bytes | None] = []
        self.partitions: set[int] = set()
        self._ended = threading.Event()
        self._consumer = Consumer(settings)
        self._consumer.subscribe(["t"])
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def close(self):
        """Commit what was read and leave the group."""
        self._ended.set()
        self._thread.join(DEADLINE_S)
        self._consumer.close()

    def _poll(self):
        while not self._ended.is_set():
            for message in self._consumer.consume(100, 0.05):
                assert message.error() is None
                self.values.append(message.value())
            # On this thread: the call waits for a rebalance that only a poll completes.
            self.partitions = {each.partition for each in self._consumer.assignment()}


@contextmanager
def member(broker, **config):
    joined = Member(broker, **config)
    try:
        yield joined
    finally:
        joined.close()


def fill(broker, *, first=0):
    """Writes ``RECORDS`` values to each partition; all of them."""
    values = [b"%d" % number for number in range(first, first + PARTITIONS * RECORDS)]
    writer: Producer = producer(broker)
    for partition in range(PARTITIONS):
        write(writer, "t", values[partition::PARTITIONS], partition=partition)
    return values


broker = broker_with("t", partitions=PARTITIONS)


def test_a_group_reads_everything_once_and_goes_on_where_it_was(broker):
    first = fill(broker)
    with member(broker) as reader:
        eventually(lambda: len(reader.values) >= len(first))
    second = fill(broker, first=1_000_000)
    with member(broker) as successor:
        eventually(lambda: len(successor.values) >= len(second))

    assert sorted(reader.values) == sorted(first)
    assert sorted(successor.values) == sorted(second)
    assert broker.committed("g") == {("t", each): 2 * RECORDS for each in range(PARTITIONS)}


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_the_partitions_and_one_that_leaves_gives_its_own_back(broker, strategy):
    with member(broker, partition_assignment_strategy=strategy) as staying:
        eventually(lambda: len(staying.partitions) == PARTITIONS)
        with member(broker, partition_assignment_strategy=strategy) as leaving:
            eventually(lambda: len(staying.partitions) == len(leaving.partitions) == PARTITIONS // 2)
            assert staying.partitions | leaving.partitions == set(range(PARTITIONS))
            values = fill(broker)
            eventually(lambda: len(staying.values) + len(leaving.values) >= len(values))
            assert sorted(staying.values + leaving.values) == sorted(values)
            assert staying.values
            assert leaving.values
        eventually(lambda: len(staying.partitions) == PARTITIONS)


def test_a_group_of_three_nodes_finds_its_coordinator_again():
    with TestBroker(nodes=3) as broker:
        broker.create_topic("t", partitions=PARTITIONS)
        with member(broker) as reader:
            first = fill(broker)
            eventually(lambda: len(reader.values) >= len(first))
            with PlainClient(broker.bootstrap_servers) as client:
                broker.kill(int(client.ask("FindCoordinator", 3, key="g", key_type=0).node_id))
            second = fill(broker, first=1_000_000)
            eventually(lambda: set(reader.values) >= set(second))
        assert broker.committed("g") == {("t", each): 2 * RECORDS for each in range(PARTITIONS)}


def test_groups_are_listed_and_described(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    with member(broker, client_id="me") as reader:
        eventually(lambda: len(reader.partitions) == PARTITIONS)
        described = done(admin.describe_consumer_groups(["g"]))
        listed = admin.list_consumer_groups().result(DEADLINE_S).valid
    (only,) = described.members
    assert (described.state.name, described.partition_assignor, only.client_id) == ("STABLE", "range", "me")
    assert {each.partition for each in only.assignment.topic_partitions} == set(range(PARTITIONS))
    assert [(each.group_id, each.state.name) for each in listed] == [("g", "STABLE")]
    eventually(lambda: done(admin.describe_consumer_groups(["g"])).state.name == "EMPTY")
