"""Our producer behind TLS and SASL: what librdkafka can do with the same options, and one clear error for the rest."""

import time
from pathlib import Path

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.certificates import CertificateAuthority
from spark_kafka_sink.testing.listener import login
from tests.contract.scenario import name
from tests.contract.security.clusters import ODD_USER, each_client, on_both
from tests.contract.security.librdkafka import HUNG_UP, consume
from tests.support.waiting import DEADLINE_S

# A call that made a second attempt at a broker would not end before the test does.
ONE_ATTEMPT = {"reconnect.backoff.ms": "3600000", "reconnect.backoff.max.ms": "3600000", "max.block.ms": "7200000"}
# A broker that only hangs up may do so for other reasons: such an error ends calls after max.block.ms, as Java's.
BRIEF = {"max.block.ms": "2000"}
# All that arrives at the broker has arrived by then.
SETTLED_S = 0.3


def write(options, topic, *values):
    with KafkaProducer(options) as producer:
        for future in [producer.send(ProducerRecord(topic, value, partition=0)) for value in values]:
            future.result(DEADLINE_S)


def write_in_transaction(options, topic, *values, id_=None):
    with KafkaProducer({**options, "transactional.id": id_ or name("tx")}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.send(ProducerRecord(topic, value, partition=0))
        producer.commit_transaction()


def through(cluster, options):
    topic = name("through")
    cluster.create_topic(topic)
    write(options, topic, b"1", b"2")
    write_in_transaction(options, topic, b"3")
    assert consume(options, topic, 3) == [b"1", b"2", b"3"]


@on_both
@each_client
def test_rows_and_a_transaction_go_through_each_listener(secure_cluster, listener, mechanism):
    through(secure_cluster, secure_cluster.client_options(listener, mechanism=mechanism))
    if isinstance(secure_cluster, TestBroker):
        logins = [each for each in secure_cluster.authentications if each.error is None]
        steps = {"TLS"} if listener in ("TLS", "MUTUAL", "SASL_TLS") else set()
        steps |= {mechanism} - {None}
        assert {(each.step, each.listener) for each in logins} == {(step, listener) for step in steps}
        assert {each.error for each in secure_cluster.authentications.failed()} <= {HUNG_UP}


@on_both
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_odd_names_and_passwords_log_in(secure_cluster, mechanism):
    through(secure_cluster, secure_cluster.client_options("SASL", ODD_USER, mechanism))


# -- failures ---------------------------------------------------------------------------------------------------------

_STRANGER = CertificateAuthority()


def with_password(options, mechanism, user, password):
    return {**options, "sasl.mechanism": mechanism, "sasl.jaas.config": login(mechanism, user, password)}


def without_certificate(cluster):
    options = cluster.client_options("MUTUAL")
    return {name: value for name, value in options.items() if not name.startswith("ssl.keystore")}


def certificate_of_a_stranger(cluster):
    own = _STRANGER.issue("client")
    stores = {"ssl.keystore.certificate.chain": own.chain, "ssl.keystore.key": own.key}
    return {**cluster.client_options("MUTUAL"), **stores}


# What is wrong: the options, the listener that says so, the option or the cause that the error names. BRIEF, because
# the refusal may come before ``send``, which then waits for the second attempt.
FAILURES = {
    "wrong password, PLAIN": (
        lambda cluster: with_password(cluster.client_options("SASL"), "PLAIN", "client", "wrong"),
        "SASL", r"sasl\.jaas\.config",
    ),
    "wrong password, SCRAM": (
        lambda cluster: with_password(cluster.client_options("SASL_TLS"), "SCRAM-SHA-512", "client", "wrong"),
        "SASL_TLS", r"sasl\.jaas\.config",
    ),
    "wrong mechanism": (
        lambda cluster: with_password(
            cluster.client_options("ONLY_PLAIN"), "SCRAM-SHA-512", "client", "client-secret"
        ),
        "ONLY_PLAIN", r"SCRAM-SHA-512.*PLAIN.*sasl\.mechanism",
    ),
    "untrusted CA": (
        lambda cluster: {**cluster.client_options("TLS"), "ssl.truststore.certificates": _STRANGER.certificate},
        "TLS", r"ssl\.truststore\.location",
    ),
    "wrong host name": (
        lambda cluster: cluster.client_options("ELSEWHERE"),
        "ELSEWHERE", r"ssl\.endpoint\.identification\.algorithm",
    ),
    "expired": (lambda cluster: cluster.client_options("EXPIRED"), "EXPIRED", "expired"),
    "not valid yet": (lambda cluster: cluster.client_options("NOT_YET"), "NOT_YET", "is not valid before"),
    "no client certificate": (without_certificate, "MUTUAL", r"ssl\.keystore\.location"),
    "a stranger's certificate": (certificate_of_a_stranger, "MUTUAL", r"ssl\.keystore\.location"),
    "plain client on a TLS port": (
        lambda cluster: {"bootstrap.servers": cluster.servers("TLS"), **BRIEF}, "TLS", r"security\.protocol",
    ),
    "TLS client on a plain port": (
        lambda cluster: {
            **cluster.client_options("TLS"), "bootstrap.servers": cluster.bootstrap_servers, **BRIEF
        },
        "PLAINTEXT", r"security\.protocol",
    ),
    "client without SASL": (
        lambda cluster: {"bootstrap.servers": cluster.servers("SASL"), **BRIEF}, "SASL", r"security\.protocol",
    ),
    "SASL client on a plain port": (
        lambda cluster: {**cluster.client_options("SASL"), "bootstrap.servers": cluster.bootstrap_servers},
        "PLAINTEXT", r"security\.protocol",
    ),
}  # fmt: skip


def failing(call, named):
    with pytest.raises(KafkaError, match=named):
        call()


@on_both
@pytest.mark.parametrize("wrong", FAILURES)
def test_a_failure_is_one_error_after_one_attempt(secure_cluster, wrong):
    given, listener, named = FAILURES[wrong]
    topic = name("failure")
    secure_cluster.create_topic(topic)
    options = {**ONE_ATTEMPT, **given(secure_cluster)}
    calls = [lambda: write(options, topic, b"1", b"2")]
    if isinstance(secure_cluster, TestBroker) and "security" not in named:
        calls.append(lambda: write_in_transaction(options, topic, b"1"))
    for call in calls:
        time.sleep(SETTLED_S)
        before = len(refusals(secure_cluster, listener))
        failing(call, named)
        time.sleep(SETTLED_S)
        nodes = refusals(secure_cluster, listener)[before:]
        assert len(nodes) == len(set(nodes)), "a second attempt at a broker"
    if isinstance(secure_cluster, TestBroker):
        assert {attempt.listener for attempt in secure_cluster.authentications.failed()} <= {listener}
        assert secure_cluster.topic(topic).records() == []


def refusals(cluster, listener):
    """The nodes that refused a login or a TLS handshake; Kafka, which has one node here, says so in its log."""
    if isinstance(cluster, TestBroker):
        return [attempt.node for attempt in cluster.authentications.failed()]
    log = Path(cluster.folder / "node-1" / "broker.log").read_text(errors="replace")
    return [1 for line in log.splitlines() if "Failed authentication" in line and listener in line.split("]")[0]]


# -- rights -----------------------------------------------------------------------------------------------------------


def test_no_right_on_a_topic_names_it(secure_kafka):
    hidden, readable = name("hidden"), name("readable")
    for topic in (hidden, readable):
        secure_kafka.create_topic(topic)
        secure_kafka.allow("other", "WRITE", "TOPIC", topic)
    secure_kafka.allow("client", "DESCRIBE", "TOPIC", readable)
    options = secure_kafka.client_options("SASL_TLS")
    failing(lambda: write(options, hidden, b"1"), f"[Aa]uthoriz.*{hidden}")
    failing(
        lambda: write(options, readable, b"1"), f"{readable}-0: TOPIC_AUTHORIZATION_FAILED; the principal needs WRITE"
    )


def test_no_right_on_a_transactional_id_names_it(secure_kafka):
    topic, id_ = name("open"), name("closed-id")
    secure_kafka.create_topic(topic)
    secure_kafka.allow("other", "WRITE", "TRANSACTIONAL_ID", id_)
    options = secure_kafka.client_options("SASL_TLS")
    failing(lambda: write_in_transaction(options, topic, b"1", id_=id_), "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    through(secure_kafka, options)
