"""The connection check against TestBroker: each step that can fail, and what it must not do."""

import socket
from datetime import UTC, datetime

import pytest

from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import WrongProtocolError
from spark_kafka_sink.testing import Listener, TestBroker
from spark_kafka_sink.testing.broker.faults import KEPT
from spark_kafka_sink.testing.certificates import CertificateAuthority
from spark_kafka_sink.testing.listener import login
from spark_kafka_sink.tools.connection_check import CheckRequest, check
from spark_kafka_sink.tools.findings import Outcome
from tests.contract.brokers import broker_with
from tests.support.peers import nobody

LISTENERS = {
    "TLS": Listener("SSL"),
    "MUTUAL": Listener("SSL", client_auth="required"),
    "SASL": Listener("SASL_PLAINTEXT"),
    "SASL_TLS": Listener("SASL_SSL"),
    "ONLY_PLAIN": Listener("SASL_PLAINTEXT", mechanisms=("PLAIN",)),
    "ELSEWHERE": Listener("SSL", host_names=("elsewhere.example",)),
    "EXPIRED": Listener("SSL", not_after=datetime(2020, 2, 3, tzinfo=UTC)),
}
READ_ONLY = {"ApiVersions", "SaslHandshake", "SaslAuthenticate", "Metadata", "DescribeCluster", "DescribeTransactions"}
BEFORE_READY = ["DNS", "TCP", "TLS", "ApiVersions", "SASL", "versions"]
broker = broker_with(nodes=2, listeners=LISTENERS, config={"auto.create.topics.enable": True})


def checked(options, **request):
    config = ProducerConfig.parse(options)
    return list(check(CheckRequest(config, **{"ledger_topic": "ledger", **request}), SystemClock()))


def steps(findings, outcome, subject=None):
    return [each.step for each in findings if each.outcome is outcome and subject in (None, each.subject)]


def failure(findings):
    (failed,) = [each for each in findings if each.outcome is Outcome.FAILED]
    return failed.step, failed.text


def of_first(broker, listener):
    options = broker.client_options(listener)
    return options | {"bootstrap.servers": options["bootstrap.servers"].split(",")[0]}


@pytest.mark.parametrize("listener", ["TLS", "MUTUAL", "SASL", "SASL_TLS"])
def test_every_step_to_every_broker_is_told_with_its_time(broker, listener):
    broker.create_topic("t", 3)
    findings = checked(of_first(broker, listener), topic="t", transactional_id_prefix="p")
    assert steps(findings, Outcome.FAILED) == []
    left_out = {"TLS": ["SASL"], "MUTUAL": ["SASL"], "SASL": ["TLS"], "SASL_TLS": []}[listener]
    for server in broker.servers(listener).split(","):
        assert steps(findings, Outcome.OK, server) == [each for each in BEFORE_READY if each not in left_out]
    told = {each.step: each for each in findings if each.subject == broker.servers(listener).split(",")[1]}
    assert all(told[step].elapsed_ms >= 0 for step in ("DNS", "TCP", "ApiVersions"))
    if "TLS" in told:
        assert "TLSv1.3" in told["TLS"].text
        assert "for 127.0.0.1, localhost, issued by" in told["TLS"].text
        assert "valid from 2000-01-01 to 3000-01-01" in told["TLS"].text
    if "SASL" in told:
        assert told["SASL"].text == "SCRAM-SHA-512 as client"
    assert "client-secret" not in repr(findings)
    by_subject = {each.subject: each.text for each in findings if each.step == "rights" and each.outcome is Outcome.OK}
    assert by_subject == {
        "topic t": "WRITE, DESCRIBE",
        "ledgerTopic ledger": "CREATE, on the cluster",
        "transactional ids p-driver, p-0": "DESCRIBE",
    }
    (untested,) = [each for each in findings if each.outcome is Outcome.UNTESTED]
    assert untested.text == "WRITE: asking for it would fence a running query"


def test_it_writes_nothing_connects_once_to_each_address_and_names_itself_in_each_request(broker):
    findings = checked(broker.client_options("SASL_TLS"), topic="missing", transactional_id_prefix="p")
    assert failure(findings)[0] == "metadata"
    assert "there is no such topic" in failure(findings)[1]
    assert {request.api for request in broker.requests} <= READ_ONLY
    assert {request.client_id[:12] for request in broker.requests} == {"adminclient-"}
    assert broker.topics == ("__transaction_state",), "a broker creates it when it is asked for a coordinator"
    assert [each.step for each in broker.authentications] == ["TLS", "SCRAM-SHA-512"] * 2


