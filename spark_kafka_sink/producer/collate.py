"""Partition and collate: which records go to which broker, as one batch for each of its partitions.

(Kafka 0.8: ``DefaultEventHandler.partitionAndCollate`` and ``groupMessagesToSet``.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from spark_kafka_sink.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.append.pending_records import encode_headers
from spark_kafka_sink.append.record import Headers
from spark_kafka_sink.model import NO_IDENTITY, NO_LEADER, ClusterSnapshot, TopicPartition
from spark_kafka_sink.partitioning.partitioner import NOT_GIVEN, Partitioner, PartitionLoad
from spark_kafka_sink.records.batch import NO_SEQUENCE
from spark_kafka_sink.records.columns import RecordColumns, bytes_column


@dataclass(frozen=True, slots=True)
class Message:
    """A record as it will be stored. ``place`` is its index in the call it came with, ``size`` Java's estimate."""

    place: int
    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None
    timestamp: int
    headers: Headers
    size: int


class Collator:
    """Unkeyed records of a topic all go to one random partition until ``forget``; keyed ones as ``partitioner`` says.

    ``ignore_keys``: ``partitioner.ignore.keys``.
    """

    def __init__(self, partitioner: Partitioner, ignore_keys: bool, random: Random) -> None:
        self._partitioner = partitioner
        self._ignore_keys = ignore_keys
        self._random = random
        self._unkeyed: dict[str, int] = {}

    def forget(self) -> None:
        """The metadata was refreshed: topics choose anew for their unkeyed records."""
        self._unkeyed.clear()

    def by_leader(
        self, messages: Sequence[Message], snapshot: ClusterSnapshot
    ) -> dict[int, dict[TopicPartition, list[Message]]]:
        """Leader → partition → its messages in their order; under ``NO_LEADER`` those that nobody can take now."""
        collated: dict[int, dict[TopicPartition, list[Message]]] = {}
        for topic, group in _by_topic(messages):
            count = snapshot.partition_counts.get(topic)
            chosen = [0] * len(group) if count is None else self._partitions(topic, group, snapshot, count)
            for message, partition in zip(group, chosen, strict=True):
                name = TopicPartition(topic, partition)
                collated.setdefault(snapshot.leader(name), {}).setdefault(name, []).append(message)
        return collated

    def _partitions(self, topic: str, group: list[Message], snapshot: ClusterSnapshot, count: int) -> list[int]:
        available = tuple(p for p in range(count) if snapshot.leader(TopicPartition(topic, p)) != NO_LEADER)
        explicit = np.array([self._named(message, available or range(count)) for message in group], np.int32)
        columns = RecordColumns(
            bytes_column([each.key for each in group]), bytes_column([each.value for each in group])
        )
        sizes = np.array([message.size for message in group], np.int64)
        load = PartitionLoad(available, (0,) * len(available))
        chosen: list[int] = self._partitioner.partition(topic, columns, explicit, sizes, count, load).tolist()
        return chosen

    def _named(self, message: Message, available: Sequence[int]) -> int:
        if message.partition is not None:
            return message.partition
        if message.key is not None and not self._ignore_keys:
            return NOT_GIVEN
        if message.topic not in self._unkeyed:
            self._unkeyed[message.topic] = self._random.choice(available)
        return self._unkeyed[message.topic]


def batch_of(partition: TopicPartition, messages: Sequence[Message], codec: str, level: int | None) -> ProducerBatch:
    """One batch without producer id."""
    timestamps = np.array([message.timestamp for message in messages], np.int64)
    columns = RecordColumns(
        bytes_column([message.key for message in messages]),
        bytes_column([message.value for message in messages]),
        bytes_column([encode_headers(message.headers) for message in messages]),
    )
    batch = ProducerBatch.of_columns(partition, 0.0, columns, timestamps, codec, level)
    batch.stamp(NO_IDENTITY, NO_SEQUENCE)
    return batch


def chunks(messages: Sequence[Message], limit: int) -> Iterator[Sequence[Message]]:
    """Cuts messages, in their order, so that no more than ``limit`` bytes go at once; one larger one goes alone."""
    start = size = 0
    for index, message in enumerate(messages):
        if index > start and size + message.size > limit:
            yield messages[start:index]
            start, size = index, 0
        size += message.size
    if start < len(messages):
        yield messages[start:]


def _by_topic(messages: Sequence[Message]) -> Iterator[tuple[str, list[Message]]]:
    groups: dict[str, list[Message]] = {}
    for message in messages:
        groups.setdefault(message.topic, []).append(message)
    yield from groups.items()
