"""``RowPartitioning``: the choice of a partition for each row of a call, or for records of ``send``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from spark_kafka_sink.common.model import ClusterSnapshot
from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.kafka_partitioners import BuiltInPartitioner
from spark_kafka_sink.producer.partitioner import (
    NO_PARTITION,
    BatchRooms,
    Partitioner,
    PartitionLoad,
    Partitions,
    fresh_partitions,
)
from spark_kafka_sink.producer.rows import Order, Rows, TopicPartitions
from spark_kafka_sink.records.arrays import Int32Array, bytes_column
from spark_kafka_sink.records.columns import RecordColumns


@dataclass(frozen=True, slots=True, eq=False)
class RowPartitioning:
    """Asks the partitioner for all rows of a call. Any thread may call it. ``joins``: rows go into open batches, as
    records of ``send`` do, so unkeyed rows continue the topic's sticky run. Otherwise each call begins runs of its own,
    of equal bytes.
    """

    partitioner: Partitioner
    accumulator: RecordAccumulator
    joins: bool

    def choose(self, snapshot: ClusterSnapshot, known: TopicPartitions, rows: Rows) -> Int32Array:
        """The number of each row's partition in ``known``. Keys are hashed over all rows at once. Rows without keys go
        topic by topic, and so do all rows with another partitioner, unless all of them name their partitions.
        """
        codes = rows.topics.codes
        counts = len(known) if codes is None else known.counts[codes]
        if isinstance(self.partitioner, BuiltInPartitioner):
            partitions = self.partitioner.by_key(rows.columns, rows.named, counts)
            left = np.flatnonzero(partitions == NO_PARTITION)
        else:
            partitions = fresh_partitions(rows.named, len(rows.columns))
            left = np.arange(len(partitions) if (partitions == NO_PARTITION).any() else 0)
        for topic, chosen in rows.topics.groups(left):
            partitions[chosen] = self._of_topic(snapshot, topic, rows, chosen)
        return partitions if codes is None else partitions + known.firsts[codes]

    def of_records(
        self, snapshot: ClusterSnapshot, topic: str, keys: Sequence[bytes | None], named: Partitions, sizes: list[int]
    ) -> list[int]:
        """The partitions that the built-in partitioner chooses for records of one topic."""
        assert isinstance(self.partitioner, BuiltInPartitioner)
        count, load = len(snapshot.topics[topic].leaders), self._load(snapshot, topic)
        if named is None and keys.count(None) == len(keys):
            chosen = self.partitioner.assign(topic, np.array(sizes), count, load)
        else:
            columns = RecordColumns(bytes_column(keys))
            chosen = self.partitioner.partition(topic, columns, named, np.array(sizes), count, load)
        partitions: list[int] = chosen.tolist()
        return partitions

    def _of_topic(self, snapshot: ClusterSnapshot, topic: str, rows: Rows, chosen: Order) -> Int32Array:
        """The partitions that the partitioner chooses for some rows of a topic."""
        count, load = len(snapshot.topics[topic].leaders), self._load(snapshot, topic)
        if isinstance(self.partitioner, BuiltInPartitioner):
            if self.joins:
                return self.partitioner.assign(topic, rows.sizes[chosen], count, load)
            return self.partitioner.spread(rows.sizes[chosen], self.accumulator.column_batch_limit(topic), count, load)
        part = rows if rows.topics.codes is None else rows.take(chosen)
        try:
            return self.partitioner.partition(topic, part.columns, part.named, part.sizes, count, load)
        except InvalidRecordError as error:
            if error.row is not None:
                error.row = int(chosen[error.row])
            raise

    def _load(self, snapshot: ClusterSnapshot, topic: str) -> PartitionLoad:
        """The topic's available partitions, and how many batches wait in each."""
        accumulator = self.accumulator
        available = snapshot.topics[topic].available(accumulator.nodes.unavailable)
        rooms = (
            BatchRooms(topic, accumulator.batch_limit(topic), accumulator.open_room)
            if self.joins
            else BatchRooms(topic, accumulator.column_batch_limit(topic))
        )
        return PartitionLoad(available, snapshot, topic, partial(accumulator.queue_lengths, topic), rooms)
