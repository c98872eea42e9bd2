"""The synchronous producer on a TestBroker."""

import pickle
import signal
import threading
from contextlib import closing, contextmanager

import pytest
from kio.schema.list_transactions.v0.request import ListTransactionsRequest

from spark_kafka_sink import KafkaProducer, KeyedMessage
from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import (
    BrokerError,
    ConfigError,
    FailedToSendError,
    IllegalStateError,
    InvalidRecordError,
    KafkaTimeoutError,
    NetworkError,
    ProducerClosedError,
    RecordTooLargeError,
    SerializationError,
)
from spark_kafka_sink.kafka08.metrics import Count, SyncMetrics
from spark_kafka_sink.kafka08.producer_pool import ProducerPool
from spark_kafka_sink.kafka08.sync_producer import SyncProducer
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.messages import KioRequest, Response
from spark_kafka_sink.network.selector import Received
from spark_kafka_sink.producer.partitioner import RecordPartitioner
from spark_kafka_sink.producer.record import ProducerRecord, RecordMetadata
from spark_kafka_sink.producer.serializers import BytesSerializer, Serializer, StringSerializer
from spark_kafka_sink.testing import KEPT, TestBroker
from tests.contract.brokers import broker_with
from tests.support.waiting import DEADLINE_S

GROUPS = ("producer-metrics", "producer-topic-metrics.t", "producer-topic-metrics.u")
broker = broker_with("t", partitions=4, nodes=2)


