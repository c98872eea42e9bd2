"""``Topics``: facts about topics that a task asks for, on the producer's connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import ClusterSnapshot
from spark_kafka_sink.common.waiting import Wakeable
from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.network.metadata import Metadata

_RECENT_MS = 200.0
"""Limits the requests of a producer that writes many short tasks. A topic that was deleted and created again in less
time would fail the task, as if that had happened while it wrote."""


class Topics:
    """For any thread but the sender's. Waits for metadata up to max.block.ms, and raises as ``Metadata`` does."""

    def __init__(
        self,
        config: ProducerConfig,
        metadata: Metadata,
        clock: Clock,
        sender: Wakeable,
    ) -> None:
        self._max_block_ms = config.max_block_ms
        self._metadata = metadata
        self._clock = clock
        self._sender = sender

    def wait_for(self, topic: str) -> ClusterSnapshot:
        """A snapshot of the cluster that has the topic."""
        return self._metadata.wait_for_topic(topic, None, self._max_block_ms, self._clock, self._sender.wakeup)

    def partition_count(self, topic: str) -> int:
        """Number of partitions of ``topic``."""
        return self.wait_for(topic).topics[topic].partition_count

    def refreshed_partition_count(self, topic: str) -> int | None:
        """Number of partitions in the next metadata response; None: there is no such topic."""
        return self._metadata.refreshed_partition_count(topic, self._max_block_ms, self._clock, self._sender.wakeup)

    def has(self, topic: str) -> bool:
        """Whether the metadata has the topic."""
        return topic in self._metadata.snapshot.partition_counts

    def exists(self, topic: str, patience_ms: float) -> bool:
        """False if the brokers still say after ``patience_ms`` that there is no such topic. The producer does not let
        them create it, now or later."""
        self._metadata.not_created.add(topic)
        timeout_ms = min(patience_ms, self._max_block_ms)
        try:
            self._metadata.wait_for_topic(topic, None, timeout_ms, self._clock, self._sender.wakeup)
        except KafkaTimeoutError as error:
            return error.missing_topic is None
        return True

    def refresh(self) -> int:
        """Requests a metadata update, without waiting for it; returns ``after`` for ``ids``. A response that came just
        now counts as the update."""
        before = self._metadata.round
        if self._metadata.updated_at > self._clock.now() - _RECENT_MS:
            return before - 1
        self._metadata.request_update(at_once=True)
        self._sender.wakeup()
        return before

    def id(self, topic: str) -> UUID | None:
        """The topic's id, which a topic made again under the same name does not share. None while it is unknown."""
        info = self._metadata.snapshot.topics.get(topic)
        return None if info is None else info.topic_id

    def ids(self, topics: Sequence[str], after: int) -> Mapping[str, UUID | None]:
        """The ids of existing topics, None from brokers that have none. Waits for a metadata response since the
        ``refresh`` that returned ``after``, because an earlier one may have the id of a topic that was deleted since.
        After max.block.ms it returns what is known: an old id is one that commit refuses.
        """
        deadline = self._clock.now() + self._max_block_ms
        self._metadata.wait_for_topics(dict.fromkeys(topics), self._max_block_ms, self._clock, self._sender.wakeup)
        self._metadata.await_round(after, deadline - self._clock.now(), self._clock)
        return {topic: self.id(topic) for topic in topics}