def test_a_name_that_is_unknown_and_a_closed_port_are_told_apart():
    with nobody() as address:
        findings = checked({"bootstrap.servers": f"name.invalid:9092,{address}"})
    by_server = {each.subject: each for each in findings if each.outcome is Outcome.FAILED}
    name, closed = by_server["name.invalid:9092"], by_server[address]
    assert (name.step, closed.step) == ("DNS", "TCP")
    assert "see bootstrap.servers: can this machine resolve the host name?" in name.text
    assert "Connection refused" in closed.text
    assert "see bootstrap.servers: is the broker running" in closed.text


@pytest.mark.parametrize("accepting", ["127.0.0.1", "127.0.0.8"])
def test_each_address_of_a_name_is_tried(broker, monkeypatch, accepting):
    port, real = int(of_first(broker, "SASL")["bootstrap.servers"].rpartition(":")[2]), socket.getaddrinfo

    def found(host, *rest, flags=0, **more):
        if host != "two.example":
            return real(host, *rest, flags=flags, **more)
        if flags:
            raise socket.gaierror
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in ("127.0.0.9", accepting)]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    findings = checked(of_first(broker, "SASL") | {"bootstrap.servers": f"two.example:{port}"})
    dns, tcp = findings[:2]
    assert dns.text == f"127.0.0.9, {accepting}"
    if accepting == "127.0.0.1":
        assert steps(findings, Outcome.OK, tcp.subject) == ["DNS", "TCP", "ApiVersions", "SASL", "versions"]
    else:
        assert (tcp.outcome, tcp.step) == (Outcome.FAILED, "TCP")
        assert "Connection refused\nsee bootstrap.servers" in tcp.text


