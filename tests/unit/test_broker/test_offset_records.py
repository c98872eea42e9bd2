"""Where a group's commits go, and what they look like as records of ``__consumer_offsets``."""

from __future__ import annotations

import pytest

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.state.internal_topics import coordinator_partition
from spark_kafka_sink.testing.broker.state.offset_records import (
    CommittedOffset,
    offset_key,
    offset_value,
)
from tests.contract.plain_client import PlainClient

LEADER_EPOCH, OFFSET = 4, 7
NEGATIVE = -1_284_548_840
"""Java's hash of the group with umlauts."""


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


def test_key_and_value_are_kafka_s() -> None:
    key = offset_key("g", TopicPartition("top", 2))
    committed = CommittedOffset(OFFSET, LEADER_EPOCH, "note")

    assert key == b"\0\1" + b"\0\1g" + b"\0\3top" + b"\0\0\0\2"
    assert (
        offset_value(3, committed, 1_000)
        == b"\0\3" + bytes(7) + b"\7" + b"\0\0\0\4" + b"\0\4note" + bytes(6) + b"\3\xe8"
    )
    start = b"\0\4" + bytes(7) + b"\7" + b"\0\0\0\4" + b"\5note" + bytes(6) + b"\3\xe8"
    assert offset_value(4, committed, 1_000) == start + b"\0"


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

    (record, other) = broker.topic("__consumer_offsets").records()

    assert (record.partition, other.partition) == (22, 22)
    assert [record.key, other.key] == [offset_key("hello", TopicPartition("t", index)) for index in (2, 0)]
    assert record.value == offset_value(4, CommittedOffset(OFFSET, 0, "m"), record.timestamp)
    assert len(broker.topic("__consumer_offsets").batches(22)) == 1


def test_the_number_of_partitions_is_a_setting() -> None:
    with TestBroker(config={"offsets.topic.num.partitions": 3}) as broker:
        broker.create_topic("t")
        with PlainClient(broker.bootstrap_servers) as client:
            commit(client, "hello", 0)
        assert [record.partition for record in broker.topic("__consumer_offsets").records()] == [99_162_322 % 3]
