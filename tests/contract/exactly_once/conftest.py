import pytest

from tests.contract.brokers import broker_with
from tests.contract.exactly_once.runs import TOPIC, Query

broker = broker_with(TOPIC, partitions=2, like=["4.1", "3.9", "3.5"])
"""Both transaction protocols, and the oldest broker."""


@pytest.fixture
def query(broker):
    return Query(broker.bootstrap_servers)
