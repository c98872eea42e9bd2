"""What the exactly-once protocol asks the brokers besides its transactions: nodes, topics, leaders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import KafkaTimeoutError, NetworkError
from spark_kafka_sink.model import TopicInfo, TopicPartition
from spark_kafka_sink.network.calls import Call, CodeAt
from spark_kafka_sink.network.error_table import Action, action, broker_error
from spark_kafka_sink.network.metadata import METADATA_VERSIONS, MetadataEntity, parse_metadata
from spark_kafka_sink.network.rpc import Rpc
from spark_kafka_sink.transactions.committer import CONNECTIONS


class Cluster:
    """Belongs to one thread. Every method raises ``KafkaTimeoutError`` when ``deadline`` (monotonic ms) has passed, and
    ``BrokerError`` for an error code that retries do not mend."""

    def __init__(self, config: ProducerConfig, clock: Clock) -> None:
        self.rpc = Rpc(config, clock, connections=CONNECTIONS)
        self.servers = ",".join(f"{host}:{port}" for host, port in config.bootstrap_servers)

    def close(self) -> None:
        self.rpc.close()

    def call(self, call: Call, deadline: float) -> Any:
        """The response's body. Raises ``BrokerGoneError`` when the call's node leaves the cluster."""
        return self.rpc.call(call, deadline)

    def node_ids(self, deadline: float) -> list[int]:
        """Every broker."""
        self.rpc.await_brokers(deadline)
        return sorted(self.rpc.snapshot.nodes)

    def topic(self, name: str, deadline: float) -> TopicInfo | None:
        """The topic's metadata, None if there is no such topic; never creates it."""
        info = parse_metadata(self._metadata([name], deadline)).topics.get(name)
        if info is None:
            raise NetworkError(f"The brokers' metadata says nothing of topic {name}, which was asked for")
        code = ErrorCode(info.error)
        if code is ErrorCode.unknown_topic_or_partition:
            return None
        if action("metadata", code) is Action.FAIL:
            raise broker_error(code, f"Metadata of topic {name}")
        return info

    def topic_ids(self, names: Iterable[str], deadline: float) -> dict[str, UUID | None]:
        """By one request; None for a topic that does not exist. Leaves out topics with another error."""
        ids: dict[str, UUID | None] = {}
        for name, info in parse_metadata(self._metadata([*names], deadline)).topics.items():
            code = ErrorCode(info.error)
            if code in (ErrorCode.none, ErrorCode.unknown_topic_or_partition):
                ids[name] = info.topic_id if code is ErrorCode.none else None
        return ids

    def replicas(self, name: str, deadline: float) -> list[list[int]]:
        """The replica nodes of each partition of an existing topic, the preferred leader first."""
        topics = self._metadata([name], deadline).topics
        partitions = [each for topic in topics if topic.name == name for each in topic.partitions]
        return [list(map(int, each.replica_nodes)) for each in sorted(partitions, key=lambda p: p.partition_index)]

    def forget_leader(self, partition: TopicPartition) -> None:
        """The next call finds the leader again: a former leader may still respond as if it were the leader."""
        self.rpc.calls.forget(partition)

    def now(self) -> float:
        """Monotonic ms, as in deadlines."""
        return self.rpc.now()

    def pause(self, ms: float) -> None:
        self.rpc.pause(ms)

    def check_time(self, deadline: float, what: str) -> None:
        if self.rpc.now() >= deadline:
            raise KafkaTimeoutError(f"{what} in time")

    def _metadata(self, topics: Sequence[str], deadline: float) -> Any:
        """Any response; the callers judge the topics' codes."""
        make = MetadataEntity(topics, allow_auto_topic_creation=False)
        return self.rpc.call(Call("metadata", METADATA_VERSIONS, None, make, _no_codes), deadline)


def _no_codes(_body: Any) -> tuple[CodeAt, ...]:
    return (CodeAt("Metadata", ErrorCode.none),)
