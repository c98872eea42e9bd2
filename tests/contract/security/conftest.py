import pytest

from spark_kafka_sink.testing import LocalKafka
from tests.contract.brokers import broker_with
from tests.contract.scenario import Cluster
from tests.contract.security.clusters import LISTENERS

secure_broker = broker_with(nodes=2, listeners=LISTENERS)
"""The listeners of ``secure_kafka`` in this process."""


@pytest.fixture
def secure_cluster(request: pytest.FixtureRequest, secure_kafka: LocalKafka | None) -> Cluster:
    """What ``on_both`` says."""
    cluster: Cluster = secure_kafka or request.getfixturevalue("secure_broker")
    return cluster
