"""A client with the wrong password, or whose password has changed: every kind of call ends with one clear error. And
logins whose password a config provider has: read at each login, in the process that logs in."""

import io
import pickle
import time
from contextlib import closing

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import KafkaError, SaslAuthenticationError
from spark_kafka_sink.exactly_once.plan import plan_write
from spark_kafka_sink.exactly_once.session import CommitSettings
from spark_kafka_sink.kafka08.sync_producer import SyncProducer
from spark_kafka_sink.network.rpc import Rpc
from spark_kafka_sink.testing import Listener, TestBroker
from spark_kafka_sink.testing.certificates import CertificateAuthority
from spark_kafka_sink.testing.listener import login
from spark_kafka_sink.tools.cli import main
from tests.support.waiting import DEADLINE_S

# A call that made a second attempt at a broker would not end before the test does.
ONE_ATTEMPT = {"reconnect.backoff.ms": "3600000", "reconnect.backoff.max.ms": "3600000", "max.block.ms": "7200000"}
SETTLED_S = 0.5
IDLE_MS = 2_000


@pytest.fixture
def users():
    return {"client": "client-secret"}


@pytest.fixture
def broker(users):
    with TestBroker(nodes=2, listeners={"SASL": Listener("SASL_PLAINTEXT", users=users)}) as broker:
        broker.create_topic("t", partitions=2)
        yield broker


@pytest.fixture
def refused(broker):
    """Options of a client with the wrong password."""
    wrong = {"sasl.jaas.config": login("SCRAM-SHA-512", "client", "hunter2")}
    return {**broker.client_options("SASL"), **ONE_ATTEMPT, **wrong}


def send(options):
    with KafkaProducer(options) as producer:
        producer.send(ProducerRecord("t", b"v")).result()


def partitions_for(options):
    with KafkaProducer(options) as producer:
        producer.partitions_for("t")


def init_transactions(options):
    with KafkaProducer({**options, "transactional.id": "x"}) as producer:
        producer.init_transactions()


def send_and_wait(options):
    with SyncProducer(options) as producer:
        producer.send(ProducerRecord("t", b"v"))


def plan(options):
    plan_write(CommitSettings(ProducerConfig.parse(options), "name", "ledger"))


def await_brokers(options):
    with closing(Rpc(ProducerConfig.parse(options), SystemClock())) as rpc:
        rpc.await_brokers(rpc.now() + 7_200_000)


@pytest.mark.parametrize("call", [send, partitions_for, init_transactions, send_and_wait, plan, await_brokers])
def test_every_call_ends_at_once_after_one_attempt_per_broker(broker, refused, call):
    with pytest.raises(KafkaError) as raised:
        call(refused)
    assert isinstance(raised.value, SaslAuthenticationError) or isinstance(
        raised.value.__cause__, SaslAuthenticationError
    )
    assert "refused the login with SCRAM-SHA-512" in str(raised.value)
    assert "sasl.jaas.config" in str(raised.value)
    assert "hunter2" not in str(raised.value)
    time.sleep(SETTLED_S)
    nodes = [attempt.node for attempt in broker.authentications.failed()]
    assert len(nodes) == len(set(nodes)) >= 1


@pytest.mark.parametrize("call", [send, partitions_for, init_transactions, send_and_wait, plan, await_brokers])
def test_incident_init_transactions_waited_a_minute_at_a_tls_port(call):
    with TestBroker(nodes=2, listeners={"TLS": "SSL"}) as broker:
        broker.create_topic("t", partitions=2)
        servers = broker.client_options("TLS")["bootstrap.servers"]
        options = {"bootstrap.servers": servers, "max.block.ms": "7200000", "delivery.timeout.ms": "7200000"}
        with pytest.raises(KafkaError, match=r"responded like a TLS server: set security\.protocol=SSL or SASL_SSL"):
            call(options)


