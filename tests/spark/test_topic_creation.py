"""topicCreation never and create on a real Kafka that would create topics by itself."""

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from spark_kafka_sink.testing import LocalKafka
from tests.contract.scenario import name
from tests.contract.security.librdkafka import consume
from tests.spark.writes import one_row, save, stream, streaming
from tests.support.waiting import DEADLINE_S

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def kafka():
    with LocalKafka(properties={"auto.create.topics.enable": "true", "num.partitions": "2"}) as kafka:
        yield kafka


@pytest.fixture
def admin(kafka):
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers})


def options(kafka, policy, topic=None, **more):
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topicCreation": policy, **more}
    return given if topic is None else {**given, "topic": topic}


def partitions(admin, topic):
    return len(admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions)


def test_create_creates_the_topic_with_its_settings_once(spark, kafka, admin, tmp_path):
    topic = name("created")
    settings = {
        "topic.creation.default.partitions": 5,
        "topic.creation.default.replication.factor": 1,
        "topic.creation.default.retention.ms": 123456,
    }
    query = options(kafka, "create", topic, **settings, deliveryGuarantee="exactly-once", transactionalIdPrefix=topic)
    first, second = (one_row(spark, f"'{value}' value", "0 partition") for value in "vw")
    stream(streaming(first, tmp_path / "in"), query, tmp_path / "checkpoint")
    assert partitions(admin, topic) == 5
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    assert admin.describe_configs([resource])[resource].result(DEADLINE_S)["retention.ms"].value == "123456"
    save(second, options(kafka, "create", topic, **{"topic.creation.default.partitions": 9}))
    assert partitions(admin, topic) == 5
    assert sorted(consume({"bootstrap.servers": kafka.bootstrap_servers}, topic, 2)) == [b"v", b"w"]


def test_incident_a_topic_deleted_between_two_batch_writes_was_not_created_again(spark, kafka, admin):
    """The process that plans had seen it, and another one learns of failures."""
    topic = name("deleted")
    save(one_row(spark, "'v' value", "0 partition"), options(kafka, "create", topic))
    admin.delete_topics([topic])[topic].result(DEADLINE_S)
    save(one_row(spark, "'w' value", "0 partition"), options(kafka, "create", topic))
    assert consume({"bootstrap.servers": kafka.bootstrap_servers}, topic, 1) == [b"w"]
