"""The broker of most tests here: with topic t, of one partition."""

from __future__ import annotations

import pytest

from spark_kafka_sink.testing import TestBroker


@pytest.fixture
def broker(kafka_test_broker: TestBroker) -> TestBroker:
    kafka_test_broker.create_topic("t")
    return kafka_test_broker
