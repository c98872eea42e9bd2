"""Topics that the broker creates for itself, and what they decide."""

import pytest

from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.state.internal_topics import INTERNAL_TOPICS, coordinator_partition
from tests.contract.plain_client import PlainClient

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


@pytest.mark.parametrize("topic", INTERNAL_TOPICS)
def test_an_internal_topic_is_known_as_such_before_it_exists(client, topic):
    (answer,) = client.ask("Metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=False).topics
    assert (answer.error_code.name, answer.is_internal) == ("unknown_topic_or_partition", True)


@pytest.mark.parametrize("topic", INTERNAL_TOPICS)
def test_a_client_that_asks_for_it_makes_the_broker_create_it(client, topic):
    (answer,) = client.ask("Metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=True).topics
    assert (answer.error_code.name, answer.is_internal, len(answer.partitions)) == ("none", True, 50)


@pytest.mark.parametrize(("topic", "key_type"), [(OFFSETS, 0), (TRANSACTIONS, 1)])
def test_the_leader_of_its_partition_coordinates_a_group_or_a_transactional_id(topic, key_type):
    with TestBroker(nodes=3) as broker, PlainClient(broker.bootstrap_servers) as client:
        found = int(client.ask("FindCoordinator", 3, key="key", key_type=key_type).node_id)
        partition = coordinator_partition("key", 50)
        assert found == broker.leader(topic, partition)
        broker.move_leader(topic, partition, to=found % 3 + 1)
        assert int(client.ask("FindCoordinator", 3, key="key", key_type=key_type).node_id) == found % 3 + 1
        broker.move_leader(topic, partition)
        answer = client.ask("FindCoordinator", 3, key="key", key_type=key_type)
        assert answer.error_code.name == "coordinator_not_available"


@pytest.mark.parametrize(("topic", "prefix"), [(OFFSETS, "offsets.topic"), (TRANSACTIONS, "transaction.state.log")])
def test_the_number_of_partitions_is_a_setting(topic, prefix):
    with TestBroker(config={f"{prefix}.num.partitions": 2}) as broker, PlainClient(broker.bootstrap_servers) as client:
        (described,) = client.ask("Metadata", 9, topics=[{"name": topic}]).topics
    assert len(described.partitions) == 2
