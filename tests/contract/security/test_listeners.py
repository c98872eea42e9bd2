"""The secure listeners of LocalKafka and TestBroker, by clients that share no code with ours."""

import socket
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.testing import Listener, LocalKafka
from spark_kafka_sink.testing.broker import acceptor
from spark_kafka_sink.testing.broker.stream import TlsStream
from spark_kafka_sink.testing.certificates import CertificateAuthority
from spark_kafka_sink.testing.kafka_jars import tools_version
from spark_kafka_sink.testing.kafka_security import properties_text
from tests.contract.plain_client import PlainClient
from tests.contract.scenario import name
from tests.contract.security.clusters import on_both
from tests.contract.security.librdkafka import connects, consume, first_error, is_silent, produce
from tests.support.waiting import DEADLINE_S


def test_kafka_s_own_tools_take_the_options(secure_kafka, tmp_path):
    topic = name("tools")
    secure_kafka.create_topic(topic)
    for listener in ("MUTUAL", "SASL_TLS"):
        options = secure_kafka.client_options(listener)
        config = tmp_path / "client.properties"
        config.write_text(properties_text(options))
        arguments = ["--bootstrap-server", options["bootstrap.servers"], "--command-config", str(config), "--list"]
        version = tools_version(secure_kafka.version)
        assert topic in secure_kafka._run_tool("org.apache.kafka.tools.TopicCommand", *arguments, version=version)


# -- TestBroker's login, request by request ---------------------------------------------------------------------------


def test_nothing_but_the_login_is_handled_before_it(secure_broker):
    for api, version, fields in [
        ("Metadata", 9, {"topics": []}),
        ("SaslAuthenticate", 2, {"auth_bytes": b"\0client\0client-secret"}),
    ]:
        with PlainClient(secure_broker.servers("SASL")) as client:
            client.ask("ApiVersions", 3, client_software_name="test", client_software_version="1")
            client.tell(api, version, **fields)
            assert client.is_hung_up()
    assert [each.error for each in secure_broker.authentications] == [
        "Metadata before the login", "SaslAuthenticate before the login",
    ]  # fmt: skip


def login_steps(client):
    named = client.ask("SaslHandshake", 1, mechanism="PLAIN")
    let_in = client.ask("SaslAuthenticate", 2, auth_bytes=b"\0client\0client-secret")
    again = client.ask("SaslHandshake", 1, mechanism="PLAIN")
    metadata = client.ask("Metadata", 9, topics=[])
    return [
        (
            "the mechanisms are named",
            (named.error_code.name, set(named.mechanisms)),
            ("none", {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}),
        ),
        (
            "the password is taken",
            (let_in.error_code.name, let_in.error_message, let_in.auth_bytes),
            ("none", "", b""),
        ),
        ("a second login is refused", again.error_code.name, "illegal_sasl_state"),
        ("brokers are those of the listener", {f"127.0.0.1:{each.port}" for each in metadata.brokers}, set()),
    ]


def refused_steps(client):
    client.ask("SaslHandshake", 1, mechanism="PLAIN")
    refused = client.ask("SaslAuthenticate", 2, auth_bytes=b"\0client\0wrong")
    told = (refused.error_code.name, refused.error_message)
    return [
        (
            "the password is refused",
            told,
            ("sasl_authentication_failed", "Authentication failed: Invalid username or password"),
        ),
        ("the broker hangs up", client.is_hung_up(), True),
    ]


def mechanism_steps(client):
    refused = client.ask("SaslHandshake", 1, mechanism="GSSAPI")
    return [
        (
            "the mechanism is refused",
            (refused.error_code.name, set(refused.mechanisms)),
            ("unsupported_sasl_mechanism", {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}),
        ),
        ("the broker hangs up", client.is_hung_up(), True),
    ]


