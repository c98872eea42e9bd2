"""``KafkaProducer`` as its users see it, on an in-process broker."""

import threading
from pickle import PicklingError

import numpy as np
import pyarrow as pa
import pytest
from pyspark.serializers import CloudPickleSerializer

from spark_kafka_sink import KafkaProducer, ProducerRecord, SyncProducer, open_producer
from spark_kafka_sink.common.model import Node
from spark_kafka_sink.errors import ConfigError, InvalidRecordError, KafkaTimeoutError, ProducerClosedError
from spark_kafka_sink.producer.interceptors import ProducerInterceptor
from spark_kafka_sink.testing import TestBroker
from tests.contract.brokers import broker_with
from tests.support.waiting import DEADLINE_S

broker = broker_with("t", partitions=2)


@pytest.fixture
def producer(broker):
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        yield producer


def sender_threads():
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("kafka-producer-network-thread")}


def test_send_flush_and_read_back(broker, producer):
    headers = [("h", b"1"), ("ü", None)]
    future = producer.send(ProducerRecord("t", b"value", b"key", partition=1, timestamp=1234, headers=headers))
    producer.flush()
    (record,) = broker.topic("t").records(1)
    assert (record.key, record.value, record.timestamp) == (b"key", b"value", 1234)
    assert record.headers == ((b"h", b"1"), ("ü".encode(), None))
    assert future.result(0) == ("t", 1, 0, 1234, 3, 5)


def test_without_a_serializer_only_bytes_are_taken(producer):
    with pytest.raises(
        InvalidRecordError, match="The value must be bytes or None, not str. Give the producer a value_"
    ):
        producer.send(ProducerRecord("t", "text"))
    with pytest.raises(InvalidRecordError, match="The key must be bytes or None, not int. Give the producer a key_ser"):
        producer.send(ProducerRecord("t", b"v", 5))


def test_columns_in_one_call(broker, producer):
    receipt = producer.send_columns(
        "t",
        key=pa.array(["a", None, "c"]),
        value=np.array([b"1", b"2", b"3"]),
        partition=pa.array([1, 1, None], pa.int64()),
        timestamp=pa.array([5, None, 7]),
        headers=pa.array([[{"key": "h", "value": b"x"}], None, []]),
    )
    producer.flush()
    receipt.wait(0)
    records = broker.topic("t").records()
    assert {(r.key, r.value) for r in records} == {(b"a", b"1"), (None, b"2"), (b"c", b"3")}
    assert {r.partition for r in records if r.value in (b"1", b"2")} == {1}
    assert {r.timestamp for r in records} >= {5, 7}
    assert sum(delivery.count for delivery in receipt.deliveries.values()) == 3


def test_incident_a_timeout_of_none_was_a_type_error_except_for_a_future(broker):
    producer = KafkaProducer({"bootstrap.servers": broker.bootstrap_servers})
    future, receipt = producer.send(ProducerRecord("t", b"v")), producer.send_columns("t", value=[b"v"])
    for wait in (producer.flush, future.result, receipt.wait, producer.close):
        wait(None)
    assert len(broker.topic("t").records()) == 2


def test_use_after_close_raises_and_closing_twice_is_harmless(broker):
    producer = KafkaProducer({"bootstrap.servers": broker.bootstrap_servers})
    producer.close()
    producer.close()
    for use in (lambda: producer.send(ProducerRecord("t", b"v")), producer.flush, lambda: producer.partitions_for("t")):
        with pytest.raises(ProducerClosedError):
            use()


def seen_client_ids(broker):
    return {seen.client_id for seen in broker.requests}


def test_the_brokers_get_the_generated_client_id_of_an_unnamed_producer(broker):
    with (
        KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}) as first,
        KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}) as second,
    ):
        names = [producer.config.client_id for producer in (first, second)]
        for producer in (first, second):
            producer.send(ProducerRecord("t", b"v")).result(DEADLINE_S)
            assert f'{{client_id="{producer.config.client_id}"}}' in producer.open_metrics()
        assert {f"kafka-producer-network-thread | {name}" for name in names} <= sender_threads()
    numbers = [int(name.removeprefix("producer-")) for name in names]
    assert numbers[1] == numbers[0] + 1
    assert seen_client_ids(broker) == set(names)


def test_serializers_and_interceptors_are_configured_with_the_generated_client_id(broker):
    class Configured(ProducerInterceptor):
        def configure(self, options):
            self.client_id = options["client.id"]

    interceptor = Configured()
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}, interceptors=[interceptor]) as producer:
        assert interceptor.client_id == producer.config.client_id


def test_metrics_of_the_network_and_of_waits_for_memory(broker):
    options = {"bootstrap.servers": broker.bootstrap_servers, "buffer.memory": 32_768, "batch.size": 8_192}
    with KafkaProducer(options) as producer:
        for _ in range(20):
            producer.send_columns("t", value=pa.array([b"x" * 20_000]))
        producer.flush()
        found = producer.metrics()["producer-metrics"]
        assert found["connection-count"] >= 1
        assert found["outgoing-byte-total"] > 400_000
        assert found["incoming-byte-total"] > 0
        assert found["io-wait-ratio"] > 0
        assert found["io-ratio"] > 0
        assert found["bufferpool-wait-time-ns-total"] > 0
        assert found["metadata-age"] < 60
    assert producer.metrics()["producer-metrics"]["connection-count"] == 0


