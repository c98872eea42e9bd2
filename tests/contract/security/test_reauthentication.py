"""Sessions that end (``connections.max.reauth.ms``, KIP-368): connections in use authenticate again before."""

import time
from contextlib import ExitStack, closing
from types import MappingProxyType

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import SaslAuthenticationError
from spark_kafka_sink.network import client as network_client
from spark_kafka_sink.testing import Listener, TestBroker
from spark_kafka_sink.testing.listener import login
from tests.contract.scenario import name
from tests.contract.security.clusters import SESSION_MECHANISMS, SESSION_MS, on_both
from tests.contract.security.librdkafka import consume
from tests.support.waiting import DEADLINE_S, eventually

LISTENER = "SESSIONS"
REAUTHENTICATIONS = "successful-reauthentication-total"


@pytest.fixture
def users():
    return {"client": "client-secret", "other": "other-secret"}


@pytest.fixture
def broker(users):
    listener = Listener("SASL_SSL", users=users, mechanisms=SESSION_MECHANISMS)
    config = {"connections.max.reauth.ms": SESSION_MS}
    with TestBroker(config=config, listeners={LISTENER: listener}) as broker:
        yield broker


@pytest.fixture
def cluster(request, secure_kafka):
    return secure_kafka or request.getfixturevalue("broker")


@pytest.fixture
def early(monkeypatch):
    """For machines that stand still for a while: the rest of the session is time to authenticate in."""
    monkeypatch.setattr(network_client, "REAUTHENTICATE_AFTER", (0.25, 0.3))


class Writer:
    """A producer of numbers to one partition, of which each must arrive once."""

    def __init__(self, cluster, mechanism, more=MappingProxyType({})):
        self.topic = name("sessions")
        cluster.create_topic(self.topic)
        self.options = {**cluster.client_options(LISTENER, mechanism=mechanism), **more}
        self.producer = KafkaProducer({**self.options, "linger.ms": "0"})
        self.written: list[bytes] = []

    def write(self):
        value = str(len(self.written)).encode()
        self.producer.send(ProducerRecord(self.topic, value, partition=0)).result(DEADLINE_S)
        self.written.append(value)

    def metric(self, of):
        return self.producer.metrics()["producer-metrics"][of]

    def close(self):
        self.producer.close(0)


def write_until(writers, metric, value):
    def reached():
        for writer in writers:
            writer.write()
        return all(writer.metric(metric) >= value for writer in writers)

    eventually(reached, f"{metric} < {value}")


@on_both
@pytest.mark.usefixtures("early")
def test_a_producer_goes_on_over_sessions(cluster):
    """Steady writes over three sessions, then a gap of more than one: on the same connections, without a retry."""
    with ExitStack() as stack:
        writers = [stack.enter_context(closing(Writer(cluster, mechanism))) for mechanism in SESSION_MECHANISMS]
        write_until(writers, REAUTHENTICATIONS, 1)
        connections = [writer.metric("connection-creation-total") for writer in writers]
        write_until(writers, REAUTHENTICATIONS, 3)
        before = [writer.metric(REAUTHENTICATIONS) for writer in writers]
        time.sleep(1.2 * SESSION_MS / 1000)
        for writer in writers:
            writer.write()
        for writer, count in zip(writers, before, strict=True):
            assert writer.metric(REAUTHENTICATIONS) > count, "an idle connection, at its next use"
        assert [writer.metric("connection-creation-total") for writer in writers] == connections
        for writer in writers:
            assert writer.metric("record-retry-total") == writer.metric("failed-reauthentication-total") == 0
            writer.producer.close()
            assert consume(writer.options, writer.topic, len(writer.written)) == writer.written


@on_both
def test_a_connection_whose_session_has_ended_is_closed(cluster, monkeypatch):
    """A client that does not authenticate again loses its connection at the end of the session, and no row."""
    monkeypatch.setattr(network_client, "REAUTHENTICATE_AFTER", (1_000, 1_000))
    with closing(Writer(cluster, SESSION_MECHANISMS[-1])) as writer:
        writer.write()
        before = writer.metric("connection-close-total")
        time.sleep(1.2 * SESSION_MS / 1000)
        writer.write()
        assert writer.metric("connection-close-total") > before
        assert writer.metric(REAUTHENTICATIONS) == 0
        assert consume(writer.options, writer.topic, 2) == [b"0", b"1"]
    if isinstance(cluster, TestBroker):
        errors = {str(attempt.error) for attempt in cluster.authentications.failed()}
        assert "Produce after the end of the session" in errors
        assert {error.partition(" ")[2] for error in errors} <= {"after the end of the session", "client hung up"}


# -- credentials that have changed ------------------------------------------------------------------------------------


def test_a_password_that_has_changed_at_the_broker_is_an_error_at_the_next_login(broker, users):
    with closing(Writer(broker, "SCRAM-SHA-512")) as writer:
        writer.write()
        users["client"] = "changed"
        with pytest.raises(SaslAuthenticationError, match=r"refused the login .*sasl\.jaas\.config"):
            write_until([writer], "failed-reauthentication-total", 1)
        assert writer.metric("failed-reauthentication-total") >= 1
        values = [record.value for record in broker.topic(writer.topic).records()]
        assert values == writer.written


@pytest.mark.usefixtures("early")
def test_a_password_changed_at_the_broker_and_in_its_file_is_used_at_the_next_login(broker, users, tmp_path):
    file = tmp_path / "kafka.properties"
    jaas = {"sasl.jaas.config": login("SCRAM-SHA-512", "client", f"${{file:{file}:p}}")}
    with closing(Writer(broker, "SCRAM-SHA-512", jaas)) as writer:
        file.write_text("p=client-secret\n")
        writer.write()
        users["client"] = "changed"
        file.write_text("p=changed\n")
        write_until([writer], REAUTHENTICATIONS, 2)
        assert writer.metric("record-retry-total") == writer.metric("failed-reauthentication-total") == 0
        assert [record.value for record in broker.topic(writer.topic).records()] == writer.written