FOREIGN = CertificateAuthority().certificate
REFUSED = {
    "untrusted CA": ("TLS", {"ssl.truststore.certificates": FOREIGN}, "TLS", "ssl.truststore.location"),
    "wrong host name": ("ELSEWHERE", {}, "TLS", "for elsewhere.example, issued by"),
    "expired": ("EXPIRED", {}, "TLS", "to 2020-02-03 (expired)"),
    "no client certificate": (
        "MUTUAL", {"ssl.keystore.key": None, "ssl.keystore.certificate.chain": None}, "TLS", "ssl.keystore.location",
    ),
    "TLS expected": ("TLS", {"security.protocol": "PLAINTEXT"}, "ApiVersions", "security.protocol"),
    "no TLS expected": ("SASL", {"security.protocol": "SASL_SSL"}, "TLS", "security.protocol"),
    "wrong mechanism": (
        "ONLY_PLAIN", {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": login("SCRAM-SHA-256", "client", "x")},
        "SASL", "see sasl.mechanism",
    ),
    "wrong password": (
        "SASL_TLS", {"sasl.jaas.config": login("SCRAM-SHA-512", "client", "wr0ng")}, "SASL", "sasl.jaas.config",
    ),
    "SASL expected": ("SASL", {"security.protocol": "PLAINTEXT"}, "request", "security.protocol"),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_a_refused_connection_names_the_step_and_the_option(why):
    listener, changed, step, says = REFUSED[why]
    with TestBroker(listeners=LISTENERS) as broker:
        findings = checked(broker.client_options(listener) | changed)
    assert failure(findings)[0] == step
    assert says in failure(findings)[1]
    assert findings[-1].outcome is Outcome.FAILED
    assert "wr0ng" not in repr(findings)


def test_after_a_refused_login_no_other_broker_is_tried(broker):
    options = broker.client_options("SASL") | {"sasl.jaas.config": login("SCRAM-SHA-512", "client", "wrong")}
    findings = checked(options)
    assert steps(findings, Outcome.FAILED) == ["SASL"]
    assert findings[-1].outcome is Outcome.UNTESTED
    assert "not tried" in findings[-1].text
    assert len(broker.authentications) == 1


@pytest.mark.parametrize(
    ("protocol", "step", "option"),
    [("SSL", "TLS", "socket.connection.setup.timeout.ms"), ("PLAINTEXT", "ApiVersions", "request.timeout.ms")],
)
def test_a_peer_that_says_nothing_is_given_up_in_time(protocol, step, option):
    """Incident: nothing asked whether it is Kafka's port, which a web server keeps quiet on, too."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        trusted = {"ssl.truststore.certificates": FOREIGN} if protocol == "SSL" else {}
        setup = {"socket.connection.setup.timeout.ms": 2_000, "socket.connection.setup.timeout.max.ms": 2_000}
        soon = {**setup, "request.timeout.ms": 2_000, "delivery.timeout.ms": 2_100}
        findings = checked({"bootstrap.servers": server, "security.protocol": protocol, **trusted, **soon})
    assert failure(findings)[0] == step
    assert option in failure(findings)[1]
    assert "is this the port of a Kafka listener?" in failure(findings)[1] or step == "TLS"


@pytest.mark.parametrize(("listener", "protocol"), [("SASL", "SASL_SSL"), ("TLS", "PLAINTEXT")])
def test_incident_check_and_write_told_tls_from_plaintext_in_other_words(broker, listener, protocol):
    given = of_first(broker, listener) | {"security.protocol": protocol}
    _step, told = failure(checked(given))
    with KafkaProducer(given) as producer, pytest.raises(WrongProtocolError) as raised:
        producer.partitions_for("t")
    assert str(raised.value) in told.replace("\n", " ")
    assert f"responded {'without TLS: use the port' if listener == 'SASL' else 'like a TLS server: '}" in told


def test_incident_the_line_of_tls_came_after_the_response_to_apiversions(broker):
    """The port of a web server with TLS may never respond."""
    broker.faults.lose_answer("ApiVersions")
    findings = checked(of_first(broker, "TLS") | {"request.timeout.ms": 1_000, "delivery.timeout.ms": 1_100})
    assert [each.step for each in findings] == ["DNS", "TCP", "TLS", "ApiVersions"]


def test_a_store_that_cannot_be_read_is_told_before_any_connection():
    findings = checked(
        {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL", "ssl.truststore.location": "none.pem"}
    )
    assert [each.step for each in findings] == ["options"]
    assert "ssl.truststore.location none.pem cannot be read" in failure(findings)[1]


def test_a_broker_of_another_age_is_told():
    with TestBroker(api_versions={"Produce": (0, 2)}) as broker:
        findings = checked({"bootstrap.servers": broker.bootstrap_servers})
    assert failure(findings)[0] == "versions"
    assert "supports Produce in versions 0 to 2" in failure(findings)[1]


@pytest.mark.parametrize(
    ("api_versions", "options", "says"),
    [
        ({"Produce": (0, 6)}, {"compression.type": "zstd"}, "compression.type=zstd"),
        ({"InitProducerId": None}, {"enable.idempotence": "true"}, "enable.idempotence=true needs"),
    ],
)
def test_what_the_options_need_and_the_brokers_lack_is_told(api_versions, options, says):
    with TestBroker(like="2.1", api_versions=api_versions) as broker:
        findings = checked({"bootstrap.servers": broker.bootstrap_servers, **options})
    assert failure(findings)[0] == "versions"
    assert says in failure(findings)[1]


def test_old_brokers_without_idempotence_pass_the_check():
    with TestBroker(like="2.1", api_versions={"InitProducerId": None}) as broker:
        broker.create_topic("t")
        findings = checked({"bootstrap.servers": broker.bootstrap_servers}, topic="t")
    assert steps(findings, Outcome.FAILED) == []
    assert any("without idempotence" in each.text for each in findings)


def test_missing_rights_are_told(broker):
    broker.create_topic("t")
    broker.create_topic("ledger")
    broker.faults.answer("Metadata", "TOPIC_AUTHORIZATION_FAILED", topic="t", times=KEPT)
    broker.faults.answer("DescribeTransactions", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", times=KEPT)
    findings = checked(broker.client_options("SASL"), topic="t", transactional_id_prefix="p")
    failed = {each.subject: each.text for each in findings if each.outcome is Outcome.FAILED}
    assert failed["topic t"] == "the principal lacks even DESCRIBE on it: it needs WRITE, DESCRIBE"
    assert "DESCRIBE is missing on p-driver, p-0" in failed["transactional ids p-driver, p-0"]
    assert "option transactionalIdPrefix" in failed["transactional ids p-driver, p-0"]
    assert len(failed) == 2


def test_a_partition_without_a_leader_is_told():
    with TestBroker(nodes=2) as broker:
        broker.create_topic("t", 2, replication=1)
        broker.kill(broker.leader("t", 1))
        findings = checked({"bootstrap.servers": broker.bootstrap_servers}, topic="t")
    texts = {each.subject: each.text for each in findings if each.outcome is Outcome.FAILED}
    assert texts["topic t"] == "partitions without a leader: 1; their brokers are down"


def test_what_old_brokers_cannot_be_asked_is_untested():
    with TestBroker(like="2.8") as broker:
        findings = checked({"bootstrap.servers": broker.bootstrap_servers}, transactional_id_prefix="p")
    assert steps(findings, Outcome.FAILED) == []
    assert "brokers before Kafka 3.0 cannot be asked" in findings[-1].text
