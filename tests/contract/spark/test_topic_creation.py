"""``topicCreation`` never and create against TestBroker: what is looked up and created, when, and the errors."""

import pickle
import re

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from pyspark import SparkFiles
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.errors import KafkaError, TopicCreationError
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.producer.task_output import TaskMeter
from spark_kafka_sink.schemas.registry.cache import application_file
from spark_kafka_sink.spark import topic_creation
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.pipeline import Pipeline
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.sink_write import KafkaBatchWriter, KafkaStreamWriter
from spark_kafka_sink.spark.write import write_rows
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.faults import KEPT
from tests.support.waiting import DEADLINE_S

SCHEMA = StructType([StructField("value", StringType())])
BY_ROW = RowLayout(value=0, topic=1)
EXACTLY_ONCE = {"deliveryguarantee": "exactly-once", "txnappid": "a", "txnversion": "1"}
PATIENT = {"kafka.max.block.ms": "3600000"}
"""Longer than a test may take: what fails at once must not wait for it."""


@pytest.fixture
def broker(monkeypatch, tmp_path):
    monkeypatch.setattr(topic_creation, "_known", {})  # as in a new process
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))  # and application
    with TestBroker(config={"auto.create.topics.enable": True, "num.partitions": 3}) as broker:
        yield broker


def options(broker, policy, topic="flights", **more):
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topiccreation": policy, **more}
    return SinkOptions.parse(given if topic is None else {**given, "topic": topic})


def plan(asked, writer=KafkaBatchWriter):
    pickle.dumps(writer(RowLayout.of(SCHEMA, asked.topic, None), asked))


def rows(*topics):
    return iter([pa.record_batch({"value": ["v"] * len(topics), "topic": [*topics]})])


