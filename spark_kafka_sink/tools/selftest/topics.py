"""The topics of a self-test: created, read back and deleted on the caller's thread."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from importlib import metadata
from typing import Final

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.errors import BrokerError, KafkaError, UnsupportedVersionError
from spark_kafka_sink.exactly_once.committer import Cluster
from spark_kafka_sink.exactly_once.ledger import PartitionLog
from spark_kafka_sink.network.error_table import FORBIDDEN
from spark_kafka_sink.network.topics import NewTopic, create_topic, why_not_created
from spark_kafka_sink.tools.connection_check.findings import Outcome
from spark_kafka_sink.tools.connection_check.throw_away import thrown_away

_PARTITIONS: Final = 4
_MOST_REPLICAS: Final = 3
_SOON_MS: Final = 20.0

KeyAndValue = tuple[bytes | None, bytes | None]


class Topics:
    """Topics that are created and deleted by this process. Each method takes at most ``max.block.ms``; ``read`` may
    take that long between two lists of records.

    It reads with librdkafka if confluent-kafka is installed and can log in. Otherwise it uses the package's own slow
    reader, which shares no code with what has encoded the records (``exactly_once/decode.py``).
    """

    def __init__(self, cluster: Cluster, config: ProducerConfig) -> None:
        self._cluster = cluster
        self._config = config
        self._names: list[str] = []
        self._has_librdkafka = importlib.util.find_spec("confluent_kafka") is not None
        self.reader = ""
        """The reader that has read the topics so far."""

    def also_delete(self, name: str) -> None:
        """Remembers a topic that something else may create."""
        if name not in self._names:
            self._names.append(name)

    def create(self, name: str) -> None:
        """Creates a topic, and returns when the brokers know it and its leaders. Raises ``KafkaError``."""
        self.also_delete(name)
        try:
            try:
                create_topic(self._cluster, NewTopic(name, _PARTITIONS), self._deadline())
            except UnsupportedVersionError:  # brokers before 2.4 have no default replication factor for requests
                replicas = min(_MOST_REPLICAS, len(self._cluster.node_ids(self._deadline())))
                create_topic(self._cluster, NewTopic(name, _PARTITIONS, replicas), self._deadline())
        except BrokerError as error:
            if error.code in FORBIDDEN:  # with another error, the topic may have been created
                self._names.remove(name)
            raise KafkaError(f"topic {name} could not be created: {why_not_created(error)}") from error
        deadline = self._deadline()
        while (info := self._cluster.topic(name, deadline)) is None or info.partition_count < _PARTITIONS:
            self._cluster.check_time(deadline, f"topic {name} is not in the brokers' metadata")
            self._cluster.pause(_SOON_MS)

    def read(self, name: str) -> Iterator[list[KeyAndValue]]:
        """Yields all committed records, in lists as they are fetched. Raises ``KafkaError``."""
        logs = [PartitionLog(self._cluster, TopicPartition(name, number)) for number in range(_PARTITIONS)]
        for log in logs:
            self._await_committed_end(log)
        if self._has_librdkafka:
            count = 0
            try:
                for records in self._read_by_librdkafka(name):
                    count += len(records)
                    yield records
                return
            except KafkaError:
                # What librdkafka has begun to read and cannot go on with is a failure, not a login that it lacks.
                if count:
                    raise
                self._has_librdkafka = False
        self.reader = "the package's own reader"
        for log in logs:
            end = log.latest(self._deadline())
            for batch in log.batches_before(end, self._deadline(), read_committed=True):
                yield [(record.key, record.value) for record in batch.records()]

    def delete(self) -> Iterator[str]:
        """Deletes the topics, and yields why one of them stays."""
        deadline = self._deadline()
        for name in self._names:
            outcome, text = thrown_away(self._cluster, name, deadline)
            if outcome is not Outcome.OK:
                yield text

    def _read_by_librdkafka(self, name: str) -> Iterator[list[KeyAndValue]]:
        try:
            from spark_kafka_sink.tools.selftest.librdkafka import librdkafka_options, read_topic
        except ImportError as error:  # such as an old version, or a library of the system that it lacks
            raise KafkaError(f"confluent-kafka cannot be imported: {error}") from error
        for messages in read_topic(librdkafka_options(self._config), name, _PARTITIONS):
            self.reader = f"confluent-kafka {metadata.version('confluent-kafka')}"
            yield [(each.key(), each.value()) for each in messages]

    def _await_committed_end(self, log: PartitionLog) -> None:
        """Returns when a read_committed reader can read up to the end of the log. The coordinator answers EndTxn before
        it has written the transaction's markers, so Spark's job may have ended before its last rows can be read.
        """
        end, patience = log.latest(self._deadline()), log.progress_deadline(self._deadline())
        while (fetched := log.fetch(end, patience.deadline, read_committed=True)) is None or fetched.end < end:
            patience.wait(f"cannot be read up to offset {end}")

    def _deadline(self) -> float:
        return self._cluster.now() + self._config.max_block_ms
