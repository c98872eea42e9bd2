"""The topics that are thrown away, against TestBroker."""

import sys
from importlib import metadata
from threading import Event, Thread

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError
from spark_kafka_sink.exactly_once.cluster import Cluster
from spark_kafka_sink.network.error_table import broker_error
from spark_kafka_sink.network.topics import create_topic
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.faults import KEPT
from spark_kafka_sink.tools.certification import topics as module
from spark_kafka_sink.tools.certification.topics import ThrowAwayTopics
from tests.waiting import eventually


@pytest.fixture(params=["4.1", "2.1"])
def broker(request):
    with TestBroker(nodes=2, like=request.param) as broker:
        yield broker


@pytest.fixture
def topics(broker):
    config = ProducerConfig.parse({"bootstrap.servers": broker.bootstrap_servers, "max.block.ms": 30_000})
    cluster = Cluster(config, SystemClock())
    yield ThrowAwayTopics(cluster, config)
    cluster.close()


def write(broker, topic, count):
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for number in range(count):
            producer.send(ProducerRecord(topic, value=b"%d" % number, key=b"k%d" % number))


def test_topics_are_created_measured_read_and_deleted(broker, topics):
    topics.create("a")
    topics.create("b")
    assert topics.names == ("a", "b")
    write(broker, "a", 100)
    assert topics.end_offsets("a") == 100
    assert all(broker.topic("a").records(partition) for partition in range(4))
    read = sorted(record for records in topics.read("a") for record in records)
    assert read == sorted((b"k%d" % number, b"%d" % number) for number in range(100))
    assert topics.delete() == ""
    assert topics.names == ()
    assert {*broker.topics} <= {"__consumer_offsets"}, "librdkafka asks for its group's coordinator"


def refused(*of):
    raise KafkaError("it cannot log in")
    yield


def test_what_librdkafka_cannot_read_the_package_reads_itself(broker, topics, monkeypatch):
    topics.create("a")
    write(broker, "a", 100)
    by_librdkafka = sorted(record for records in topics.read("a") for record in records)
    monkeypatch.setattr(ThrowAwayTopics, "_read_by_librdkafka", refused)
    assert sorted(record for records in topics.read("a") for record in records) == by_librdkafka
    first, second = topics.reader.split(", then ")
    assert first == f"confluent-kafka {metadata.version('confluent-kafka')}"
    assert second == "the package's own reader (librdkafka could not read: it cannot log in)"


def test_the_reader_that_read_nothing_is_not_named(broker, topics, monkeypatch):
    topics.create("a")
    monkeypatch.setattr(ThrowAwayTopics, "_read_by_librdkafka", refused)
    broker.faults.answer("Fetch", "TOPIC_AUTHORIZATION_FAILED", times=KEPT)
    with pytest.raises(KafkaError):
        list(topics.read("a"))
    assert topics.reader == ""


