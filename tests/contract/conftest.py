"""Fixtures of the contract tests."""

from collections.abc import Iterator
from typing import Any

import pytest

from spark_kafka_sink.testing import LocalKafka, TestBroker
from tests.support.kafka_jvm import kafka_jvm
from tests.support.kafka_versions import TEST_BROKER, is_test_broker


@pytest.fixture(scope="session")
def local_kafka(request: pytest.FixtureRequest) -> Iterator[LocalKafka | None]:
    """A real Kafka, or None if the test's ``cluster`` is a TestBroker."""
    if is_test_broker(request.param):
        yield None
    else:
        with LocalKafka(version=request.param) as kafka:
            yield kafka


@pytest.fixture
def cluster(request: pytest.FixtureRequest, local_kafka: LocalKafka | None) -> Iterator[LocalKafka | TestBroker]:
    """What ``on_kafka`` names: a shared Kafka, or a TestBroker of the test's own."""
    if local_kafka is not None:
        yield local_kafka
        return
    release = request.node.callspec.params["local_kafka"].removeprefix(TEST_BROKER).strip()
    with TestBroker(**({"like": release} if release else {})) as broker:
        yield broker


@pytest.fixture(scope="module", name="kafka_jvm")
def _kafka_jvm() -> Iterator[Any]:
    with kafka_jvm() as jvm:
        yield jvm
