"""``uniform_sticky`` and ``round_robin``: which partition each row gets."""

from itertools import pairwise
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.producer.kafka_partitioners import (
    RoundRobinPartitioner,
    UniformStickyPartitioner,
    murmur2,
)
from spark_kafka_sink.producer.partitioner import NOT_GIVEN, PartitionLoad
from spark_kafka_sink.records.columns import HEADER_SIZE, RecordColumns


class Batches:
    """New batches have room for 100 bytes."""

    def __init__(self, open_rooms=()):
        self.open_rooms = dict(open_rooms)

    def batch_limit(self, topic):
        return HEADER_SIZE + 100

    def open_room(self, partition):
        return self.open_rooms.get(partition.partition, 0)


def partition(chooser, sizes, *, keys=None, explicit=None, available=(0, 1, 2), batches=None):
    load = PartitionLoad(available, (0,) * len(available), batches=batches or Batches())
    columns = RecordColumns(key=pa.array(keys or [b"same"] * len(sizes), pa.binary()))
    return chooser.partition("t", columns, explicit, np.array(sizes), 3, load).tolist()


@pytest.mark.parametrize("seed", range(10))
def test_each_new_batch_goes_to_another_partition_than_the_last(seed):
    partitions = partition(UniformStickyPartitioner(Random(seed)), [10] * 200)
    batches = [partitions[start : start + 10] for start in range(0, 200, 10)]
    assert all(len(set(batch)) == 1 for batch in batches)
    assert all(one[0] != other[0] for one, other in pairwise(batches))
    assert set(partitions) == {0, 1, 2}


def test_rows_stay_while_the_open_batch_has_room_and_leave_it_then():
    chooser = UniformStickyPartitioner(Random(1))
    (first,) = set(partition(chooser, [10]))
    rooms = Batches({first: 25})
    chosen = partition(chooser, [10, 10, 10], batches=rooms)
    assert chosen[:2] == [first, first]
    assert chosen[2] != first


def test_an_open_batch_of_the_next_partition_is_filled_first():
    chooser = UniformStickyPartitioner(Random(1))
    (first,) = set(partition(chooser, [10], available=(0, 1)))
    chosen = partition(chooser, [10, 10, 10], available=(0, 1), batches=Batches({1 - first: 10}))
    assert chosen == [1 - first, first, first]


def test_the_only_available_partition_is_kept():
    assert partition(UniformStickyPartitioner(Random(1)), [60] * 4, available=(2,)) == [2] * 4


@pytest.mark.parametrize("seed", range(5))
def test_with_a_key_hash_keyed_rows_go_by_it_and_the_others_leave_a_partition_with_each_batch(seed):
    keys = [None if row % 2 else b"%d" % row for row in range(200)]
    chosen = partition(UniformStickyPartitioner(Random(seed), murmur2), [10] * 200, keys=keys)
    assert chosen[::2] == murmur2.partitions(pa.array(keys[::2]), 3).tolist()
    batches = [chosen[1::2][start : start + 10] for start in range(0, 100, 10)]
    assert all(len(set(batch)) == 1 for batch in batches)
    assert all(one[0] != other[0] for one, other in pairwise(batches))


def test_with_a_key_hash_a_keyed_row_that_names_its_partition_keeps_it():
    explicit = np.array([2, NOT_GIVEN, 1], np.int32)
    keys = [b"foobar", b"foobar", None]
    chosen = partition(UniformStickyPartitioner(Random(1), murmur2), [10] * 3, keys=keys, explicit=explicit)
    assert chosen == [2, int(murmur2.partitions(pa.array([b"foobar"]), 3)[0]), 1]


# Round robin.

ALL = PartitionLoad((0, 1, 2), (0, 0, 0))


def by_turns(chooser, count, *, topic="t", explicit=None, load=ALL):
    columns = RecordColumns(key=pa.array([b"same"] * count), value=pa.array([b"v"] * count))
    return chooser.partition(topic, columns, explicit, np.full(count, 10), 3, load).tolist()


def test_rows_take_turns_whatever_their_keys_and_go_on_in_the_next_call():
    chooser = RoundRobinPartitioner()
    assert by_turns(chooser, 4) == [0, 1, 2, 0]
    assert by_turns(chooser, 3) == [1, 2, 0]


def test_each_topic_has_turns_of_its_own():
    chooser = RoundRobinPartitioner()
    by_turns(chooser, 1)
    assert by_turns(chooser, 2, topic="u") == [0, 1]


def test_a_row_that_names_its_partition_takes_no_turn():
    explicit = np.array([NOT_GIVEN, 2, NOT_GIVEN], np.int32)
    assert by_turns(RoundRobinPartitioner(), 3, explicit=explicit) == [0, 2, 1]
    assert explicit.tolist() == [NOT_GIVEN, 2, NOT_GIVEN]


def test_only_available_partitions_take_part():
    assert by_turns(RoundRobinPartitioner(), 4, load=PartitionLoad((0, 2), (0, 0))) == [0, 2, 0, 2]


def test_all_partitions_take_part_while_none_is_available():
    assert by_turns(RoundRobinPartitioner(), 4, load=PartitionLoad((), ())) == [0, 1, 2, 0]