def sync_producer(broker, **options):
    names = {name.replace("_", "."): value for name, value in options.items()}
    return SyncProducer({"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 10, **names})


def record(value, **rest):
    return ProducerRecord("t", value, **rest)


def keyed(key, value, partition_key=None):
    return KeyedMessage("t", key, value, partition_key)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_send_returns_when_every_record_is_in_the_log_and_says_where(broker, codec):
    with sync_producer(broker, compression_type=codec) as producer:
        before = threading.active_count()
        placed = producer.send(*(record(b"%d" % n, key=b"%d" % n) for n in range(40)))
        assert threading.active_count() == before
    stored = {(each.partition, each.offset): each.value for each in broker.topic("t").records()}
    assert [stored[each.partition, each.offset] for each in placed] == [b"%d" % n for n in range(40)]
    assert {each.partition for each in placed} == {0, 1, 2, 3}


def test_records_keep_key_value_headers_timestamp_and_partition(broker):
    with sync_producer(broker) as producer:
        given = record(None, key=b"k", partition=3, timestamp=1234, headers=[("h", b"x"), ("h", None)])
        (placed,) = producer.send(given)
    (stored,) = broker.topic("t").records(3)
    assert (stored.key, stored.value, stored.timestamp) == (b"k", None, 1234)
    assert stored.headers == ((b"h", b"x"), (b"h", None))
    assert placed == ("t", 3, 0, 1234, 1, -1)


def test_one_request_to_each_leader_with_one_batch_for_each_of_its_partitions(broker):
    with sync_producer(broker) as producer:
        producer.send(*(record(b"%d" % n, partition=n % 4) for n in range(20)))
    assert sorted(seen.node for seen in broker.requests.of("Produce")) == [1, 2]
    assert [len(broker.topic("t").batches(partition)) for partition in range(4)] == [1, 1, 1, 1]


def test_an_unkeyed_topic_keeps_one_partition_between_refreshes(broker):
    with sync_producer(broker) as producer:
        assert len({producer.send(record(b"v"))[0].partition for _ in range(20)}) == 1


def test_an_unkeyed_topic_chooses_again_with_each_refresh(broker):
    with sync_producer(broker, topic_metadata_refresh_interval_ms=0) as producer:
        assert len({producer.send(record(b"v"))[0].partition for _ in range(25)}) > 1


def test_incident_the_refresh_of_a_retry_waited_for_the_metadatas_own_backoff(broker):
    """retry.backoff.ms rules, also if the connection to the leader is what fails."""
    backoffs = {"retry_backoff_max_ms": 3_600_000, "reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 10}
    with sync_producer(broker, **backoffs, message_send_max_retries=15) as producer:
        broker.faults.drop_before("Produce", times=15)
        producer.send(record(b"v", partition=0))
    assert len(broker.requests.of("Metadata")) > 15


def test_only_what_failed_is_sent_again(broker):
    broker.faults.answer("Produce", "NOT_LEADER_OR_FOLLOWER", topic="t", partition=1)
    with sync_producer(broker) as producer:
        placed = producer.send(*(record(b"%d" % n, partition=n) for n in range(4)))
    assert [(each.partition, each.offset) for each in placed] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert broker.topic("t").values() == [b"0", b"1", b"2", b"3"]


def test_a_leader_that_died_is_waited_for_until_there_is_another(broker):
    with sync_producer(broker, retry_backoff_ms=100) as producer:
        producer.send(record(b"before", partition=0))
        broker.kill(broker.leader("t", 0))
        producer.send(record(b"after", partition=0))
    assert broker.topic("t").values(0) == [b"before", b"after"]


def test_a_lost_response_sends_the_record_twice(broker):
    broker.faults.drop_after("Produce")
    with sync_producer(broker) as producer:
        producer.send(record(b"v", partition=0))
    assert broker.topic("t").values(0) == [b"v", b"v"]


def test_after_the_retries_the_call_fails_and_says_which_records_did(broker):
    fault = broker.faults.answer("Produce", "NOT_ENOUGH_REPLICAS", topic="t", partition=2, times=KEPT)
    with (
        sync_producer(broker, message_send_max_retries=2) as producer,
        pytest.raises(FailedToSendError, match="Failed to send 1 of 4 records, the first because of: t-2") as caught,
    ):
        producer.send(*(record(b"%d" % n, partition=n) for n in range(4)))
    assert fault.hits == 3
    assert list(caught.value.errors) == [2]
    assert {place: each.offset for place, each in caught.value.delivered.items()} == {0: 0, 1: 0, 3: 0}
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.delivered) == (str(caught.value), caught.value.delivered)


class FailsAtCall(RecordPartitioner):
    """Puts records into partition 3; fails at the call whose number is the key."""

    def configure(self, config):
        self.calls = 0

    def partition(self, topic, key, key_bytes, value, value_bytes, cluster):
        self.calls += 1
        if self.calls == int(key_bytes):
            raise ValueError("no partition")
        return 3


@pytest.mark.parametrize(("call", "failed"), [("1", [2, 3]), ("2", [3])], ids=["a later request", "a retry"])
def test_incident_a_partitioner_that_failed_later_hid_what_was_delivered(broker, call, failed):
    """A program that repeated the call wrote its first records twice."""
    if call == "2":
        broker.faults.answer("Produce", "NOT_LEADER_OR_FOLLOWER", topic="t", partition=3)
    records = [*(record(b"x" * 1_000, partition=n) for n in range(3)), record(b"x" * 1_000, key=call.encode())]
    own = f"{FailsAtCall.__module__}:FailsAtCall"
    with (
        sync_producer(broker, partitioner_class=own, max_request_size=2_500) as producer,
        pytest.raises(FailedToSendError, match="the first because of: no partition") as caught,
    ):
        producer.send(*records)
    assert list(caught.value.errors) == failed
    assert sorted({0, 1, 2, 3} - caught.value.delivered.keys()) == failed


def test_an_error_that_no_retry_can_mend_is_not_tried_again(broker):
    fault = broker.faults.answer("Produce", "TOPIC_AUTHORIZATION_FAILED", times=KEPT)
    with sync_producer(broker) as producer, pytest.raises(FailedToSendError) as caught:
        producer.send(record(b"v", partition=0))
    assert fault.hits == 1
    assert isinstance(caught.value.errors[0], BrokerError)


def test_a_response_for_other_partitions_than_asked_is_an_error():
    """A broken broker or proxy could rename the topic in the response's frame."""
    with TestBroker(api_versions={"Produce": (0, 12)}) as broker:
        broker.create_topic("t")
        fault = broker.faults.mangle("Produce", lambda frame: frame.replace(b"\x02t\x02", b"\x02u\x02"), times=KEPT)
        incomplete = pytest.raises(FailedToSendError, match="Incomplete response: requested t-0, received u-0")
        with sync_producer(broker, message_send_max_retries=0) as producer, incomplete:
            producer.send(record(b"v", partition=0))
    assert fault.hits == 1


def test_more_than_max_request_size_goes_in_several_requests(broker):
    with sync_producer(broker, max_request_size=10_000) as producer:
        producer.send(*(record(b"%04d" % n + b"x" * 996, partition=0) for n in range(20)))
    assert [value[:4] for value in broker.topic("t").values(0)] == [b"%04d" % n for n in range(20)]
    assert len(broker.requests.of("Produce")) == 3


@pytest.mark.parametrize(("acks", "offset"), [("0", -1), ("1", 0), ("all", 0)])
def test_each_acks(broker, acks, offset):
    with sync_producer(broker, acks=acks) as producer:
        (placed,) = producer.send(record(b"v", partition=0))
    assert placed.offset == offset
    broker.requests.wait_for("Produce")


def test_without_acks_a_connection_that_was_closed_since_the_last_call_is_not_written_to(broker):
    """A broker that refuses a record sent with acks=0 says so by closing the connection, and in no other way."""
    with sync_producer(broker, acks="0") as producer:
        producer.send(record(b"before", partition=0))
        broker.requests.wait_for("Produce")
        for node in broker.node_ids:
            broker.cut_connections(node)
        assert broker.topics  # the broker's thread has closed them by then
        producer.send(record(b"after", partition=0))
        broker.requests.wait_for("Produce", count=2)
    assert broker.topic("t").values(0) == [b"before", b"after"]


@pytest.mark.parametrize("retries", [0, 3])
def test_incident_without_acks_a_record_went_to_the_former_leader_once_its_connection_had_died(broker, retries):
    with sync_producer(broker, acks="0", message_send_max_retries=retries) as producer:
        producer.send(record(b"before", partition=0))
        broker.requests.wait_for("Produce")
        former = broker.leader("t", 0)
        broker.move_leader("t", 0, next(node for node in broker.node_ids if node != former))
        broker.cut_connections(former)
        assert broker.topics  # the broker's thread has closed them by then
        producer.send(record(b"after", partition=0))
        broker.requests.wait_for("Produce", count=2)
    assert broker.topic("t").values(0) == [b"before", b"after"]


def test_a_broker_that_has_left_the_metadata_is_an_error_of_its_request_alone(broker):
    """Metadata may change between the choice of the leaders and the requests to them."""

    def list_transactions(completed):
        return KioRequest("list_transactions", (0, 0), lambda _module, _version: ListTransactionsRequest(), completed)

    config = ProducerConfig.parse({"bootstrap.servers": broker.bootstrap_servers})
    with closing(ProducerPool(config, SystemClock())) as pool:
        pool.refresh()
        broker.kill(2)
        pool.refresh()
        ended = pool.exchange({1: list_transactions, 2: list_transactions})
    assert isinstance(ended[2], NetworkError)
    assert str(ended[2]) == "Broker 2 has left the cluster"
    assert isinstance(ended[1], Response)
    assert ended[1].error is None


def test_an_unknown_topic_is_waited_for_no_longer_than_max_block_ms():
    with (
        TestBroker(config={"auto.create.topics.enable": "false"}) as broker,
        sync_producer(broker, max_block_ms=150) as producer,
        pytest.raises(KafkaTimeoutError, match="Topic none not present in metadata after 150 ms"),
    ):
        producer.send(ProducerRecord("none", b"v"))


def test_one_record_that_is_too_large_sends_none(broker):
    with (
        sync_producer(broker, max_request_size=1000) as producer,
        pytest.raises(RecordTooLargeError, match=r"larger than 1000.* max.request.size") as caught,
    ):
        producer.send(record(b"small", partition=0), record(b"x" * 1000, partition=0))
    assert caught.value.row == 1
    assert broker.topic("t").values() == []


def test_what_is_not_a_record_is_refused(broker):
    with (
        sync_producer(broker) as producer,
        pytest.raises(InvalidRecordError, match="takes ProducerRecords and KeyedMessages, not b'v'"),
    ):
        producer.send(b"v")


class Passing(Serializer):
    """Careless: it returns what it is given."""

    def serialize(self, topic, data):
        return data


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("headers", [("caf\udce9", b"v")], "A header's key must be valid Unicode"),
        ("timestamp", 2**63, "Invalid timestamp: 9223372036854775808"),
        ("partition", -2, "Invalid partition: -2"),
        ("key", "text", "The key must be bytes or None, not str"),
    ],
)
def test_a_record_that_cannot_be_encoded_is_refused_before_anything_is_sent(broker, name, value, text):
    bad = record(b"bad")
    setattr(bad, name, value)
    with SyncProducer({"bootstrap.servers": broker.bootstrap_servers}, key_serializer=Passing()) as producer:
        with pytest.raises(InvalidRecordError, match=text):
            producer.send(record(b"good"), bad)
        producer.send(record(b"next"))
    assert broker.topic("t").values() == [b"next"]


