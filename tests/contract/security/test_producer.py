"""Our producer behind TLS and SASL: what librdkafka can do with the same options, and one clear error for the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.testing import LocalKafka, TestBroker
from spark_kafka_sink.testing.certificates import CertificateAuthority
from spark_kafka_sink.testing.listener import login
from tests.contract.scenario import Cluster, name
from tests.contract.security.clusters import ODD_USER, each_client, on_both
from tests.contract.security.librdkafka import HUNG_UP, consume
from tests.support.waiting import DEADLINE_S

# A call that made a second attempt at a broker would not end before the test does.
ONE_ATTEMPT = {"reconnect.backoff.ms": "3600000", "reconnect.backoff.max.ms": "3600000", "max.block.ms": "7200000"}
# A broker that only hangs up may do so for other reasons: such an error ends calls after max.block.ms, as Java's.
BRIEF = {"max.block.ms": "2000"}
# All that arrives at the broker has arrived by then.
SETTLED_S = 0.3


def write(options: Mapping[str, str], topic: str, *values: bytes) -> None:
    with KafkaProducer(options) as producer:
        for future in [producer.send(ProducerRecord(topic, value, partition=0)) for value in values]:
            future.result(DEADLINE_S)


def write_in_transaction(options: Mapping[str, str], topic: str, *values: bytes, id_: str | None = None) -> None:
    with KafkaProducer({**options, "transactional.id": id_ or name("tx")}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.send(ProducerRecord(topic, value, partition=0))
        producer.commit_transaction()


def through(cluster: Cluster, options: Mapping[str, str]) -> None:
    topic = name("through")
    cluster.create_topic(topic)
    write(options, topic, b"1", b"2")
    write_in_transaction(options, topic, b"3")
    assert consume(options, topic, 3) == [b"1", b"2", b"3"]


@on_both
@each_client
def test_rows_and_a_transaction_go_through_each_listener(
    secure_cluster: Cluster, listener: str, mechanism: str | None
) -> None:
    through(secure_cluster, secure_cluster.client_options(listener, mechanism=mechanism))
    if isinstance(secure_cluster, TestBroker):
        logins = [each for each in secure_cluster.authentications if each.error is None]
        steps = {"TLS"} if listener in ("TLS", "MUTUAL", "SASL_TLS") else set()
        steps |= {mechanism} - {None}
        assert {(each.step, each.listener) for each in logins} == {(step, listener) for step in steps}
        assert {each.error for each in secure_cluster.authentications.failed()} <= {HUNG_UP}


@on_both
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_odd_names_and_passwords_log_in(secure_cluster: Cluster, mechanism: str) -> None:
    through(secure_cluster, secure_cluster.client_options("SASL", ODD_USER, mechanism))


# -- failures ---------------------------------------------------------------------------------------------------------

_STRANGER = CertificateAuthority()


def _without(options: dict[str, str], prefix: str) -> dict[str, str]:
    return {name: value for name, value in options.items() if not name.startswith(prefix)}


def wrong_password_plain(cluster: Cluster) -> dict[str, str]:
    options = cluster.client_options("SASL", mechanism="PLAIN")
    return {**options, "sasl.jaas.config": login("PLAIN", "client", "wrong")}


def wrong_password_scram(cluster: Cluster) -> dict[str, str]:
    return {**cluster.client_options("SASL_TLS"), "sasl.jaas.config": login("SCRAM-SHA-512", "client", "wrong")}


def unknown_user(cluster: Cluster) -> dict[str, str]:
    return {**cluster.client_options("SASL_TLS"), "sasl.jaas.config": login("SCRAM-SHA-512", "nobody", "wrong")}


def wrong_mechanism(cluster: Cluster) -> dict[str, str]:
    options = cluster.client_options("ONLY_PLAIN")
    scram = login("SCRAM-SHA-512", "client", "client-secret")
    return {**options, "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": scram}


def untrusted_ca(cluster: Cluster) -> dict[str, str]:
    return {**cluster.client_options("TLS"), "ssl.truststore.certificates": _STRANGER.certificate}


def wrong_host_name(cluster: Cluster) -> dict[str, str]:
    return cluster.client_options("ELSEWHERE")


def expired(cluster: Cluster) -> dict[str, str]:
    return cluster.client_options("EXPIRED")


def not_yet_valid(cluster: Cluster) -> dict[str, str]:
    return cluster.client_options("NOT_YET")


def no_client_certificate(cluster: Cluster) -> dict[str, str]:
    return _without(cluster.client_options("MUTUAL"), "ssl.keystore")


def stranger_s_certificate(cluster: Cluster) -> dict[str, str]:
    own = _STRANGER.issue("client")
    stores = {"ssl.keystore.certificate.chain": own.chain, "ssl.keystore.key": own.key}
    return {**cluster.client_options("MUTUAL"), **stores}


def plain_client_on_a_tls_port(cluster: Cluster) -> dict[str, str]:
    # BRIEF, because the refusal may come before ``send``, which then waits for the second attempt.
    return {"bootstrap.servers": cluster.servers("TLS"), **BRIEF}


def tls_client_on_a_plain_port(cluster: Cluster) -> dict[str, str]:
    return {**cluster.client_options("TLS"), "bootstrap.servers": cluster.bootstrap_servers, **BRIEF}


def client_without_sasl(cluster: Cluster) -> dict[str, str]:
    return {"bootstrap.servers": cluster.servers("SASL"), **BRIEF}


def sasl_client_on_a_plain_port(cluster: Cluster) -> dict[str, str]:
    return {**cluster.client_options("SASL"), "bootstrap.servers": cluster.bootstrap_servers}


# What is wrong, the listener that says so, the option or the cause that the error names.
FAILURES: list[tuple[Callable[[Cluster], dict[str, str]], str, str]] = [
    (wrong_password_plain, "SASL", r"sasl\.jaas\.config"),
    (wrong_password_scram, "SASL_TLS", r"sasl\.jaas\.config"),
    (unknown_user, "SASL_TLS", r"sasl\.jaas\.config"),
    (wrong_mechanism, "ONLY_PLAIN", r"SCRAM-SHA-512.*PLAIN.*sasl\.mechanism"),
    (untrusted_ca, "TLS", r"ssl\.truststore\.location"),
    (wrong_host_name, "ELSEWHERE", r"ssl\.endpoint\.identification\.algorithm"),
    (expired, "EXPIRED", "expired"),
    (not_yet_valid, "NOT_YET", "not valid yet"),
    (no_client_certificate, "MUTUAL", r"ssl\.keystore\.location"),
    (stranger_s_certificate, "MUTUAL", r"ssl\.keystore\.location"),
    (plain_client_on_a_tls_port, "TLS", r"security\.protocol"),
    (tls_client_on_a_plain_port, "PLAINTEXT", r"security\.protocol"),
    (client_without_sasl, "SASL", r"security\.protocol"),
    (sasl_client_on_a_plain_port, "PLAINTEXT", r"security\.protocol"),
]
each_failure = pytest.mark.parametrize(
    ("failure", "listener", "named"), FAILURES, ids=[each[0].__name__ for each in FAILURES]
)


def failing(call: Callable[[], None], named: str) -> None:
    with pytest.raises(KafkaError, match=named):
        call()


@each_failure
def test_a_failure_is_one_error_after_one_attempt_at_test_broker(
    secure_broker: TestBroker, failure: Callable[[Cluster], dict[str, str]], listener: str, named: str
) -> None:
    secure_broker.create_topic("t")
    options = {**ONE_ATTEMPT, **failure(secure_broker)}
    calls = [lambda: write(options, "t", b"1", b"2")]
    if "security" not in named:
        calls.append(lambda: write_in_transaction(options, "t", b"1"))
    for call in calls:
        secure_broker.authentications.clear()
        failing(call, named)
        time.sleep(SETTLED_S)
        failed = secure_broker.authentications.failed()
        assert {attempt.listener for attempt in failed} <= {listener}
        nodes = [attempt.node for attempt in failed]
        assert len(nodes) == len(set(nodes)), "a second attempt at a broker"
    assert secure_broker.topic("t").records() == []


@each_failure
def test_a_failure_is_one_error_after_one_attempt_at_kafka(
    secure_kafka: LocalKafka, failure: Callable[[Cluster], dict[str, str]], listener: str, named: str
) -> None:
    topic = name("failure")
    secure_kafka.create_topic(topic)
    time.sleep(SETTLED_S)
    before = len(refusals(secure_kafka, listener))
    options = {**ONE_ATTEMPT, **failure(secure_kafka)}
    failing(lambda: write(options, topic, b"1"), named)
    time.sleep(SETTLED_S)
    assert len(refusals(secure_kafka, listener)) - before <= 1


def refusals(kafka: LocalKafka, listener: str) -> list[str]:
    """The broker's log of logins and TLS handshakes that failed."""
    log = Path(kafka.folder / "node-1" / "broker.log").read_text(errors="replace")
    return [
        line for line in log.splitlines() if "Failed authentication" in line and f"{listener}" in line.split("]")[0]
    ]


# -- rights -----------------------------------------------------------------------------------------------------------


def test_no_right_on_a_topic_names_it(secure_kafka: LocalKafka) -> None:
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


def test_no_right_on_a_transactional_id_names_it(secure_kafka: LocalKafka) -> None:
    topic, id_ = name("open"), name("closed-id")
    secure_kafka.create_topic(topic)
    secure_kafka.allow("other", "WRITE", "TRANSACTIONAL_ID", id_)
    options = secure_kafka.client_options("SASL_TLS")
    failing(lambda: write_in_transaction(options, topic, b"1", id_=id_), "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    through(secure_kafka, options)
