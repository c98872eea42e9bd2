"""Requests about brokers and topics, on the caller's thread."""

from __future__ import annotations

from collections.abc import Iterable

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import TopicInfo
from spark_kafka_sink.errors import KafkaTimeoutError, NetworkError
from spark_kafka_sink.exactly_once.committer import CONNECTIONS
from spark_kafka_sink.network.error_table import Action, action, broker_error
from spark_kafka_sink.network.metadata_api import parse_metadata
from spark_kafka_sink.network.rpc import Rpc
from spark_kafka_sink.network.topics import topic_metadata


class Cluster(Rpc):
    """A client with requests about brokers and topics. Its methods raise ``KafkaTimeoutError`` at ``deadline``
    (monotonic ms), and ``BrokerError`` for codes that are not retried.
    """

    def __init__(self, config: ProducerConfig, clock: Clock) -> None:
        super().__init__(config, clock, connections=CONNECTIONS)
        self.servers = ",".join(f"{host}:{port}" for host, port in config.bootstrap_servers)

    def epoch_ms(self) -> int:
        """The time of the wall clock, which runs on while the machine is suspended."""
        return self._clock.epoch_ms()

    def node_ids(self, deadline: float) -> list[int]:
        """The ids of all brokers."""
        self.await_brokers(deadline)
        return sorted(self.snapshot.nodes)

    def topic(self, name: str, deadline: float) -> TopicInfo | None:
        """The topic, or None if it does not exist. Never creates it."""
        found = parse_metadata(topic_metadata(self, [name], deadline))
        info = found.topics.get(name)
        if info is None:
            raise NetworkError(found.inconsistent.get(name, f"The Metadata response lacks topic {name}"))
        code = ErrorCode(info.error)
        if code is ErrorCode.unknown_topic_or_partition:
            return None
        if action("metadata", code) is Action.FAIL:
            raise broker_error(code, f"Metadata of topic {name}")
        return info

    def topics(self, names: Iterable[str], deadline: float) -> dict[str, TopicInfo | None]:
        """The topics, by one request: None for one that does not exist. Leaves out topics with another error."""
        topics = parse_metadata(topic_metadata(self, [*names], deadline)).topics
        return {
            name: info if info.error == ErrorCode.none.value else None
            for name, info in topics.items()
            if ErrorCode(info.error) in (ErrorCode.none, ErrorCode.unknown_topic_or_partition)
        }

    def replicas(self, name: str, deadline: float) -> list[list[int]]:
        """The replica nodes of each partition of an existing topic, the preferred leader first."""
        topics = topic_metadata(self, [name], deadline).topics
        partitions = [each for topic in topics if topic.name == name for each in topic.partitions]
        return [list(map(int, each.replica_nodes)) for each in sorted(partitions, key=lambda p: p.partition_index)]

    def check_time(self, deadline: float, what: str) -> None:
        if self.now() >= deadline:
            raise KafkaTimeoutError(f"{what} in time")