def test_a_port_with_tls_among_the_bootstrap_servers_ends_no_call(broker):
    with TestBroker(listeners={"TLS": "SSL"}) as other:
        servers = f"{other.client_options('TLS')['bootstrap.servers']},{broker.bootstrap_servers}"
        for call in (send, init_transactions, plan):
            call({"bootstrap.servers": servers})


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        (["console-producer", "--topic", "t"], "--producer-property"),
        (["transactions", "list", "--ledger-topic", "ledger"], "--command-property"),
    ],
)
def test_commands_end_with_the_error_and_a_status(broker, refused, command, flag, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"v\n")))
    given = {name: value for name, value in refused.items() if name != "bootstrap.servers"}
    options = [f"{flag}={name}={value}" for name, value in given.items()]
    servers = refused["bootstrap.servers"]
    status = main.main([*command, "--bootstrap-server", servers, *options])
    assert status != 0
    said = capsys.readouterr().err
    assert "refused the login" in said
    assert "hunter2" not in said


def test_records_of_a_running_producer_fail_when_the_password_has_changed(broker, users):
    options = {**broker.client_options("SASL"), **ONE_ATTEMPT, "connections.max.idle.ms": IDLE_MS}
    with KafkaProducer(options) as producer:
        for partition in (0, 1):
            producer.send(ProducerRecord("t", b"v", partition=partition)).result(DEADLINE_S)
        broker.authentications.clear()
        users["client"] = "changed"
        time.sleep(1.5 * IDLE_MS / 1000)  # connections are closed as idle
        futures = [producer.send(ProducerRecord("t", b"v", partition=partition)) for partition in (0, 1)]
        producer.flush()
        for future in futures:
            with pytest.raises(SaslAuthenticationError):
                future.result(0)
        time.sleep(SETTLED_S)
        nodes = [attempt.node for attempt in broker.authentications.failed()]
        assert len(nodes) == len(set(nodes)) == 2


MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
CREDENTIALS = ("sasl.jaas.config", "ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.truststore.certificates")


def write_to(config, topic, value):
    with KafkaProducer(config) as producer:
        producer.send(ProducerRecord(topic, value, partition=0)).result(DEADLINE_S)


def with_placeholders(options, folder):
    """``options`` with each credential as a whole in a file of ``folder``."""
    moved = {option: value for option, value in options.items() if option in CREDENTIALS}
    for option, value in moved.items():
        (folder / option).write_text(value)
    return {**options, **{option: f"${{dir:{folder}:{option}}}" for option in moved}}


def login_of_file(broker, file):
    placeholder = f"${{file:{file}:password}}"
    jaas = f'{MODULE} required username="client" password="{placeholder}";'
    return ProducerConfig.parse({
        **broker.client_options("SASL"), "sasl.jaas.config": jaas, "max.block.ms": 20_000,
    })  # fmt: skip


def test_each_login_reads_the_password_anew_from_the_pickled_placeholder(secure_broker, tmp_path):
    secure_broker.create_topic("t")
    file = tmp_path / "kafka.properties"
    file.write_text("password=wrong-secret")
    pickled = pickle.dumps(login_of_file(secure_broker, file))
    with pytest.raises(SaslAuthenticationError, match="refused the login"):
        write_to(pickle.loads(pickled), "t", b"1")
    file.write_text("password=client-secret")
    write_to(pickle.loads(pickled), "t", b"1")
    assert b"client-secret" not in pickled


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, r"kafka\.properties cannot be read: No such file or directory"),
        ("user=client", r"kafka\.properties:password}, for which there is no value"),
        ('password=hunter2" x', r"has no '=' after the key of option number 3.*values of its placeholders: a quote"),
        ("password=hunter2\\u0000", r"has a NUL character"),
    ],
)
def test_a_password_that_cannot_be_had_is_one_clear_error_at_the_login(secure_broker, tmp_path, content, said):
    secure_broker.create_topic("t")
    file = tmp_path / "kafka.properties"
    config = login_of_file(secure_broker, file)
    if content is not None:
        file.write_text(content)
    with pytest.raises(SaslAuthenticationError, match=said) as raised:
        write_to(config, "t", b"1")
    assert "hunter2" not in str(raised.value)
    assert secure_broker.authentications.failed() == []


def test_another_certificate_authority_in_the_provider_is_not_trusted(secure_broker, tmp_path):
    options = with_placeholders(secure_broker.client_options("TLS"), tmp_path)
    (tmp_path / "ssl.truststore.certificates").write_text(CertificateAuthority().certificate)
    with pytest.raises(Exception, match="certificate of .* is refused"):
        write_to({**options, "max.block.ms": "20000"}, "t", b"1")