def test_partitions_for_tells_leader_and_replicas_of_each_partition():
    with TestBroker(nodes=3) as broker:
        broker.create_topic("t", partitions=3, replication=2)
        broker.kill(2)
        with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            assert len(producer.partitions_for("t")) == 3
            found = producer.partitions_for("t")
    replicas = [{node.id for node in each.replicas} for each in found]
    assert [(each.topic, each.partition) for each in found] == [("t", 0), ("t", 1), ("t", 2)]
    assert all(len(nodes) == 2 for nodes in replicas)
    for each, nodes in zip(found, replicas, strict=True):
        assert {node.id for node in each.offline_replicas} == nodes & {2}
        assert {node.id for node in each.in_sync_replicas} == nodes - {2}
        assert each.leader in each.in_sync_replicas
    gone = {node for each in found for node in each.offline_replicas}
    assert gone == {Node(2, "", -1)}


def test_a_partition_without_a_leader_has_none_in_partitions_for():
    with TestBroker(nodes=2) as broker:
        broker.create_topic("t", partitions=2, replication=1)
        broker.kill(1)
        with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            leaders = {each.leader and each.leader.id for each in producer.partitions_for("t")}
    assert leaders == {None, 2}


def test_arguments_as_of_kafka_python_are_told_as_a_dictionary():
    with pytest.raises(TypeError) as caught:
        KafkaProducer(bootstrap_servers="localhost:9092", sasl_plain_password="secret")
    assert str(caught.value) == (
        "KafkaProducer takes a dictionary with Kafka's names of options: "
        'KafkaProducer({"bootstrap.servers": …, "sasl.plain.password": …})'
    )
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        KafkaProducer()


def test_a_topic_and_a_value_in_place_of_a_record_are_told_how_to_make_one(producer):
    with pytest.raises(TypeError, match=r"send takes a ProducerRecord, not str: producer\.send"):
        producer.send("t", b"x")
    with pytest.raises(TypeError, match=r"send takes a ProducerRecord, not str: producer\.send"):
        producer.send("t", value=b"x", key=b"k")
    for beside in ({"value": b"x"}, {"key": b""}, {"partition": 0}):
        with pytest.raises(TypeError, match="send takes a ProducerRecord, not one with value, key or partition"):
            producer.send(ProducerRecord("t"), **beside)
    assert producer.send(ProducerRecord("t", b"x")).result(DEADLINE_S).topic == "t"


@pytest.mark.parametrize("opened", [KafkaProducer, SyncProducer])
def test_incident_a_producer_in_a_function_for_executors_was_a_socket_that_cannot_be_pickled(broker, opened):
    with opened({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for captured in (lambda row: producer.send(row, None), producer.send, [producer]):
            with pytest.raises(PicklingError, match=f"A {opened.__name__} cannot be pickled.*foreachPartition"):
                CloudPickleSerializer().dumps(captured)


def test_many_threads_send_and_every_thread_keeps_its_order(broker, producer):
    def send(name):
        for number in range(500):
            producer.send(ProducerRecord("t", b"%d:%d" % (name, number), partition=0))

    threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush()
    values = [tuple(map(int, value.split(b":"))) for value in broker.topic("t").values(0)]
    assert len(values) == 2000
    for name in range(4):
        numbers = [number for thread, number in values if thread == name]
        assert numbers == sorted(numbers)


def test_without_allow_auto_create_topics_no_request_creates_a_topic(broker):
    options = {"bootstrap.servers": broker.bootstrap_servers, "allow.auto.create.topics": "false", "max.block.ms": 300}
    with KafkaProducer(options) as producer, pytest.raises(KafkaTimeoutError, match="Topic missing not present"):
        producer.send(ProducerRecord("missing", b"v"))
    assert broker.topics == ("t",)


CONFIG = {"bootstrap.servers": "127.0.0.1:9"}


@pytest.mark.parametrize(
    ("option", "named", "kind"),
    [
        (None, ("async",), KafkaProducer),
        (None, ("sync",), SyncProducer),
        ("sync", (), SyncProducer),
        (" async ", (), KafkaProducer),
        (None, (), KafkaProducer),
        ("async", ("sync",), SyncProducer),
        ("sync", ("async",), KafkaProducer),
    ],
)
def test_the_option_producer_type_is_read_unless_the_argument_is_given(option, named, kind):
    with open_producer({**CONFIG, "producer.type": option}, *named) as producer:
        assert type(producer) is kind


def test_another_producer_type_is_refused():
    with pytest.raises(ConfigError, match="must be sync or async, but is 'Sync'"):
        open_producer(CONFIG, "Sync")
    with pytest.raises(ConfigError, match=r"producer\.type must be sync or async, but is 'both'"):
        open_producer({**CONFIG, "producer.type": "both"})


def test_a_producer_of_the_other_type_is_refused():
    with pytest.raises(ConfigError, match="producer.type is 'async', but this producer is sync; use open_producer"):
        SyncProducer({**CONFIG, "producer.type": "async"})
    with pytest.raises(
        ConfigError, match="producer.type is an option of Kafka 0.8; leave it out, or use open_producer"
    ):
        KafkaProducer({**CONFIG, "producer.type": "sync"})
