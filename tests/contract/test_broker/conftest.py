"""A client for the broker under test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.testing import TestBroker
from tests.contract.plain_client import PlainClient


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker() as broker:
        broker.create_topic("t")
        yield broker


@pytest.fixture
def client(broker: TestBroker) -> Iterator[PlainClient]:
    with PlainClient(broker.bootstrap_servers) as client:
        yield client
