"""Brokers for the clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.testing import TestBroker


@pytest.fixture
def kafka_three_nodes() -> Iterator[TestBroker]:
    with TestBroker(nodes=3) as broker:
        yield broker