@pytest.mark.parametrize("missing", ["confluent_kafka", "confluent_kafka.admin"])
def test_incident_a_broken_librdkafka_was_a_fault_of_the_sink(topics, monkeypatch, missing):
    """What cannot be imported, for example because the system lacks a library, must leave it to the other reader."""
    topics.create("a")
    monkeypatch.delitem(sys.modules, "spark_kafka_sink.tools.demo.check", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    assert list(topics.read("a")) == []
    assert topics.reader.startswith("the package's own reader (librdkafka could not read: confluent-kafka cannot be ")


@pytest.mark.parametrize("by_librdkafka", [True, False])
def test_incident_rows_were_read_before_the_markers_of_their_transaction(broker, topics, monkeypatch, by_librdkafka):
    """EndTxn is answered before they are written, and librdkafka ends at the last stable offset: rows were missing."""
    if not by_librdkafka:
        monkeypatch.setattr(module, "_LIBRARY", "not-installed")
        topics = ThrowAwayTopics(topics._cluster, topics._config)
    topics.create("a")
    options = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x"}
    with KafkaProducer(options) as producer:
        producer.init_transactions()
        broker.hold_markers()
        producer.begin_transaction()
        for number in range(100):
            producer.send(ProducerRecord("a", value=b"%d" % number, key=b"k%d" % number))
        producer.commit_transaction()
    has_read = Event()

    def release():
        eventually(lambda: len(broker.requests.of("Fetch")) >= 6 or has_read.is_set(), "it tries to read")
        broker.release_markers()

    releasing = Thread(target=release)
    releasing.start()
    count = sum(len(records) for records in topics.read("a"))
    has_read.set()
    releasing.join()
    assert count == 100


def test_a_transaction_that_stays_open_ends_the_wait(monkeypatch):
    with TestBroker() as broker:
        options = {"bootstrap.servers": broker.bootstrap_servers}
        config = ProducerConfig.parse(options | {"max.block.ms": 5_000})
        cluster = Cluster(config, SystemClock())
        topics = ThrowAwayTopics(cluster, config)
        topics.create("a")
        with KafkaProducer(options | {"transactional.id": "x"}) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(ProducerRecord("a", value=b"x", partition=2)).result()
            with pytest.raises(KafkaTimeoutError, match="a-2 cannot be read up to offset 1 in time"):
                list(topics.read("a"))
            assert topics.reader == "", "nothing was read"
            producer.abort_transaction()
        assert list(filter(None, topics.read("a"))) == []
        assert topics.reader.startswith("confluent-kafka "), "the wait was no fault of librdkafka"
        cluster.close()


def test_a_topic_that_never_was_is_deleted(topics):
    topics.also_delete("ledger")
    topics.also_delete("ledger")
    assert topics.names == ("ledger",)
    assert topics.delete() == ""
    assert topics.names == ()


def test_a_refused_topic_is_not_one_that_may_exist(broker, topics):
    broker.faults.answer("CreateTopics", "TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(KafkaError, match="topic a could not be created: .*CREATE on the topic or the cluster"):
        topics.create("a")
    assert topics.names == ()


def test_incident_a_topic_that_was_created_in_spite_of_an_error_stayed(broker, topics, monkeypatch):
    """A controller that is deposed while it creates a topic says that it is none."""

    def deposed(cluster, topic, deadline):
        create_topic(cluster, topic, deadline)
        raise broker_error(ErrorCode.not_controller, f"CreateTopics of {topic.name}")

    monkeypatch.setattr(module, "create_topic", deposed)
    with pytest.raises(KafkaError, match="topic a could not be created: .*NOT_CONTROLLER"):
        topics.create("a")
    assert broker.topics == ("a",)
    assert topics.delete() == ""
    assert broker.topics == ()


def test_a_topic_whose_creation_was_not_answered_is_deleted():
    with TestBroker() as broker:
        options = {"bootstrap.servers": broker.bootstrap_servers, "max.block.ms": 300, "request.timeout.ms": 100,
                   "delivery.timeout.ms": 200, "linger.ms": 0}  # fmt: skip
        config = ProducerConfig.parse(options)
        cluster = Cluster(config, SystemClock())
        topics = ThrowAwayTopics(cluster, config)
        lost = broker.faults.lose_answer("CreateTopics", times=KEPT)
        with pytest.raises(KafkaTimeoutError):
            topics.create("a")
        lost.remove()
        assert broker.topics == ("a",)
        assert topics.delete() == ""
        assert broker.topics == ()
        cluster.close()


def test_each_topic_that_stays_is_named_and_the_others_are_deleted(broker, topics):
    topics.create("a")
    topics.create("b")
    broker.faults.answer("DeleteTopics", "TOPIC_AUTHORIZATION_FAILED")
    assert topics.delete().startswith("topic a stays, because the principal may not delete it")
    assert topics.names == ("a",)
    assert broker.topics == ("a",)
