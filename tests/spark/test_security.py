"""Jobs and queries behind mutual TLS and SASL_SSL."""

import re
from pathlib import Path

import pytest

from tests.contract.scenario import name
from tests.contract.security.librdkafka import consume, produce
from tests.spark.writes import one_off, save, stream, streaming

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


def refusals(kafka, listener):
    log = Path(kafka.folder / "node-1" / "broker.log").read_text(errors="replace")
    refused = re.compile(r"Failed (re-)?authentication")
    return sum(bool(refused.search(line)) and listener in line.split("]")[0] for line in log.splitlines())
