"""What errors of a write get on their way to Spark: its names of options, the step that failed, what helps."""

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.errors import BrokerError, ConfigError, KafkaError, RecordTooLargeError, SaslAuthenticationError
from spark_kafka_sink.exactly_once.errors import PlanningError
from spark_kafka_sink.exactly_once.plan import plan_write
from spark_kafka_sink.exactly_once.session import CommitSettings
from spark_kafka_sink.producer.record import ProducerRecord
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.sink_write import with_hints
from spark_kafka_sink.testing import Listener, TestBroker
from spark_kafka_sink.testing.listener import login, with_prefix
from tests.support.peers import nobody


def options(given, **more):
    return SinkOptions.parse({**with_prefix(given), "topic": "t", **more})


def note_of(kind, write, sink):
    with pytest.raises(kind) as raised, with_hints(sink):
        write(sink)
    (note,) = raised.value.__notes__
    return note


def send(sink):
    with KafkaProducer(sink.producer) as producer:
        producer.partitions_for("t")


def plan(sink):
    plan_write(CommitSettings(sink.producer, "name", "ledger"))


@pytest.mark.parametrize(("kind", "write"), [(KafkaError, send), (PlanningError, plan)])
def test_no_broker_at_the_address_is_the_step_tcp(kind, write):
    with nobody() as server:
        note = note_of(kind, write, options({"bootstrap.servers": server, "max.block.ms": "500"}))
    assert note.startswith(
        f"The connection to {server} failed at step TCP; see kafka.bootstrap.servers: is the broker running"
    )
    assert "in between? To try each step" in note
    assert note.endswith(f"spark-kafka-sink check --bootstrap-server {server} --topic t")


@pytest.mark.parametrize(("kind", "write"), [(SaslAuthenticationError, send), (PlanningError, plan)])
def test_a_wrong_password_is_the_step_sasl_after_one_attempt(kind, write):
    with TestBroker(listeners={"SASL": Listener("SASL_PLAINTEXT")}) as broker:
        wrong = broker.client_options("SASL") | {"sasl.jaas.config": login("SCRAM-SHA-512", "client", "wr0ng")}
        note = note_of(kind, write, options(wrong))
        assert len(broker.authentications) == 1
    assert "failed at step SASL. To try each step from this machine: spark-kafka-sink check --bootstrap-server" in note
    assert "--command-config client.properties" in note
    assert "wr0ng" not in note


CREATION = "With topicCreation=create, the sink creates missing topics."


@pytest.mark.parametrize(
    ("missing", "more", "notes"),
    [
        ("t", {}, [CREATION]),
        ("ordres", {}, [f"Did you mean orders? {CREATION}"]),
        ("ordres", {"receiptsTopic": "ordres"}, ["Did you mean orders?"]),
        ("ordres", {"deadLetterTopic": "ordres"}, ["Did you mean orders?"]),
        ("ordres", {"topicCreation": "create"}, ["Did you mean orders?"]),
        ("t", {"topicCreation": "create"}, []),
    ],
    ids=["no name like it", "a name like it", "of receipts", "of dead letters", "the sink creates it", "nothing helps"],
)
def test_a_missing_topic_is_told_with_names_like_it_and_the_option(missing, more, notes):
    with TestBroker(config={"auto.create.topics.enable": False}) as broker:
        broker.create_topic("orders")
        sink = options({"bootstrap.servers": broker.bootstrap_servers, "max.block.ms": "300"}, **more)
        with pytest.raises(KafkaError) as raised, with_hints(sink), KafkaProducer(sink.producer) as producer:
            producer.partitions_for(missing)
        assert {*broker.topics} == {"orders"}
    assert str(raised.value).endswith(
        f"The brokers do not have topic {missing} and did not create it (see their auto.create.topics.enable). Create "
        "it, or correct its name."
    )
    assert getattr(raised.value, "__notes__", []) == notes


def test_a_partition_that_a_topic_lacks_has_no_note_on_topics():
    with TestBroker() as broker:
        broker.create_topic("t")
        sink = options({"bootstrap.servers": broker.bootstrap_servers, "max.block.ms": "300"})
        missing = pytest.raises(KafkaError, match="Partition 7 of topic t")
        with missing as raised, with_hints(sink), KafkaProducer(sink.producer) as producer:
            producer.send(ProducerRecord("t", b"v", partition=7)).result()
    (note,) = raised.value.__notes__
    assert note.startswith("Correct the row's partition, or add partitions to topic t, or set deadLetterTopic")


@pytest.mark.parametrize(
    ("letters", "notes"),
    [
        ({}, ["or set deadLetterTopic, so that such rows become dead letters."]),
        ({"deadLetterTopic": "dead", "deadLetterOn": "encode"},
         ["or add record-too-large to deadLetterOn, so that such rows become dead letters."]),
        ({"deadLetterTopic": "dead"}, []),
    ],
    ids=["without dead letters", "other kinds", "with them"],
)  # fmt: skip
@pytest.mark.parametrize(
    "error",
    [
        lambda: RecordTooLargeError("larger than max.request.size"),
        lambda: BrokerError(ErrorCode.message_too_large, "MESSAGE_TOO_LARGE", "too large"),
    ],
    ids=["here", "by the broker"],
)
def test_a_row_that_is_too_large_is_told_where_it_can_go(error, letters, notes):
    sink = options({"bootstrap.servers": "a:1"}, **letters)
    with pytest.raises(KafkaError) as raised, with_hints(sink):
        raise error()
    found = getattr(raised.value, "__notes__", [])
    assert all(note.endswith(end) for note, end in zip(found, notes, strict=True))


def test_what_a_broker_refuses_is_not_told_to_raise_the_producers_limit():
    sink = options({"bootstrap.servers": "a:1"})
    with pytest.raises(KafkaError) as raised, with_hints(sink):
        raise BrokerError(ErrorCode.message_too_large, "MESSAGE_TOO_LARGE", "too large")
    (note,) = raised.value.__notes__
    assert note.startswith("Raise the topic's max.message.bytes, or set deadLetterTopic")


def test_a_fault_that_is_found_while_connecting_names_the_options_of_a_write():
    """Incident: ``ssl.truststore.location /nowhere/ca.pem cannot be read``, which is no option of a Spark write."""
    sink = options({"bootstrap.servers": "a:1"})
    with pytest.raises(ConfigError) as raised, with_hints(sink):
        raise ConfigError(["ssl.truststore.location /nowhere cannot be read.", "kafka.acks is 0."])
    faults = ("kafka.ssl.truststore.location /nowhere cannot be read.", "kafka.acks is 0.")
    assert raised.value.faults == faults
    assert str(raised.value) == f"- {faults[0]}\n- {faults[1]}"
