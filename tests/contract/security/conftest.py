from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.testing import LocalKafka, TestBroker
from tests.contract.scenario import Cluster
from tests.contract.security.clusters import LISTENERS


@pytest.fixture
def secure_broker() -> Iterator[TestBroker]:
    """The listeners of ``secure_kafka`` in this process."""
    with TestBroker(nodes=2, listeners=LISTENERS) as broker:
        yield broker


@pytest.fixture
def secure_cluster(request: pytest.FixtureRequest, secure_kafka: LocalKafka | None) -> Cluster:
    """What ``on_both`` says."""
    cluster: Cluster = secure_kafka or request.getfixturevalue("secure_broker")
    return cluster
