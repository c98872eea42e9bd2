"""Committed offsets of consumer groups, and those that wait for their transaction (Kafka: ``OffsetMetadataManager``).

Emulated: each commit is a record of ``__consumer_offsets``, which is created when a group is first asked for; the
leader of a group's partition is its coordinator; the commits of a transaction are transactional records and count when
it commits.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import MappingProxyType

from spark_kafka_sink.model import TopicPartition
from spark_kafka_sink.records.batch import TRANSACTIONAL
from spark_kafka_sink.testing.broker.state.cluster import Cluster
from spark_kafka_sink.testing.broker.state.internal_topics import OFFSETS_TOPIC, coordinator_partition
from spark_kafka_sink.testing.broker.state.offset_records import (
    CommittedOffset,
    offset_batch,
    offset_key,
    offset_value,
)
from spark_kafka_sink.testing.broker.state.partition import Partition

NOTHING_COMMITTED = CommittedOffset(-1)


class GroupOffsets:
    """All groups of the cluster: group id to partition to offset."""

    def __init__(self, cluster: Cluster, value_version: int) -> None:
        self._cluster = cluster
        self._value_version = value_version
        self._committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._topic_id: uuid.UUID | None = None
        self._pending: dict[int, list[tuple[str, TopicPartition, CommittedOffset]]] = {}

    def partition(self, group: str) -> Partition:
        """The partition of ``__consumer_offsets`` that holds the group; its leader is the group's coordinator."""
        topic = self._cluster.internal_topic(OFFSETS_TOPIC)
        self._forget_with_topic()
        return topic.partitions[coordinator_partition(group, len(topic.partitions))]

    def commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], now_ms: int) -> None:
        if offsets:
            self._append(group, offsets, now_ms)
            self._committed.setdefault(group, {}).update(offsets)

    def commit_in_transaction(
        self, producer: tuple[int, int], group: str, offsets: Mapping[TopicPartition, CommittedOffset], now_ms: int
    ) -> None:
        """``producer``: id and epoch. The offsets count when the transaction commits."""
        if offsets:
            self._append(group, offsets, now_ms, TRANSACTIONAL, producer)
            self._pending.setdefault(producer[0], []).extend((group, *each) for each in offsets.items())

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        for group, partition, offset in self._pending.pop(producer_id, []):
            if committed:
                self._committed.setdefault(group, {})[partition] = offset

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that have committed something."""
        return tuple(self._committed)

    def of(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        self._forget_with_topic()
        return MappingProxyType(self._committed.get(group, {}))

    def is_unstable(self, group: str, partition: TopicPartition) -> bool:
        """Whether an open transaction holds another offset for it."""
        return any((group, partition) == pending[:2] for held in self._pending.values() for pending in held)

    def _forget_with_topic(self) -> None:
        """Offsets are gone when their topic is deleted."""
        topic = self._cluster.topics.get(OFFSETS_TOPIC)
        topic_id = None if topic is None else topic.id
        if topic_id != self._topic_id:
            self._topic_id = topic_id
            self._committed.clear()
            self._pending.clear()

    def _append(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        now_ms: int,
        attributes: int = 0,
        producer: tuple[int, int] = (-1, -1),
    ) -> None:
        records = [
            (offset_key(group, name), offset_value(self._value_version, each, now_ms)) for name, each in offsets.items()
        ]
        self.partition(group).append_internal(offset_batch(records, now_ms, attributes, producer))
