"""``partitioner.rack.aware`` (KIP-1123) on three nodes in three racks: which partitions get the rows without a key.

librdkafka counts them, and finds each partition's leader.
"""

from itertools import count

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.testing import DEFAULT_VERSION, LocalKafka, TestBroker
from tests.spark.topics import Topic
from tests.support.waiting import DEADLINE_S, eventually, until

RACKS = ["a", "b", "c"]
PARTITIONS = 9
ROWS = 300
_numbers = count()


@pytest.fixture(scope="module")
def real_kafka():
    # Leaders go back to the node that is preferred, within seconds.
    with LocalKafka(RACKS, DEFAULT_VERSION, {"leader.imbalance.check.interval.seconds": "1"}) as kafka:
        yield kafka


@pytest.fixture(params=["TestBroker", pytest.param("Kafka", marks=[pytest.mark.jvm, pytest.mark.slow])])
def cluster(request):
    if request.param == "Kafka":
        yield request.getfixturevalue("real_kafka")
    else:
        with TestBroker(RACKS) as broker:
            yield broker


def in_columns(producer, topic):
    """Ten rows a call, so that they are flushed and the next may go elsewhere."""
    for _ in range(ROWS // 10):
        producer.send_columns(topic, value=["x" * 100] * 10).wait(DEADLINE_S * 1000)


def by_send(producer, topic):
    for _ in range(ROWS // 10):
        for future in [producer.send(ProducerRecord(topic, b"x" * 100)) for _ in range(10)]:
            future.result(DEADLINE_S)


each_way = pytest.mark.parametrize("write", [in_columns, by_send])


def producer(cluster, **options):
    rack_aware = {"partitioner.rack.aware": "true", "client.rack": "a", "batch.size": "500"}
    given = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": "0", "metadata.max.age.ms": "500"}
    return KafkaProducer({**given, **rack_aware, **options})


def new_topic(cluster):
    topic = f"racks-{next(_numbers)}"
    cluster.create_topic(topic, PARTITIONS)
    return topic


def leaders(cluster, topic):
    found = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(topic, DEADLINE_S).topics[topic]
    return {partition: info.leader for partition, info in found.partitions.items()}


def led_from_rack_a(cluster, topic):
    return {partition for partition, leader in leaders(cluster, topic).items() if leader == 1}


def counts(cluster, topic):
    """Records of each partition, by librdkafka."""

    def ends():
        try:
            return Topic(cluster.bootstrap_servers, topic).ends()
        except KafkaException:  # of a leader that moves
            return []

    return dict(enumerate(until(ends, bool)))


def added(before, after):
    """Partition to the number of its new records, where there are any."""
    return {number: after[number] - before[number] for number in after if after[number] > before[number]}


@each_way
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_rows_without_a_key_go_to_leaders_in_the_rack_alone(cluster, write, adaptive):
    topic = new_topic(cluster)
    with producer(cluster, **{"partitioner.adaptive.partitioning.enable": adaptive}) as own:
        write(own, topic)
    written = {number: rows for number, rows in counts(cluster, topic).items() if rows}
    assert sum(written.values()) == ROWS
    assert set(written) == led_from_rack_a(cluster, topic)
    assert len(written) == PARTITIONS // len(RACKS)


@each_way
def test_when_the_rack_dies_rows_go_on_elsewhere_and_come_back_with_it(cluster, write):
    topic = new_topic(cluster)
    home = led_from_rack_a(cluster, topic)
    with producer(cluster) as own:
        write(own, topic)
        before = counts(cluster, topic)
        assert set(added(dict.fromkeys(before, 0), before)) == home

        cluster.kill(1)
        write(own, topic)
        away = counts(cluster, topic)
        assert sum(added(before, away).values()) == ROWS
        assert len(added(before, away)) > len(home)

        cluster.start(1)
        if isinstance(cluster, TestBroker):
            for partition in home:
                cluster.move_leader(topic, partition, 1)
        else:
            cluster.await_in_sync(topic)
        eventually(lambda: led_from_rack_a(cluster, topic) == home, "the leaders are back")

        def only_at_home():
            known = counts(cluster, topic)
            write(own, topic)
            return set(added(known, counts(cluster, topic))) == home

        eventually(only_at_home, "rows are back in the rack")
