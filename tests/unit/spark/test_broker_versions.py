"""What the brokers cannot do is an error on the driver, where it connects to them."""

from __future__ import annotations

import pytest

from spark_kafka_sink.errors import UnsupportedVersionError
from spark_kafka_sink.spark.broker_versions import ensure_asked_idempotence
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.topic_creation import ensure_planned_topics
from spark_kafka_sink.testing import TestBroker


def options(broker: TestBroker, **more: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t"}
    return SinkOptions.parse({**given, **{f"kafka.{name.replace('_', '.')}": value for name, value in more.items()}})


def test_idempotence_that_was_asked_for_is_an_error_before_any_task():
    with TestBroker(api_versions={"InitProducerId": None}) as broker:
        with pytest.raises(UnsupportedVersionError, match="does not support InitProducerId, which enable.idempotence"):
            ensure_asked_idempotence(options(broker, enable_idempotence="true"))
        assert {each.api for each in broker.requests} == {"ApiVersions", "Metadata"}


@pytest.mark.parametrize("more", [{}, {"enable_idempotence": "false"}])
def test_the_driver_connects_to_no_broker_for_idempotence_that_was_not_asked_for(more):
    with TestBroker(api_versions={"InitProducerId": None}) as broker:
        ensure_asked_idempotence(options(broker, **more))
        assert [*broker.requests] == []


def test_brokers_that_have_it_are_asked_once():
    with TestBroker() as broker:
        for _ in range(2):
            ensure_asked_idempotence(options(broker, enable_idempotence="true"))
        assert len(broker.requests.of("ApiVersions")) == 1


def test_zstd_for_older_brokers_is_an_error_where_the_driver_looks_the_topic_up():
    with TestBroker(like="2.1", api_versions={"Produce": (0, 6)}) as broker:
        broker.create_topic("t")
        wanted = options(broker, compression_type="zstd")
        never = SinkOptions.parse({
            "kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t", "topicCreation": "never",
            "kafka.compression.type": "zstd",
        })  # fmt: skip
        with pytest.raises(UnsupportedVersionError, match=r"Produce in versions 0 to 6.*compression.type=zstd"):
            ensure_planned_topics(never)
        ensure_planned_topics(wanted)
