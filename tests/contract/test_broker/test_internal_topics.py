"""Topics that the broker creates for itself, what they decide, and a group's commits as records of one of them."""

from __future__ import annotations

import pytest

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.state.internal_topics import INTERNAL_TOPICS, coordinator_partition
from spark_kafka_sink.testing.broker.state.offset_records import CommittedOffset, offset_key, offset_value
from tests.contract.plain_client import PlainClient

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
LEADER_EPOCH, OFFSET = 4, 7
NEGATIVE = -1_284_548_840
"""Java's hash of the group with umlauts."""


@pytest.mark.parametrize("topic", INTERNAL_TOPICS)
def test_an_internal_topic_is_known_as_such_before_it_exists(client: PlainClient, topic: str) -> None:
    (answer,) = client.ask("Metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=False).topics
    assert (answer.error_code.name, answer.is_internal) == ("unknown_topic_or_partition", True)


@pytest.mark.parametrize("topic", INTERNAL_TOPICS)
def test_a_client_that_asks_for_it_makes_the_broker_create_it(client: PlainClient, topic: str) -> None:
    (answer,) = client.ask("Metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=True).topics
    assert (answer.error_code.name, answer.is_internal, len(answer.partitions)) == ("none", True, 50)


@pytest.mark.parametrize(("topic", "key_type"), [(OFFSETS, 0), (TRANSACTIONS, 1)])
def test_the_leader_of_its_partition_coordinates_a_group_or_a_transactional_id(topic: str, key_type: int) -> None:
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
def test_the_number_of_partitions_is_a_setting(topic: str, prefix: str) -> None:
    with TestBroker(config={f"{prefix}.num.partitions": 2}) as broker, PlainClient(broker.bootstrap_servers) as client:
        (described,) = client.ask("Metadata", 9, topics=[{"name": topic}]).topics
    assert len(described.partitions) == 2


@pytest.mark.parametrize(
    ("group", "java_hash"),
    [
        ("", 0),
        ("hello", 99_162_322),
        ("Aa", 2_112),
        ("BB", 2_112),
        ("\u00e9", 233),
        ("\U0001f600", 31 * 0xD83D + 0xDE00),  # two code units
        ("gruppe-\u00e4\u00f6\u00fc", abs(NEGATIVE)),
        ("polygenelubricants", 0),  # Java's hash is -2^31, which has no absolute value
    ],
)
def test_a_group_s_partition_is_java_s_hash_of_its_id(group: str, java_hash: int) -> None:
    assert [coordinator_partition(group, count) for count in (1, 50, 7)] == [0, java_hash % 50, java_hash % 7]


def commit(client: PlainClient, group: str, *partitions: int) -> None:
    asked = [
        {"partition_index": index, "committed_offset": OFFSET, "committed_leader_epoch": 0, "committed_metadata": "m"}
        for index in partitions
    ]
    client.ask(
        "OffsetCommit",
        7,
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[{"name": "t", "partitions": asked}],
    )


def test_a_commit_is_one_batch_with_a_record_for_each_partition(broker: TestBroker, client: PlainClient) -> None:
    broker.create_partitions("t", 3)
    commit(client, "hello", 2, 0, 99)

    (record, other) = broker.topic(OFFSETS).records()

    assert (record.partition, other.partition) == (22, 22)
    assert [record.key, other.key] == [offset_key("hello", TopicPartition("t", index)) for index in (2, 0)]
    assert record.value == offset_value(4, CommittedOffset(OFFSET, 0, "m"), record.timestamp)
    assert len(broker.topic(OFFSETS).batches(22)) == 1


def test_committed_offsets_are_gone_with_their_topic(broker: TestBroker, client: PlainClient) -> None:
    commit(client, "g", 0)
    assert broker.committed("g") == {("t", 0): OFFSET}

    client.ask("DeleteTopics", 4, topic_names=[OFFSETS], timeout=1000)

    assert broker.committed("g") == {}
