"""Committed offsets of consumer groups, and offsets that wait for their transaction (Kafka: ``OffsetMetadataManager``).

Emulated: each commit is a record of ``__consumer_offsets``, which is created when a group is first asked for; the
leader of a group's partition is its coordinator. A commit counts when the high watermark is behind its record. The
commits of a transaction are transactional records, and count when the watermark is behind the marker that commits it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.records.batch import TRANSACTIONAL
from spark_kafka_sink.testing.broker.state.cluster import ClusterState
from spark_kafka_sink.testing.broker.state.internal_topics import OFFSETS_TOPIC, coordinator_partition
from spark_kafka_sink.testing.broker.state.offset_records import CommittedOffset, offset_batch, offset_key, offset_value
from spark_kafka_sink.testing.broker.state.partition import ALL_REPLICAS, Partition

NOTHING_COMMITTED = CommittedOffset(-1)


@dataclass(frozen=True, eq=False, slots=True)
class Commit:
    """Offsets of a group in the log of ``partition``; the high watermark must reach ``end_offset``."""

    group: str
    offsets: Mapping[TopicPartition, CommittedOffset]
    partition: Partition
    end_offset: int


class GroupOffsets:
    """All groups of the cluster: group id to partition to offset.

    ``acks``: the acks with which a coordinator appends. Before Kafka 4.0 it is all. Since then it is 1, after which the
    coordinator waits for the high watermark, so that too few in-sync replicas only lead to a timeout.
    """

    def __init__(self, cluster: ClusterState, value_version: int, acks: int) -> None:
        self._cluster = cluster
        self._value_version = value_version
        self._acks = acks
        self._topic_id: uuid.UUID | None = None
        self._committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._appended: list[Commit] = []
        self._pending: dict[int, list[Commit]] = {}

    def partition(self, group: str) -> Partition:
        """The partition of ``__consumer_offsets`` that holds the group; its leader is the group's coordinator."""
        topic = self._cluster.internal_topic(OFFSETS_TOPIC)
        self._forget_with_topic()
        return topic.partitions[coordinator_partition(group, len(topic.partitions))]

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        now_ms: int,
        producer: tuple[int, int] | None = None,
    ) -> Commit:
        """Append a commit. Raises ``ApiError``.

        ``producer``: the id and epoch of a transactional producer, whose offsets count when its transaction commits.
        """
        records = [
            (offset_key(group, name), offset_value(self._value_version, each, now_ms)) for name, each in offsets.items()
        ]
        if producer is None:
            batch = offset_batch(records, now_ms)
        else:
            batch = offset_batch(records, now_ms, TRANSACTIONAL, producer)
        partition = self.partition(group)
        commit = Commit(group, offsets, partition, partition.append_internal(batch, self._acks).end_offset)
        (self._appended if producer is None else self._pending.setdefault(producer[0], [])).append(commit)
        return commit

    @property
    def waits_itself(self) -> bool:
        """Whether the coordinator waits for the high watermark, not the append."""
        return self._acks != ALL_REPLICAS

    def outcome(self, commit: Commit) -> ErrorCode | None:
        """The error code of the append, as in a Produce response; None while it waits for the high watermark."""
        partition = commit.partition
        if self._cluster.partition(*partition.name) is not partition:
            return ErrorCode.unknown_topic_or_partition
        if partition.high_watermark < commit.end_offset:
            return None
        if not self.waits_itself and not partition.has_enough_replicas():
            return ErrorCode.not_enough_replicas_after_append
        return ErrorCode.none

    def failed(self, commit: Commit) -> None:
        """Notes that the committer got an error. Before Kafka 4.0, these offsets then never count."""
        if not self.waits_itself:
            for commits in (self._appended, *self._pending.values()):
                commits[:] = [each for each in commits if each is not commit]

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Notes that the markers of the transaction are in the logs."""
        for commit in self._pending.pop(producer_id, []):
            if committed:
                self._appended.append(replace(commit, end_offset=commit.partition.log.end_offset))

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that have committed offsets."""
        self._count_replicated()
        return tuple(self._committed)

    def of(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """The group's offsets that count."""
        self._count_replicated()
        return MappingProxyType(self._committed.get(group, {}))

    def is_unstable(self, group: str, partition: TopicPartition) -> bool:
        """Whether an open transaction holds another offset for the partition."""
        every = (commit for commits in self._pending.values() for commit in commits)
        return any(commit.group == group and partition in commit.offsets for commit in every)

    def _count_replicated(self) -> None:
        self._forget_with_topic()
        waiting: list[Commit] = []
        for commit in self._appended:
            if commit.partition.high_watermark < commit.end_offset:
                waiting.append(commit)
            else:
                self._committed.setdefault(commit.group, {}).update(commit.offsets)
        self._appended = waiting

    def _forget_with_topic(self) -> None:
        """Forgets the offsets of a deleted topic."""
        topic = self._cluster.topics.get(OFFSETS_TOPIC)
        topic_id = None if topic is None else topic.id
        if topic_id != self._topic_id:
            self._topic_id = topic_id
            self._committed.clear()
            self._appended.clear()
            self._pending.clear()
