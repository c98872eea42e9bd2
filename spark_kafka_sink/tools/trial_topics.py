"""The topics of a trial, which are created and thrown away, or are the user's and stay, and their readers."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from typing import Final, NamedTuple

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.errors import BrokerError, KafkaError, UnsupportedVersionError
from spark_kafka_sink.exactly_once.committer import Cluster
from spark_kafka_sink.exactly_once.ledger import PartitionLog
from spark_kafka_sink.network.error_table import FORBIDDEN
from spark_kafka_sink.network.topics import NewTopic, create_topic, delete_topic, why_not_created
from spark_kafka_sink.tools.findings import Outcome

DEFAULT_PREFIX: Final = "pykafka-selftest"
_MAX_NAME_LENGTH: Final = 249
"""The most characters of a topic's name (Kafka: ``Topic.MAX_NAME_LENGTH``)."""
_PARTITIONS: Final = 4
_MAX_REPLICAS: Final = 3
_SOON_MS: Final = 20.0

KeyAndValue = tuple[bytes | None, bytes | None]


def throw_away_name(prefix: str, suffix: str) -> str:
    """A topic's name that begins with ``prefix``, so that prefixed ACLs of real topics apply to it."""
    return f"{prefix[: _MAX_NAME_LENGTH - len(suffix) - 1]}-{suffix}"


class Existing(NamedTuple):
    """The user's topics, which are neither created nor deleted; None: the run makes its own."""

    topic: str | None = None
    ledger: str | None = None


OWN: Final = Existing()


class TrialTopics:
    """Topics that are created and deleted by this process, or exist already. Each method takes at most
    ``max.block.ms``; ``read`` may take that long between two lists of records.

    It reads with librdkafka if confluent-kafka is installed and can log in. Otherwise it uses the package's own slow
    reader, which shares no code with the encoder (``exactly_once/decode.py``).
    """

    def __init__(self, cluster: Cluster, config: ProducerConfig, existing: Existing = OWN) -> None:
        self._cluster = cluster
        self._config = config
        self._existing = existing
        self._names: list[str] = []
        self._by_librdkafka = True
        self.reader = ""
        """The reader that has read the topics so far."""

    def also_delete(self, name: str) -> None:
        """Notes a topic for deletion that something else may create, unless it is the user's."""
        if name not in (*self._existing, *self._names):
            self._names.append(name)

    def forget(self, name: str) -> None:
        """Does not delete the topic, because it was refused and does not exist."""
        self._names.remove(name)

    def create(self, name: str) -> None:
        """Creates a topic, and returns when the brokers know it and its leaders. Raises ``KafkaError``."""
        if name == self._existing.topic:
            return
        self.also_delete(name)
        try:
            try:
                create_topic(self._cluster, NewTopic(name, _PARTITIONS), self._deadline())
            except UnsupportedVersionError:  # brokers before 2.4 have no default replication factor for requests
                replicas = min(_MAX_REPLICAS, len(self._cluster.node_ids(self._deadline())))
                create_topic(self._cluster, NewTopic(name, _PARTITIONS, replicas), self._deadline())
        except BrokerError as error:
            if error.code in FORBIDDEN:  # with another error, the topic may have been created
                self.forget(name)
            raise KafkaError(f"topic {name} could not be created: {why_not_created(error)}") from error
        deadline = self._deadline()
        while (info := self._cluster.topic(name, deadline)) is None or info.partition_count < _PARTITIONS:
            self._cluster.check_time(deadline, f"topic {name} is not in the brokers' metadata")
            self._cluster.pause(_SOON_MS)

    def require_empty(self) -> None:
        """Raises ``KafkaError`` unless the user's topic, if there is one, exists and has no record."""
        if (name := self._existing.topic) is not None:
            for log in self._logs(name):
                if log.earliest(self._deadline()) < log.latest(self._deadline()):
                    raise KafkaError(
                        f"topic {name} has records: give an empty topic, because selftest reads all its records"
                    )

    def _logs(self, name: str) -> list[PartitionLog]:
        if (info := self._cluster.topic(name, self._deadline())) is None:
            raise KafkaError(f"there is no topic {name}")
        return [PartitionLog(self._cluster, TopicPartition(name, each)) for each in range(info.partition_count)]

    def read(self, name: str) -> Iterator[list[KeyAndValue]]:
        """Yields all committed records, in lists as they are fetched. Raises ``KafkaError``."""
        logs = self._logs(name)
        for log in logs:
            self._await_committed_end(log)
        if self._by_librdkafka:
            count = 0
            try:
                from spark_kafka_sink.tools.librdkafka import librdkafka_options, read_topic

                for messages in read_topic(librdkafka_options(self._config), name, len(logs)):
                    self.reader = f"confluent-kafka {metadata.version('confluent-kafka')}"
                    count += len(messages)
                    yield [(message.key(), message.value()) for message in messages]
                return
            except (ImportError, KafkaError):
                # If librdkafka has begun to read and then fails, it does not lack a library or a login: the test has
                # failed.
                if count:
                    raise
                self._by_librdkafka = False
        self.reader = "the package's own reader"
        for log in logs:
            end = log.latest(self._deadline())
            for batch in log.batches_before(end, self._deadline()):
                yield [(record.key, record.value) for record in batch.records()]

    def delete(self) -> Iterator[tuple[Outcome, str]]:
        """Deletes the topics that may exist. Without the right to delete a topic, it stays, which is not a failure."""
        deadline = self._deadline()
        while self._names:
            ended = self._deleted(self._names[0], deadline)
            del self._names[0]
            yield ended

    def _deleted(self, name: str, deadline: float) -> tuple[Outcome, str]:
        try:
            delete_topic(self._cluster, name, deadline)
        except KafkaError as error:
            if isinstance(error, BrokerError) and error.code in FORBIDDEN:
                return Outcome.UNTESTED, (
                    f"topic {name} stays, because the principal may not delete it ({error.name}). Writes do not need "
                    "that right: delete the topic yourself"
                )
            return Outcome.FAILED, f"topic {name} could not be deleted, so delete it yourself: {error}"
        return Outcome.OK, f"topic {name} (DELETE on the topic)"

    def _await_committed_end(self, log: PartitionLog) -> None:
        """Returns when a read_committed reader can read up to the end of the log. The coordinator answers EndTxn before
        it has written the transaction's markers, so Spark's job may have ended before its last rows can be read.
        """
        end, patience = log.latest(self._deadline()), log.progress_deadline(self._deadline())
        while (fetched := log.fetch(end, patience.deadline, read_committed=True)) is None or fetched.end < end:
            patience.wait(f"cannot be read up to offset {end}")

    def _deadline(self) -> float:
        return self._cluster.now() + self._config.max_block_ms
