import numpy as np
import pyarrow as pa

from spark_kafka_sink.producer.partitioning.kafka_partitioners import RoundRobinPartitioner
from spark_kafka_sink.producer.partitioning.partitioner import NOT_GIVEN, PartitionLoad
from spark_kafka_sink.records.columns import RecordColumns

ALL = PartitionLoad((0, 1, 2), (0, 0, 0))


def rows(count: int) -> RecordColumns:
    return RecordColumns(key=pa.array([b"same"] * count), value=pa.array([b"v"] * count))


def partition(chooser, count, *, topic="t", explicit=None, load=ALL):
    return chooser.partition(topic, rows(count), explicit, np.full(count, 10), 3, load).tolist()


def test_rows_take_turns_whatever_their_keys_and_go_on_in_the_next_call():
    chooser = RoundRobinPartitioner()
    assert partition(chooser, 4) == [0, 1, 2, 0]
    assert partition(chooser, 3) == [1, 2, 0]


def test_each_topic_has_turns_of_its_own():
    chooser = RoundRobinPartitioner()
    partition(chooser, 1)
    assert partition(chooser, 2, topic="u") == [0, 1]


def test_a_row_that_names_its_partition_takes_no_turn():
    explicit = np.array([NOT_GIVEN, 2, NOT_GIVEN], np.int32)
    assert partition(RoundRobinPartitioner(), 3, explicit=explicit) == [0, 2, 1]
    assert explicit.tolist() == [NOT_GIVEN, 2, NOT_GIVEN]


def test_only_available_partitions_take_part():
    assert partition(RoundRobinPartitioner(), 4, load=PartitionLoad((0, 2), (0, 0))) == [0, 2, 0, 2]


def test_all_partitions_take_part_while_none_is_available():
    assert partition(RoundRobinPartitioner(), 4, load=PartitionLoad((), ())) == [0, 1, 2, 0]
