from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.testing import LocalKafka, TestBroker
from tests.contract.security.clusters import LISTENERS, PROPERTIES


@pytest.fixture(scope="session", params=["4.1.1", "3.9.1"])
def secure_kafka(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    """A real Kafka with every listener, shared: give each test's topics names of their own."""
    flags = ["-Dlocal.kafka.flag=here"]
    with LocalKafka(version=request.param, listeners=LISTENERS, properties=PROPERTIES, jvm_flags=flags) as kafka:
        yield kafka


@pytest.fixture
def secure_broker() -> Iterator[TestBroker]:
    """The same listeners in this process."""
    with TestBroker(nodes=2, listeners=LISTENERS) as broker:
        yield broker
