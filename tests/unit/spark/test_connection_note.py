"""An error of a write that comes from a connection attempt names the step, the option and the command to check it."""

import socket

import pytest

from spark_kafka_sink.errors import KafkaError, SaslAuthenticationError
from spark_kafka_sink.exactly_once.errors import PlanningError
from spark_kafka_sink.exactly_once.plan import plan_write
from spark_kafka_sink.exactly_once.session import CommitSettings
from spark_kafka_sink.producer import KafkaProducer
from spark_kafka_sink.spark.error_notes import connection_explained
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.testing import Listener, TestBroker
from spark_kafka_sink.testing.listener import login, with_prefix


def options(given, **more):
    return SinkOptions.parse({**with_prefix(given), "topic": "t", **more})


def note_of(kind, write, sink):
    with pytest.raises(kind) as raised, connection_explained(sink):
        write(sink)
    (note,) = raised.value.__notes__
    return note


def send(sink):
    with KafkaProducer(sink.producer) as producer:
        producer.partitions_for("t")


def plan(sink):
    plan_write(CommitSettings(sink.producer, "name", "name", "ledger"))


@pytest.mark.parametrize(("kind", "write"), [(KafkaError, send), (PlanningError, plan)])
def test_no_broker_at_the_address_is_the_step_tcp(kind, write):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{unused.getsockname()[1]}"
    note = note_of(kind, write, options({"bootstrap.servers": server, "max.block.ms": "500"}))
    assert note.startswith(
        f"The connection to {server} failed at step TCP; see bootstrap.servers: is the broker running"
    )
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


def test_an_error_of_a_connection_that_works_has_no_note():
    with TestBroker(config={"auto.create.topics.enable": False}) as broker:
        sink = options({"bootstrap.servers": broker.bootstrap_servers, "max.block.ms": "300"})
        with pytest.raises(KafkaError, match="not present in metadata") as raised, connection_explained(sink):
            send(sink)
    assert not hasattr(raised.value, "__notes__")
