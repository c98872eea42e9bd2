"""A broker takes any first sequence of a producer it does not know: what keeps a partition's first rows in order."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.errors import OutOfOrderSequenceError
from tests.unit.scripted_cluster import PARTITIONS, ScriptedCluster
from tests.unit.scripted_engine import TOPIC

ROWS = [b"%04d" % row for row in range(20)]


def cluster(**config: object) -> ScriptedCluster:
    made = ScriptedCluster(batch_size=100, **config)
    made.connect()
    return made


def test_a_new_topics_leader_that_refuses_the_first_batch_is_not_offered_the_second():
    """It took the second; the first got a new epoch and landed behind it, and all of it was reported as delivered."""
    made = cluster()
    made.refusals[0].append(ErrorCode.not_leader_or_follower)
    made.append(ROWS)
    made.settle()
    assert made.rows(0) == list(range(20))
    made.receipt.wait(0)


def test_sequences_go_on_with_0_after_the_largest():
    """A broker takes any first sequence, and then only the next one."""
    made = cluster()
    made.append(ROWS[:1])
    made.spin()
    made.create_topic(PARTITIONS)
    sequence = made.parts.sender.sequences.partition(TopicPartition(TOPIC, 0))
    sequence.next = sequence.acked_until = 2**31 - 5
    made.append(ROWS[1:])
    made.settle()
    assert made.rows(0) == list(range(1, 20))
    made.receipt.wait(0)
    assert sequence.next == 14


def test_a_batch_that_was_overtaken_all_the_same_fails_instead_of_landing_behind():
    """The broker forgot the producer between two batches, refused the first and took the second."""
    made = cluster()
    made.append(ROWS[:1])
    made.spin()
    made.logs[0].forget_producers(refuses_unknown=False)
    made.refusals[0].append(ErrorCode.not_enough_replicas)
    made.append(ROWS[1:8])
    made.settle()
    with pytest.raises(OutOfOrderSequenceError):
        made.receipt.wait(0)
    assert made.rows(0) == [0, *range(4, 8)]
    assert made.memory_is_free()
