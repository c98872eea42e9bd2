"""A client for the broker under test."""

from collections.abc import Iterator

import pytest

from spark_kafka_sink.testing import TestBroker
from tests.contract.brokers import broker_with
from tests.contract.plain_client import PlainClient

broker = broker_with("t")


@pytest.fixture
def client(broker: TestBroker) -> Iterator[PlainClient]:
    with PlainClient(broker.bootstrap_servers) as client:
        yield client