def test_all_faults_of_its_options_come_in_one_error():
    with pytest.raises(ConfigError) as caught:
        SyncProducer(
            {
                "bootstrap.servers": "h:1",
                "message.send.max.retries": -1,
                "topic.metadata.refresh.interval.ms": "x",
                "enable.idempotence": "true",
                "transactional.id": "t",
                "acks": 7,
            }
        )
    assert [fault.split()[0] for fault in caught.value.faults] == [
        "enable.idempotence",
        "transactional.id",
        "message.send.max.retries",
        "topic.metadata.refresh.interval.ms",
        "acks",
    ]


def test_four_threads_share_a_producer_and_lose_nothing(broker):
    """One lock, as in Kafka 0.8: without it the threads read each other's responses."""
    errors: list[BaseException] = []
    placed: dict[bytes, tuple[int, int]] = {}

    def send(thread):
        try:
            for n in range(100):
                value = b"%d-%d" % (thread, n)
                (each,) = producer.send(record(value, partition=thread))
                placed[value] = (each.partition, each.offset)
        except BaseException as error:
            errors.append(error)

    with sync_producer(broker) as producer:
        threads = [threading.Thread(target=send, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
    assert errors == []
    assert {each.value: (each.partition, each.offset) for each in broker.topic("t").records()} == placed
    assert [broker.topic("t").values(p) for p in range(4)] == [
        [b"%d-%d" % (p, n) for n in range(100)] for p in range(4)
    ]


def test_closing_waits_for_another_threads_call(broker):
    """The retries of that call go on; a call that comes later is refused."""
    fault = broker.faults.answer("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    producer = sync_producer(broker, retry_backoff_ms=200)
    sent: list[RecordMetadata] = []
    sender = threading.Thread(target=lambda: sent.extend(producer.send(record(b"v", partition=0))))
    sender.start()
    broker.requests.wait_for("Produce")
    producer.close()
    sender.join(DEADLINE_S)
    assert [each.offset for each in sent] == [0]
    assert fault.hits == 2
    producer.close()
    with pytest.raises(ProducerClosedError):
        producer.send(record(b"later"))


def test_the_partition_key_chooses_the_partition_and_is_not_stored(broker):
    with sync_producer(broker) as producer:
        by_key = {n: producer.send(record(b"v", key=b"%d" % n))[0].partition for n in range(20)}
        placed = producer.send(*(keyed(b"key", b"%d" % n, b"%d" % n) for n in range(20)))
        unkeyed = producer.send(*(keyed(None, b"%d" % n, b"%d" % n) for n in range(20)))
    assert [each.partition for each in placed] == list(by_key.values())
    assert [each.partition for each in unkeyed] == list(by_key.values())
    assert len(set(by_key.values())) == 4
    assert {each.key for each in broker.topic("t").records()} == {None, b"key", *(b"%d" % n for n in range(20))}
    stored = {(each.partition, each.offset): each for each in broker.topic("t").records()}
    assert {stored[each.partition, each.offset].key for each in placed} == {b"key"}
    assert {stored[each.partition, each.offset].key for each in unkeyed} == {None}
    assert {each.headers for each in stored.values()} == {()}


def test_a_partition_key_is_serialized_like_a_key(broker):
    options = {"bootstrap.servers": broker.bootstrap_servers}
    with SyncProducer(options, key_serializer=StringSerializer()) as producer:
        (by_key,) = producer.send(record(b"v", key="ä"))
        by_either = [producer.send(message)[0] for message in (keyed("other", b"v", "ä"), keyed("ä", b"v"))]
        with pytest.raises(SerializationError):
            producer.send(keyed(None, b"v", b"bytes"))
    assert {placed.partition for placed in by_either} == {by_key.partition}


class HeadersAddingSerializer(BytesSerializer):
    def serialize(self, topic, data, headers):
        headers.append(("of", data))
        return data


@pytest.mark.parametrize("serializer", [None, BytesSerializer(), HeadersAddingSerializer()])
@pytest.mark.parametrize("size", [1, 1_000_000])
def test_the_asynchronous_producer_refuses_a_keyed_message(broker, serializer, size):
    options = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0}
    with KafkaProducer(options, key_serializer=serializer) as producer:
        for _ in range(2):  # the topic is unknown, and known
            with pytest.raises(TypeError, match="a ProducerRecord, not a KeyedMessage, which is for SyncProducer"):
                producer.send(keyed(b"k", b"v" * size, b"p"))
            producer.send(record(b"v", key=b"k")).result(DEADLINE_S)
    assert broker.topic("t").values() == [b"v", b"v"]


def test_metrics_count_messages_and_bytes_of_each_topic_and_of_all(broker):
    broker.create_topic("u", partitions=1)
    with sync_producer(broker) as producer:
        assert producer.metrics()["producer-metrics"]["message-total"] == 0
        producer.send(record(b"12345", key=b"key"), record(None), ProducerRecord("u", b"1234567"))
        metrics = producer.metrics()
    totals = {
        group: {name: value for name, value in values.items() if name.endswith("-total")}
        for group, values in metrics.items()
    }
    none = {"resend-total": 0, "failed-send-total": 0, "serialization-error-total": 0}
    assert totals == {
        "producer-metrics": {"message-total": 3, "byte-total": 12, **none},
        "producer-topic-metrics.t": {"message-total": 2, "byte-total": 5, **none},
        "producer-topic-metrics.u": {"message-total": 1, "byte-total": 7, **none},
    }
    assert metrics["producer-metrics"]["message-rate"] == pytest.approx(3 / 30, rel=0.2)


def test_metrics_count_a_call_that_failed_after_its_retries_as_one_failed_send(broker):
    broker.create_topic("u", partitions=1)
    broker.faults.answer("Produce", "NOT_LEADER_OR_FOLLOWER", topic="t", times=KEPT)
    with sync_producer(broker, message_send_max_retries=1) as producer:
        with pytest.raises(FailedToSendError):
            producer.send(record(b"1", partition=0), record(b"2", partition=1), ProducerRecord("u", b"v"))
        metrics = producer.metrics()
    assert [metrics[group]["resend-total"] for group in GROUPS] == [1, 1, 0]
    assert [metrics[group]["failed-send-total"] for group in GROUPS] == [1, 1, 0]
    assert [metrics[group]["message-total"] for group in GROUPS] == [3, 2, 1]


def test_a_rate_forgets_what_is_older_than_two_samples_and_a_total_does_not():
    metrics = SyncMetrics()
    metrics.add(Count.MESSAGES, {"t": 60}, 60, 0.0)
    metrics.add(Count.MESSAGES, {"t": 30}, 30, 40_000.0)
    rates = [metrics.read(now)["producer-metrics"]["message-rate"] for now in (50_000.0, 70_000.0, 200_000.0)]
    assert rates == [90 / 50, 30 / 30, 0.0]
    assert metrics.read(200_000.0)["producer-topic-metrics.t"]["message-total"] == 90


def test_a_record_has_no_partition_key():
    with pytest.raises(TypeError, match="unexpected keyword argument 'partition_key'"):
        record(b"v", partition_key=b"p")


@contextmanager
def signalled_in_a_send(broker, handle):
    """A signal arrives with the next Produce request, before its response; ``handle`` is its handler."""
    thread = threading.get_ident()
    broker.faults.run("Produce", lambda: signal.pthread_kill(thread, signal.SIGUSR1))
    previous = signal.signal(signal.SIGUSR1, lambda *_: handle())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, previous)


def test_after_ctrl_c_in_a_send_the_next_one_has_connections_of_its_own(broker):
    """The response to the interrupted request must not be taken for that to the next."""

    def ctrl_c():
        raise KeyboardInterrupt

    with sync_producer(broker) as producer:
        producer.send(record(b"0", partition=0))
        with signalled_in_a_send(broker, ctrl_c), pytest.raises(KeyboardInterrupt):
            producer.send(record(b"1", partition=0))
        assert producer.send(record(b"2", partition=0))[0].offset == 2
    assert broker.topic("t").values() == [b"0", b"1", b"2"]


def alarm(_producer):
    raise TimeoutError("the alarm")


def send_uncaught(producer):
    producer.send(record(b"handler's", partition=0))


@pytest.mark.parametrize(("handle", "raised"), [(alarm, TimeoutError), (send_uncaught, IllegalStateError)])
def test_incident_an_alarm_in_a_send_left_a_torn_connection_to_the_next_one(broker, monkeypatch, handle, raised):
    """It struck when a response had been read and not noted. The next request got what was left of that."""
    with sync_producer(broker) as producer:
        producer.send(record(b"0", partition=0))
        previous = signal.signal(signal.SIGALRM, lambda *_: handle(producer))
        noted = NetworkClient.handle

        def struck(client, events, now):
            if any(isinstance(event, Received) for event in events):
                monkeypatch.setattr(NetworkClient, "handle", noted)
                signal.raise_signal(signal.SIGALRM)
            noted(client, events, now)

        monkeypatch.setattr(NetworkClient, "handle", struck)
        try:
            with pytest.raises(raised):
                producer.send(record(b"1", partition=0))
        finally:
            signal.signal(signal.SIGALRM, previous)
        assert producer.send(record(b"2", partition=0))[0].offset == 2
    assert broker.topic("t").values() == [b"0", b"1", b"2"]


def test_incident_a_send_whose_producer_a_signal_handler_closed_ended_with_a_bad_file_descriptor(broker):
    producer = sync_producer(broker)
    with (
        signalled_in_a_send(broker, producer.close),
        pytest.raises(FailedToSendError, match="The producer was closed during this send") as caught,
    ):
        producer.send(record(b"v", partition=0))
    assert isinstance(caught.value.errors[0], ProducerClosedError)


def test_incident_a_send_in_a_signal_handler_took_the_response_of_the_send_that_it_interrupted(broker):
    """The outer send then waited for request.timeout.ms."""
    refused = []

    def send():
        with pytest.raises(IllegalStateError, match="inside a send of the same thread") as caught:
            producer.send(record(b"handler's", partition=0))
        refused.append(caught)

    with sync_producer(broker) as producer:
        with signalled_in_a_send(broker, send):
            assert producer.send(record(b"0", partition=0))[0].offset == 0
        assert producer.send(record(b"1", partition=0))[0].offset == 1
    assert refused
