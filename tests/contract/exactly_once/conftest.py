from __future__ import annotations

import pytest

from spark_kafka_sink.testing import TestBroker
from tests.contract.exactly_once.runs import TOPIC, Query


def broker_like(release):
    with TestBroker(like=release) as broker:
        broker.create_topic(TOPIC, partitions=2)
        yield broker


@pytest.fixture(params=["4.1", "3.9", "3.5"])
def broker(request):
    """Both transaction protocols, and the oldest broker."""
    yield from broker_like(request.param)


@pytest.fixture
def query(broker):
    return Query(broker.bootstrap_servers)
