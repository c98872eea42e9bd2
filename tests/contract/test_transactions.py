"""The producer's transactions against TestBroker and against real Kafkas, protocol v2 (4.1) and v1 (3.9)."""

from __future__ import annotations

import pytest

from spark_kafka_sink.testing import LocalKafka, TestBroker
from tests.contract.transactions_of_the_producer import SCENARIOS, Scenario
from tests.support.kafka_versions import on_kafka

each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)


@each_scenario
@pytest.mark.parametrize("like", ["4.1", "3.9"])
def test_on_test_broker(scenario: Scenario, like: str) -> None:
    with TestBroker(like=like) as broker:
        scenario(broker)


@each_scenario
@pytest.mark.jvm
@on_kafka("4.4.0", "3.9.1")
def test_on_kafka(scenario: Scenario, local_kafka: LocalKafka) -> None:
    scenario(local_kafka)
