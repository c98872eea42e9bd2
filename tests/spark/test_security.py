"""Jobs and queries behind mutual TLS and SASL_SSL, and what they say when they are not let in."""

import re
import time
from pathlib import Path

import pytest

from spark_kafka_sink.testing.certificates import CertificateAuthority
from tests.contract.scenario import name
from tests.contract.security.librdkafka import consume, produce
from tests.spark.writes import fails, one_off, save, stream, streaming

pytestmark = pytest.mark.jvm

on_kafka = pytest.mark.parametrize("secure_kafka", ["4.4.0"], indirect=True, scope="session")
GUARANTEES = ("at-least-once", "exactly-once")


@pytest.fixture
def topic(secure_kafka):
    """Of one partition."""
    topic = name("spark")
    secure_kafka.create_topic(topic)
    return topic


def options_of(kafka, listener, topic, guarantee="at-least-once"):
    exactly_once = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": topic}
    more = exactly_once if guarantee == "exactly-once" else {}
    return {**kafka.spark_options(listener), "topic": topic, **more}


def numbers(spark, first, end):
    return spark.range(first, end).selectExpr("cast(id as string) value")


def read_back(options, topic, count):
    """The rows, of which there must be ``count``."""
    produce(options, topic, [b"end"])
    *values, end = consume(options, topic, count + 1)
    assert end == b"end"
    return sorted(map(int, values))


@on_kafka
@pytest.mark.parametrize("listener", ["MUTUAL", "SASL_TLS"])
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_job_and_a_query_write_each_row(spark, secure_kafka, topic, tmp_path, listener, guarantee):
    options = options_of(secure_kafka, listener, topic, guarantee)
    save(numbers(spark, 0, 300), one_off({**options, "deliveryGuarantee": guarantee}))
    stream(streaming(numbers(spark, 300, 600), tmp_path / "in"), options, tmp_path / "checkpoint")
    stream(streaming(numbers(spark, 600, 900), tmp_path / "in"), options, tmp_path / "checkpoint")
    assert read_back(secure_kafka.client_options(listener), topic, 900) == list(range(900))


def untrusted_ca(kafka, topic):
    return {**options_of(kafka, "TLS", topic), "kafka.ssl.truststore.certificates": CertificateAuthority().certificate}


def no_right_on_the_topic(kafka, topic):
    kafka.allow("other", "WRITE", "TOPIC", topic)
    return options_of(kafka, "SASL_TLS", topic)


def no_right_on_the_ledger(kafka, topic):
    ledger = f"{topic}-ledger"
    kafka.create_topic(ledger, configs={"cleanup.policy": "compact"})
    kafka.allow("other", "WRITE", "TOPIC", ledger)
    return {**options_of(kafka, "MUTUAL", topic, "exactly-once"), "ledgerTopic": ledger}


def no_right_on_the_transactional_id(kafka, topic):
    kafka.allow("other", "WRITE", "TRANSACTIONAL_ID", topic, prefixed=True)
    return options_of(kafka, "MUTUAL", topic, "exactly-once")


CONNECTION_OPTIONS = ("ssl.truststore.location",)
# How many attempts a broker may see: Spark runs a task twice here.
TASK_ATTEMPTS = 2


@on_kafka
@pytest.mark.parametrize(
    ("failure", "listener", "said"),
    [
        (untrusted_ca, "TLS", "ssl.truststore.location"),
        (no_right_on_the_topic, "SASL_TLS", "uthoriz"),
        (no_right_on_the_ledger, "MUTUAL", "ledger"),
        (no_right_on_the_transactional_id, "MUTUAL", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    ],
    ids=lambda part: getattr(part, "__name__", None),
)
def test_a_failure_is_one_error_that_names_what_to_look_at(spark, secure_kafka, topic, failure, listener, said):
    options = failure(secure_kafka, topic)
    rows = numbers(spark, 0, 10).coalesce(1)
    before = refusals(secure_kafka, listener)
    text = fails(save, rows, one_off(options))
    assert said in text
    assert "secret" not in text
    assert ("To try each step from this machine: spark-kafka-sink check" in text) is (said in CONNECTION_OPTIONS)
    time.sleep(0.3)
    assert refusals(secure_kafka, listener) - before <= TASK_ATTEMPTS


def refusals(kafka, listener):
    log = Path(kafka.folder / "node-1" / "broker.log").read_text(errors="replace")
    refused = re.compile(r"Failed (re-)?authentication")
    return sum(bool(refused.search(line)) and listener in line.split("]")[0] for line in log.splitlines())
