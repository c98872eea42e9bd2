"""Serializers, partitioners and interceptors of the user on a real Kafka, read back by confluent-kafka."""

from itertools import pairwise

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import BrokerError
from spark_kafka_sink.producer.interceptors import ProducerInterceptor
from tests.spark.topics import Topic
from tests.support.waiting import DEADLINE_S

OWN = "tests.unit.partitioning.own_partitioners"
PLUGINS = "tests.unit.producer.own_plugins"


@pytest.fixture
def options(local_kafka):
    return {"bootstrap.servers": local_kafka.bootstrap_servers}


def test_the_headers_that_serializers_add_are_read_by_another_client(local_kafka, options):
    local_kafka.create_topic("plugins-headers")
    versioned = f"{PLUGINS}:Versioned"
    with KafkaProducer({**options, "key.serializer": versioned, "value.serializer": versioned}) as producer:
        producer.send(ProducerRecord("plugins-headers", "value", "key", headers=[("h", b"1")]))
    (record,) = Topic(local_kafka.bootstrap_servers, "plugins-headers").records()
    assert (record.key, record.value) == (b"key", b"value")
    assert record.headers == (("h", b"1"), ("schema", b"1"), ("schema", b"2"))


@pytest.mark.parametrize("name", [f"{OWN}:Sticky", "org.apache.kafka.clients.producer.UniformStickyPartitioner"])
def test_each_new_batch_leaves_its_partition(local_kafka, options, name):
    topic = f"plugins-{name.rpartition(':')[2].rpartition('.')[2]}"
    local_kafka.create_topic(topic, 3)
    given = {**options, "partitioner.class": name, "batch.size": 1_000, "linger.ms": 10_000}
    with KafkaProducer(given) as producer:
        for number in range(40):
            producer.send(ProducerRecord(topic, b"%03d" % number + b"x" * 197, b"key"))
        producer.flush()
    read = {int(record.value[:3]): record.partition for record in Topic(*options.values(), topic).records()}
    batches = [{read[number] for number in range(start, start + 4)} for start in range(0, 40, 4)]
    assert all(len(batch) == 1 for batch in batches)
    assert all(one != other for one, other in pairwise(batches))


def test_an_interceptor_gets_the_partition_of_a_record_that_the_broker_refuses(local_kafka, options):
    told = []

    class Told(ProducerInterceptor):
        def on_acknowledgement(self, metadata, error):
            told.append((metadata.topic, metadata.partition, metadata.offset, type(error)))

    local_kafka.create_topic("plugins-small", 3, {"max.message.bytes": "200"})
    with KafkaProducer(options, interceptors=[Told()]) as producer:
        refused = producer.send(ProducerRecord("plugins-small", b"x" * 1_000, b"a key"))
        with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE|larger"):
            refused.result(DEADLINE_S)
        partition = producer.send(ProducerRecord("plugins-small", b"x", b"a key")).result(DEADLINE_S).partition
    assert told == [
        ("plugins-small", partition, -1, BrokerError),
        ("plugins-small", partition, 0, type(None)),
    ]
