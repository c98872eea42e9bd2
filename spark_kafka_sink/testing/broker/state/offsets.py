"""Committed offsets of consumer groups, and those that wait for their transaction (Kafka: ``GroupMetadataManager``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from spark_kafka_sink.model import TopicPartition


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next offset to read, with the committer's metadata."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


NOTHING_COMMITTED = CommittedOffset(-1)


class GroupOffsets:
    """All groups of the cluster: group id to partition to offset."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._pending: dict[int, list[tuple[str, TopicPartition, CommittedOffset]]] = {}

    def commit(self, group: str, partition: TopicPartition, offset: CommittedOffset) -> None:
        self._committed.setdefault(group, {})[partition] = offset

    def commit_in_transaction(
        self, producer_id: int, group: str, partition: TopicPartition, offset: CommittedOffset
    ) -> None:
        self._pending.setdefault(producer_id, []).append((group, partition, offset))

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        for group, partition, offset in self._pending.pop(producer_id, []):
            if committed:
                self.commit(group, partition, offset)

    def of(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        return MappingProxyType(self._committed.get(group, {}))

    def is_unstable(self, group: str, partition: TopicPartition) -> bool:
        """Whether an open transaction holds another offset for it."""
        return any((group, partition) == pending[:2] for held in self._pending.values() for pending in held)
