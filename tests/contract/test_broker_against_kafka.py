"""TestBroker answers what a real Kafka answers: the same scenarios with the same expected steps on both."""

from __future__ import annotations

import pytest

from spark_kafka_sink.testing import LocalKafka, TestBroker
from spark_kafka_sink.testing.broker.emulation import APIS, TOPIC_CONFIGS
from spark_kafka_sink.testing.broker.versions import RELEASES, VersionRange
from tests.contract.append_scenarios import APPEND_SCENARIOS
from tests.contract.compression_scenarios import COMPRESSION_SCENARIOS
from tests.contract.group_scenarios import GROUP_SCENARIOS
from tests.contract.internal_topic_scenarios import INTERNAL_TOPIC_SCENARIOS
from tests.contract.plain_client import API_KEYS, PlainClient
from tests.contract.scenario import Scenario, new_topic
from tests.contract.transaction_scenarios import TRANSACTION_SCENARIOS
from tests.support.kafka_versions import TEST_BROKER, on_kafka

SCENARIOS = (
    *APPEND_SCENARIOS,
    *TRANSACTION_SCENARIOS,
    *GROUP_SCENARIOS,
    *INTERNAL_TOPIC_SCENARIOS,
    *COMPRESSION_SCENARIOS,
)


@on_kafka("4.1.1", TEST_BROKER)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_both_answer_as_written(scenario: Scenario, cluster: LocalKafka | TestBroker) -> None:
    with PlainClient(cluster.bootstrap_servers) as client:
        steps = scenario(client)
    assert {step: answer for step, answer, _ in steps} == {step: expected for step, _, expected in steps}


@on_kafka("4.1.1", "3.9.1")
def test_test_broker_offers_the_versions_of_kafka(local_kafka: LocalKafka) -> None:
    with PlainClient(local_kafka.bootstrap_servers) as client:
        answer = client.ask("ApiVersions", 3, client_software_name="test", client_software_version="1")
    kafka = {each.api_key: VersionRange(each.min_version, each.max_version) for each in answer.api_keys}
    imitated = RELEASES[local_kafka.version.rpartition(".")[0]].versions
    assert {api: kafka.get(API_KEYS[api]) for api in imitated} == dict(imitated)


@on_kafka("4.1.1")
def test_the_list_of_what_is_emulated_has_every_api_and_topic_setting_of_kafka(local_kafka: LocalKafka) -> None:
    topic = [{"resource_type": 2, "configuration_keys": None}]
    with PlainClient(local_kafka.bootstrap_servers) as client:
        topic[0]["resource_name"] = new_topic(client)
        (described,) = client.ask("DescribeConfigs", 4, resources=topic).results
        announced = client.ask("ApiVersions", 3, client_software_name="test", client_software_version="1").api_keys
    listed_apis = {name for entry in APIS for name in entry.names}
    listed_configs = {name for entry in TOPIC_CONFIGS for name in entry.names}
    assert listed_configs == {each.name for each in described.configs}
    assert {each.api_key for each in announced} - {API_KEYS[name] for name in listed_apis} == set()
