"""The topics that are thrown away: created, measured, read and deleted on the caller's thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.errors import BrokerError, KafkaError, UnsupportedVersionError
from spark_kafka_sink.exactly_once.cluster import Cluster
from spark_kafka_sink.exactly_once.partition_log import PartitionLog
from spark_kafka_sink.network.error_table import FORBIDDEN
from spark_kafka_sink.network.topics import NewTopic, create_topic, delete_topic, why_not_created
from spark_kafka_sink.tools.certification.rows import KeyAndValue

PARTITIONS: Final = 4
_MOST_REPLICAS: Final = 3
_SOON_MS: Final = 20.0
_GLANCE_MS: Final = 1_000.0


class ThrowAwayTopics:
    """``names``: those that may exist. Each request takes at most ``timeout_ms``."""

    def __init__(self, cluster: Cluster, timeout_ms: float) -> None:
        self.names: list[str] = []
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    def create(self, name: str) -> None:
        """Returns when the brokers know the topic and its leaders. Raises ``KafkaError``."""
        self.names.append(name)
        try:
            try:
                create_topic(self._cluster, NewTopic(name, PARTITIONS), self._deadline())
            except UnsupportedVersionError:  # brokers before 2.4 have no default replication factor for requests
                replicas = min(_MOST_REPLICAS, len(self._cluster.node_ids(self._deadline())))
                create_topic(self._cluster, NewTopic(name, PARTITIONS, replicas), self._deadline())
        except BrokerError as error:
            self.names.remove(name)
            raise KafkaError(f"topic {name} could not be created: {why_not_created(error)}") from error
        deadline = self._deadline()
        while (info := self._cluster.topic(name, deadline)) is None or info.partition_count < PARTITIONS:
            self._cluster.check_time(deadline, f"topic {name} is not in the brokers' metadata")
            self._cluster.pause(_SOON_MS)

    def end_offsets(self, name: str) -> int:
        """The sum of the end offsets: about the number of records. Raises ``KafkaError`` if it is not told soon."""
        deadline = self._cluster.now() + _GLANCE_MS
        return sum(log.latest(deadline) for log in self._logs(name))

    def read(self, name: str) -> Iterator[list[KeyAndValue]]:
        """All committed records, batch by batch, by the package's own slow reader, which shares no code with what has
        encoded them (``records/decode.py``).
        """
        for log in self._logs(name):
            end = log.latest(self._deadline())
            for batch in log.batches_before(end, self._deadline(), read_committed=True):
                yield [KeyAndValue(record.key, record.value) for record in batch.records()]

    def delete(self, name: str) -> str | None:
        """Deletes the topic, if it exists. Returns why it stays."""
        self.names.remove(name)
        try:
            delete_topic(self._cluster, name, self._deadline())
        except KafkaError as error:
            if isinstance(error, BrokerError) and error.code in FORBIDDEN:
                return f"topic {name} stays, because the principal may not delete it ({error.name})"
            return f"topic {name} could not be deleted: {error}"
        return None

    def _logs(self, name: str) -> list[PartitionLog]:
        return [PartitionLog(self._cluster, TopicPartition(name, number)) for number in range(PARTITIONS)]

    def _deadline(self) -> float:
        return self._cluster.now() + self._timeout_ms