def librdkafkas_view(broker, topic):
    """Number of partitions and cleanup.policy."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    return len(admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions), configs["cleanup.policy"].value


@pytest.mark.parametrize("writer", [KafkaBatchWriter, KafkaStreamWriter])
def test_never_fails_on_the_driver_and_names_what_may_be_meant(broker, writer):
    broker.create_topic("flights")
    broker.create_topic("invoices")
    with pytest.raises(TopicCreationError) as raised:
        plan(options(broker, "never", "flihgts", **PATIENT), writer)
    assert str(raised.value) == (
        "There is no such topic, and topicCreation is never: flihgts (did you mean flights?). Create it, or set "
        "topicCreation=create."
    )
    assert {*broker.topics} == {"flights", "invoices"}


def test_a_topic_that_appears_a_moment_later_is_there(broker):
    broker.create_topic("flights")
    broker.faults.answer("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", topic="flights")
    plan(options(broker, "never"))


def test_by_default_planning_looks_up_no_topic(broker):
    plan(options(broker, "broker", "missing"))
    assert not broker.requests.of("Metadata")


def test_an_existing_topic_is_looked_up_once_per_query_and_not_changed(broker):
    broker.create_topic("flights", partitions=2)
    asked = options(broker, "create", **{"topic.creation.default.partitions": "7"})
    plan(asked, KafkaStreamWriter)
    once = len(broker.requests)
    plan(asked, KafkaStreamWriter)
    assert len(broker.requests) == once
    assert not broker.requests.of("CreateTopics")
    assert librdkafkas_view(broker, "flights") == (2, "delete")


SETTINGS = {"topic.creation.default.partitions": "5", "topic.creation.default.cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("given", "created", "client"),
    [({}, (3, "delete"), "adminclient-"), ({**SETTINGS, "kafka.client.id": "nightly"}, (5, "compact"), "nightly")],
    ids=["the brokers' defaults", "with settings"],
)
def test_create_creates_the_topic_with_its_settings_and_a_client_id(broker, given, created, client):
    plan(options(broker, "create", **given))
    assert broker.requests.of("CreateTopics")
    assert all(seen.client_id.startswith(client) for seen in broker.requests)
    assert librdkafkas_view(broker, "flights") == created


def test_another_creator_may_be_first(broker):
    broker.faults.run("CreateTopics", lambda: broker_creates(broker))
    plan(options(broker, "create", **{"topic.creation.default.partitions": "5"}))
    assert librdkafkas_view(broker, "flights") == (2, "delete")


def broker_creates(broker):
    broker._started.state.cluster.create_topic("flights", 2, 1, {})  # on the broker's own thread


def test_a_created_topic_is_waited_for_until_brokers_have_it(broker):
    broker.faults.answer("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", topic="flights", times=4)
    plan(options(broker, "create"))
    assert len(broker.requests.of("CreateTopics")) == 1


def test_a_created_topic_that_no_broker_gets_to_know_is_an_error_in_time(broker):
    broker.faults.answer("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", topic="flights", times=KEPT)
    with pytest.raises(TopicCreationError, match="flights was created, but did not appear in the brokers' metadata"):
        plan(options(broker, "create", **{"kafka.max.block.ms": "700"}))


def test_a_refused_creation_names_the_right(broker):
    broker.faults.answer("CreateTopics", "TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(TopicCreationError) as raised:
        plan(options(broker, "create"))
    assert str(raised.value) == (
        "topicCreation=create: topic flights cannot be created: CreateTopics of flights: "
        "TOPIC_AUTHORIZATION_FAILED: the principal needs CREATE on the topic or the cluster."
    )


def test_a_setting_that_brokers_do_not_know_is_in_the_error(broker):
    with pytest.raises(TopicCreationError, match=r"cannot be created: .*retention\.sm"):
        plan(options(broker, "create", **{"topic.creation.default.retention.sm": "1"}))


def test_a_broker_with_zookeeper_sends_the_client_to_its_controller(broker):
    broker.faults.answer("CreateTopics", "NOT_CONTROLLER")
    plan(options(broker, "create"))
    assert "flights" in broker.topics


def test_without_the_right_to_see_the_topic_the_error_says_so(broker):
    broker.faults.answer("Metadata", "TOPIC_AUTHORIZATION_FAILED", topic="flights")
    with pytest.raises(TopicCreationError, match="never: topic flights could not be looked up: .*DESCRIBE"):
        plan(options(broker, "never"))


def test_without_a_broker_planning_ends_after_max_block_ms():
    asked = SinkOptions.parse(
        {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "topiccreation": "never", "kafka.max.block.ms": "300",
         "drivercheck": "false"}
    )  # fmt: skip
    with pytest.raises(TopicCreationError, match="t could not be looked up: No broker could be reached") as raised:
        plan(asked)
    assert any("spark-kafka-sink check" in note for note in raised.value.__notes__)


@pytest.mark.parametrize("option", ["deadlettertopic", "receiptstopic"])
def test_incident_a_topic_for_dead_letters_was_missing_until_the_first_one(broker, option):
    given = {**EXACTLY_ONCE, option: "gone", "topic": "t"}
    kafka = {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.allow.auto.create.topics": "false"}
    with pytest.raises(
        TopicCreationError, match="There is no such topic for dead letters or receipts: gone. Create it."
    ):
        plan(SinkOptions.parse(given | kafka))
    broker.create_topic("gone")
    plan(SinkOptions.parse(given | kafka))


@pytest.mark.parametrize("guarantee", [{}, EXACTLY_ONCE], ids=["at least once", "exactly once"])
def test_incident_brokers_created_a_missing_topic_for_dead_letters_with_never(broker, guarantee):
    broker.create_topic("flights")
    with pytest.raises(
        TopicCreationError, match="^There is no such topic, and topicCreation is never: dead. Create it, or set"
    ):
        plan(options(broker, "never", deadlettertopic="dead", **guarantee))
    assert {*broker.topics} == {"flights"}
    plan(options(broker, "create", deadlettertopic="dead", **SETTINGS, **guarantee))
    assert librdkafkas_view(broker, "dead") == (5, "compact")


def test_receipts_topic_is_not_concerned(broker):
    broker.create_topic("flights")
    plan(options(broker, "never", receiptstopic="receipts"))
    assert {*broker.topics} == {"flights", "receipts"}


def test_a_task_looks_up_the_topics_of_its_rows_once(broker):
    broker.create_topic("flights")
    broker.create_topic("invoices")
    asked = options(broker, "never", topic=None)
    write_rows(rows("flights", "invoices", "flights"), BY_ROW, asked)
    asked_for = len(broker.requests.of("Metadata"))
    write_rows(rows("invoices"), BY_ROW, asked)
    assert len(broker.requests.of("Metadata")) == asked_for
    assert len(broker.topic("flights").values()) == 2


QUICK = {"kafka.delivery.timeout.ms": "3000", "kafka.request.timeout.ms": "2900"}


def job(asked):
    return KafkaBatchWriter(RowLayout(value=0) if asked.topic else BY_ROW, asked)


def write_one(asked):
    """An attempt of a task, as Spark runs it."""
    columns = {"value": ["v"]} if asked.topic else {"value": ["v"], "topic": ["flights"]}
    return job(asked).write(iter([pa.record_batch(columns)]))


def test_a_topic_that_was_deleted_was_never_created_again_by_a_worker_that_had_seen_it(broker):
    """The failed task forgets the topic; the next one creates it."""
    asked = options(broker, "create", topic=None, **QUICK)
    write_one(asked)
    broker.delete_topic("flights")
    with pytest.raises(KafkaError, match="flights"):
        write_one(asked)
    write_one(asked)
    assert broker.topic("flights").values() == [b"v"]


def test_incident_a_topic_deleted_between_micro_batches_was_known_to_the_process_that_plans(broker, monkeypatch):
    """Another one learns of the failure."""
    asked = options(broker, "create", **QUICK)
    plan(asked, KafkaStreamWriter)
    write_one(asked)
    broker.delete_topic("flights")
    plan(asked, KafkaStreamWriter)
    application_file.cache_clear()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(topic_creation, "_known", {})
        with pytest.raises(KafkaError, match="flights"):
            write_one(asked)
        KafkaStreamWriter(RowLayout(value=0), asked).abort([None], 3)
    plan(asked, KafkaStreamWriter)
    write_one(asked)
    assert broker.topic("flights").values() == [b"v"]


def test_incident_a_topic_deleted_between_two_batch_writes_was_not_created_again(broker, caplog):
    asked = options(broker, "create", **QUICK)
    plan(asked)
    write_one(asked)
    broker.delete_topic("flights")
    application_file.cache_clear()  # the process that planned has ended
    pickle.dumps(again := job(asked))
    pickle.dumps(again)
    write_one(asked)
    assert broker.topic("flights").values() == [b"v"]
    announced = [each for each in caplog.records if each.name == "spark_kafka_sink" and each.levelname == "WARNING"]
    assert [each.getMessage() for each in announced] == [
        "topic flights was created again (topicCreation=create) after a deletion"
    ]


def test_the_tasks_of_a_write_to_one_topic_leave_it_to_the_driver(broker, monkeypatch):
    plan(asked := options(broker, "create"))
    looked_up = len(broker.requests.of("CreateTopics"))
    monkeypatch.setattr(topic_creation, "_known", {})
    write_one(asked)
    assert len(broker.requests.of("CreateTopics")) == looked_up == 1


def test_a_process_relies_on_what_it_has_seen_until_metadata_max_age_ms(broker):
    asked = options(broker, "create", receiptstopic="receipts", **{"kafka.metadata.max.age.ms": "0"})
    for _ in range(2):
        plan(asked)
        broker.delete_topic("flights")
        broker.delete_topic("receipts")
    plan(asked)
    assert {*broker.topics} == {"flights", "receipts"}


def test_a_task_with_a_row_for_a_missing_topic_fails_at_once(broker):
    broker.create_topic("flights")
    with pytest.raises(TopicCreationError, match=r"topicCreation is never: fligths \(did you mean flights\?\)"):
        write_rows(rows("flights", "fligths"), BY_ROW, options(broker, "never", topic=None, **PATIENT))
    assert {*broker.topics} == {"flights"}


def test_a_task_creates_the_topics_of_its_rows(broker):
    asked = options(broker, "create", topic=None, **{"topic.creation.default.partitions": "2"})
    write_rows(rows("flights", "invoices"), BY_ROW, asked)
    assert [librdkafkas_view(broker, name)[0] for name in ("flights", "invoices")] == [2, 2]
    assert len(broker.topic("invoices").values()) == 1


def test_incident_a_request_for_each_of_many_topics_was_too_late_for_the_last_ones(broker):
    topics = [f"t{number:03}" for number in range(120)]
    asked = options(broker, "create", topic=None, **{"topic.creation.default.partitions": "2"})
    broker.faults.answer("CreateTopics", "POLICY_VIOLATION", topic="t107")
    with pytest.raises(TopicCreationError) as raised:
        write_rows(rows(*topics), BY_ROW, asked)
    said = "topics t100, .*, t119 cannot be created: CreateTopics of t107: POLICY_VIOLATION"
    assert re.fullmatch(rf"topicCreation=create: {said}.*\. 100 other topics were created before\.", str(raised.value))
    assert len(broker.requests.of("CreateTopics")) == 3
    write_rows(rows(*topics), BY_ROW, asked)
    assert len(broker.requests.of("CreateTopics")) == 4
    assert {*broker.topics} == {*topics}


def test_many_missing_topics_are_counted(broker):
    with pytest.raises(TopicCreationError, match=r"topicCreation is never: t0, t1, .* … and [0-9]+ more\. Create"):
        write_rows(rows(*(f"t{number}" for number in range(500))), BY_ROW, options(broker, "never", topic=None))


def test_the_rows_of_a_replay_that_is_only_compared_need_no_topic(broker):
    class Replay:
        writes = False
        appended = 0
        meter = TaskMeter(SystemClock())
        receipt = SendReceipt()

        def append(self, topic, columns, partitions):
            self.appended += len(columns)

    replay = Replay()
    Pipeline(options(broker, "never", topic=None), replay, SystemClock()).write(rows("gone", "gone"), BY_ROW)
    assert (replay.appended, len(broker.requests)) == (2, 0)


def test_incident_topics_were_known_without_a_bound(broker, monkeypatch):
    monkeypatch.setattr(topic_creation, "_MAX_CONFIGS", 2)
    broker.create_topic("flights")
    for client in "abc":
        write_rows(rows("flights"), BY_ROW, options(broker, "never", topic=None, **{"kafka.client.id": client}))
    assert [config.client_id for config in topic_creation._known] == ["b", "c"]
