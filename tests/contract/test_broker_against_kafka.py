"""TestBroker answers what a real Kafka answers: the same scenarios with the same expected steps on both."""

import base64
import logging

import pytest

from spark_kafka_sink.testing import LocalKafka
from spark_kafka_sink.testing.broker.apis.table import RELEASES
from spark_kafka_sink.testing.broker.emulation import APIS, TOPIC_CONFIGS
from spark_kafka_sink.testing.broker.versions import OfferedVersions
from tests.contract.append_scenarios import APPEND_SCENARIOS
from tests.contract.group_scenarios import GROUP_SCENARIOS
from tests.contract.internal_topic_scenarios import INTERNAL_TOPIC_SCENARIOS
from tests.contract.plain_client import API_KEYS, PlainClient, batch
from tests.contract.scenario import name, new_topic
from tests.contract.transaction_scenarios import TRANSACTION_SCENARIOS
from tests.support.kafka_versions import TEST_BROKER, on_kafka
from tests.support.waiting import until

SCENARIOS = (
    *APPEND_SCENARIOS,
    *TRANSACTION_SCENARIOS,
    *GROUP_SCENARIOS,
    *INTERNAL_TOPIC_SCENARIOS,
)


@on_kafka("4.1.1", TEST_BROKER)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_both_answer_as_written(scenario, cluster):
    with PlainClient(cluster.bootstrap_servers) as client:
        steps = scenario(client)
    assert {step: answer for step, answer, _ in steps} == {step: expected for step, _, expected in steps}


@on_kafka("4.1.1", "3.9.1")
def test_test_broker_offers_the_versions_of_kafka(local_kafka):
    with PlainClient(local_kafka.bootstrap_servers) as client:
        answer = client.ask("ApiVersions", 3, client_software_name="test", client_software_version="1")
    kafka = {each.api_key: OfferedVersions(each.min_version, each.max_version) for each in answer.api_keys}
    imitated = RELEASES[local_kafka.version.rpartition(".")[0]].versions
    assert {api: kafka.get(API_KEYS[api]) for api in imitated} == dict(imitated)


@on_kafka("4.1.1")
def test_the_list_of_what_is_emulated_has_every_api_and_topic_setting_of_kafka(local_kafka):
    topic = [{"resource_type": 2, "configuration_keys": None}]
    with PlainClient(local_kafka.bootstrap_servers) as client:
        topic[0]["resource_name"] = new_topic(client)
        (described,) = client.ask("DescribeConfigs", 4, resources=topic).results
        announced = client.ask("ApiVersions", 3, client_software_name="test", client_software_version="1").api_keys
    listed_apis = {name for entry in APIS for name in entry.names}
    listed_configs = {name for entry in TOPIC_CONFIGS for name in entry.names}
    assert listed_configs == {each.name for each in described.configs}
    assert {each.api_key for each in announced} - {API_KEYS[name] for name in listed_apis} == set()


def lines_of_a_failed_produce(bootstrap_servers):
    """Writes to one partition that exists and one that does not, with acks=0; what the broker has to log."""
    client_id = name("client")
    with PlainClient(bootstrap_servers, client_id) as client:
        topic = new_topic(client)
        topic_id = client.ask("Metadata", 12, topics=[{"name": topic}]).topics[0].topic_id
        prefix = base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
        partitions = [{"index": index, "records": batch([b"x"])} for index in (0, 7)]
        data = [{"name": topic, "partition_data": partitions}]
        correlation_id = client.tell("Produce", 9, acks=0, timeout=1000, topic_data=data)
        assert client.is_hung_up()
    return [
        f"Closing connection due to error during produce request with correlation id {correlation_id} from client id "
        f"{client_id} with ack=0",
        f"Topic and partition to exceptions: {prefix}:{topic}-0 -> null, {prefix}:{topic}-7 -> "
        "org.apache.kafka.common.errors.UnknownTopicOrPartitionException",
    ]


@on_kafka("4.1.1", TEST_BROKER)
def test_both_log_an_error_that_has_no_response_alike(cluster, caplog):
    caplog.set_level(logging.INFO, "spark_kafka_sink.testing.broker")

    def logged():
        return cluster.log_tail(1) if isinstance(cluster, LocalKafka) else caplog.text

    first, second = lines_of_a_failed_produce(cluster.bootstrap_servers)
    assert f"{first}\n{second}" in until(logged, lambda log: second in log)
