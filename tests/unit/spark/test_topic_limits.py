"""``max.message.bytes`` of topics, which tasks with dead letters ask brokers for."""

from contextlib import closing
from types import SimpleNamespace

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import RequestBuildError
from spark_kafka_sink.producer.core import ProducerCore
from spark_kafka_sink.spark import topic_limits
from spark_kafka_sink.spark.topic_limits import described_limit, doubt_limit, known_limits
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.faults import KEPT

PATIENT = {"request.timeout.ms": 3_600_000, "delivery.timeout.ms": 7_200_000}
"""Longer than a test may take."""


@pytest.fixture
def broker():
    with TestBroker(config={"auto.create.topics.enable": False}) as broker:
        broker.create_topic("small", configs={"max.message.bytes": 2_000})
        broker.create_topic("large", configs={"max.message.bytes": 3_000_000})
        yield broker


def engine(broker, **options):
    return closing(ProducerCore.open(ProducerConfig.parse({"bootstrap.servers": broker.bootstrap_servers, **options})))


def asked(broker):
    return sum(seen.api == "DescribeConfigs" for seen in broker.requests)


def test_a_limit_is_asked_for_once_and_again_when_it_is_doubted(broker, monkeypatch):
    with engine(broker, **{"client.id": "task"}) as made:
        for _ in range(3):
            assert known_limits(made, ["small", "large"]) == {"small": 2_000, "large": 3_000_000}
        assert asked(broker) == 1, "one request for both"
        assert {seen.client_id for seen in broker.requests} == {"task"}, "on the connections of the producer"
        broker.set_topic_configs("small", {"max.message.bytes": 1_000})
        doubt_limit(made, "small")
        assert known_limits(made, ["small"]) == {"small": 2_000}, "asked for a moment ago"
        monkeypatch.setattr(topic_limits, "_ASK_AGAIN_MS", 0.0)
        doubt_limit(made, "small")
        assert known_limits(made, ["small"]) == {"small": 1_000}
        assert asked(broker) == 2


def test_limits_that_are_old_at_once_are_asked_for_each_time_and_no_caller_waits_for_long(broker):
    with engine(broker, **PATIENT, **{"metadata.max.age.ms": 0}) as made:  # a wait of request.timeout.ms would not end
        for _ in range(3):
            assert known_limits(made, ["small"]) == {"small": 2_000}
        assert asked(broker) == 3


def test_a_topic_that_may_not_be_described_leaves_the_others_known(broker, caplog):
    broker.faults.answer("DescribeConfigs", "TOPIC_AUTHORIZATION_FAILED", topic="small", times=KEPT)
    with engine(broker, **PATIENT) as made:
        for _ in range(2):
            assert known_limits(made, ["small", "large"]) == {"large": 3_000_000}
    (warning,) = caplog.messages
    assert "max.message.bytes of topic small is unknown (TOPIC_AUTHORIZATION_FAILED)" in warning


def test_a_limit_that_no_broker_tells_is_unknown_with_the_reason(broker, caplog):
    broker.faults.lose_answer("DescribeConfigs", times=KEPT)
    with engine(broker, **{"request.timeout.ms": 300, "delivery.timeout.ms": 2_000, "linger.ms": 0}) as made:
        assert known_limits(made, ["small"]) == {}
    assert "unknown (DescribeConfigs has no response after 300 ms" in caplog.text


def test_a_request_that_could_not_be_built_leaves_limits_unknown(broker, monkeypatch, caplog):
    def fails(call, deadline):
        raise RequestBuildError("DescribeConfigs could not be built")

    with engine(broker) as made:
        monkeypatch.setattr(made.parts.caller_calls, "call", fails)
        assert known_limits(made, ["small"]) == {}
    assert "could not be built" in caplog.text


@pytest.mark.parametrize("limit", ["a lot", "-1", "0", "9" * 5_000])
def test_incident_a_limit_that_is_not_a_positive_number_was_an_unexpected_error(limit):
    config = SimpleNamespace(name="max.message.bytes", value=limit)
    result = SimpleNamespace(error_code=ErrorCode.none, configs=[config])
    assert "which is not a positive number" in str(described_limit(result))