@on_both
@pytest.mark.parametrize("steps", [login_steps, refused_steps, mechanism_steps], ids=lambda steps: steps.__name__)
def test_both_respond_alike_to_logins(secure_cluster, steps):
    servers = secure_cluster.servers("SASL")
    with PlainClient(servers) as client:
        for step, answer, expected in steps(client):
            assert (step, answer) == (step, expected or set(servers.split(",")))


@on_both
def test_a_listener_without_sasl_refuses_a_login(secure_cluster):
    with PlainClient(secure_cluster.bootstrap_servers) as client:
        assert client.ask("SaslHandshake", 1, mechanism="PLAIN").error_code.name == "illegal_sasl_state"
        assert client.ask("SaslAuthenticate", 2, auth_bytes=b"").error_code.name == "illegal_sasl_state"


def test_a_scripted_refusal_ends_the_login(secure_broker):
    secure_broker.faults.answer("SaslAuthenticate", "SASL_AUTHENTICATION_FAILED")
    with PlainClient(secure_broker.servers("SASL")) as client:
        client.ask("SaslHandshake", 1, mechanism="PLAIN")
        refused = client.ask("SaslAuthenticate", 2, auth_bytes=b"\0client\0client-secret")
        assert refused.error_code.name == "sasl_authentication_failed"
        assert client.is_hung_up()
    (attempt,) = secure_broker.authentications.failed()
    assert attempt.step == "PLAIN"


def test_a_broker_with_a_handshake_under_way_closes_at_once(secure_broker, monkeypatch):
    """And not after the time that a handshake may take."""
    begun, shake_hands = threading.Event(), TlsStream.shake_hands

    async def shaking(stream):
        begun.set()
        await shake_hands(stream)

    monkeypatch.setattr(TlsStream, "shake_hands", shaking)
    monkeypatch.setattr(acceptor, "_HANDSHAKE_TIMEOUT_S", 3_600.0)
    host, port = secure_broker.servers("TLS").split(",")[0].split(":")
    with socket.create_connection((host, int(port)), DEADLINE_S) as silent:
        assert begun.wait(DEADLINE_S)
        secure_broker.close()
        assert silent.recv(1) == b""


def test_a_paused_node_answers_no_handshake(secure_broker):
    secure_broker.pause(1)
    secure_broker.pause(2)
    assert is_silent(secure_broker.client_options("TLS"), 0.5)
    secure_broker.resume(1)
    secure_broker.resume(2)
    assert connects(secure_broker.client_options("TLS"))


def test_a_node_that_is_started_again_has_its_listeners_on_their_old_ports(secure_broker):
    secure_broker.kill(1)
    secure_broker.start(1)
    secure_broker.kill(2)
    assert connects(secure_broker.client_options("SASL_TLS"))


def test_a_user_that_there_is_not_is_named(secure_broker):
    with pytest.raises(ConfigError, match="user 'nobody' is none of client, "):
        secure_broker.client_options("SASL", "nobody")


@pytest.mark.jvm
def test_a_key_store_in_the_properties_is_that_of_the_tls_listeners(tmp_path):
    """PKCS12 with a password: Kafka refuses to start where a PEM store of ours gets the password."""
    authority, password = CertificateAuthority(), b"of-the-store"
    own = authority.issue("own-broker")
    chain = x509.load_pem_x509_certificates(own.chain.encode())
    store = pkcs12.serialize_key_and_certificates(
        b"broker", load_pem_private_key(own.key.encode(), None), chain[0], chain[1:], BestAvailableEncryption(password)
    )
    (tmp_path / "own.p12").write_bytes(store)
    properties = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(tmp_path / "own.p12"),
        "ssl.keystore.password": password.decode(),
    }
    with LocalKafka(listeners={"TLS": Listener("SSL")}, properties=properties) as kafka:
        kafka.create_topic("own")
        options = kafka.client_options("TLS")
        assert "certificate verify failed" in first_error(options)
        options["ssl.truststore.certificates"] = authority.certificate
        produce(options, "own", [b"1"])
        assert consume(options, "own", 1) == [b"1"]
