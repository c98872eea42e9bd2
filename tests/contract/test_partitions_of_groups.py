"""TestBroker puts a group's commits on the partition of ``__consumer_offsets`` that Kafka puts them on."""

from __future__ import annotations

import pytest

from spark_kafka_sink.testing import LocalKafka, TestBroker
from spark_kafka_sink.testing.broker.state.internal_topics import coordinator_partition
from tests.contract.group_scenarios import OFFSETS, PlainMember
from tests.contract.plain_client import PlainClient
from tests.contract.scenario import new_topic
from tests.support.waiting import eventually

GROUPS = ("hello", "polygenelubricants", "a-group-with-a-long-name", "gruppe-\u00e4\u00f6\u00fc", "\U0001f600")
COUNT = 50


def used_partitions(bootstrap_servers: str) -> set[int]:
    """The partitions that have records once every group has committed."""
    with PlainClient(bootstrap_servers) as client:
        topic = new_topic(client)
        for group in GROUPS:
            client.ask_patiently("FindCoordinator", 3, key=group, key_type=0)
            eventually(lambda group=group: PlainMember(client, group).commit(topic, 1) == "none")  # type: ignore[misc]
        asked = [{"name": OFFSETS, "partitions": [{"partition_index": at, "timestamp": -1} for at in range(COUNT)]}]
        answer = client.ask("ListOffsets", 1, replica_id=-1, topics=asked)
    return {int(each.partition_index) for each in answer.topics[0].partitions if each.offset > 0}


def test_test_broker_puts_them_there(kafka_test_broker: TestBroker) -> None:
    assert used_partitions(kafka_test_broker.bootstrap_servers) == {
        coordinator_partition(each, COUNT) for each in GROUPS
    }


@pytest.mark.jvm
def test_kafka_puts_them_there() -> None:
    with LocalKafka(properties={"offsets.topic.num.partitions": str(COUNT)}) as kafka:
        assert used_partitions(kafka.bootstrap_servers) == {coordinator_partition(each, COUNT) for each in GROUPS}
