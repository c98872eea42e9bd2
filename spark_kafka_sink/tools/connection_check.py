"""The check: every bootstrap server, every broker, then what the principal may do. It writes nothing to the cluster."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from types import ModuleType
from typing import Any, Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import NO_LEADER, Node
from spark_kafka_sink.errors import ConfigError, ConnectionStep, KafkaError, UnsupportedVersionError
from spark_kafka_sink.exactly_once.values import driver_id, task_id
from spark_kafka_sink.network.api_versions import every
from spark_kafka_sink.network.error_table import TOPIC_ERRORS
from spark_kafka_sink.network.handshake import ChannelBuilder
from spark_kafka_sink.network.metadata_api import NOT_TOLD, MetadataEntity, Operation, names, operations, parse_metadata
from spark_kafka_sink.network.name_lookup import Server, bootstrap_servers
from spark_kafka_sink.network.selector import Selector
from spark_kafka_sink.network.topics import closest_topics
from spark_kafka_sink.tools.broker_connection import BrokerConnection
from spark_kafka_sink.tools.findings import Finding, Outcome

_WITHOUT_FENCED_BROKERS: Final = 1
_RIGHTS: Final = "rights"

_OF_TOPIC: Final = (Operation.DESCRIBE, Operation.WRITE)
_OF_LEDGER: Final = (Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What to check. ``transactional_id_prefix``: with it, also what exactly-once writes need."""

    config: ProducerConfig
    topic: str | None = None
    transactional_id_prefix: str | None = None
    ledger_topic: str = ""


def check(request: CheckRequest, clock: Clock) -> Generator[Finding, None, None]:
    """The findings, as they come. At most one connection to each address.

    After a refused login no further broker is tried: brokers log each attempt and may lock the user out.
    """
    config = request.config.with_client_id("adminclient")
    transport = Selector(config.send_buffer_bytes, config.receive_buffer_bytes)
    try:
        yield from _Check(replace(request, config=config), clock, transport).findings()
    finally:
        transport.shutdown()


class _Check:
    def __init__(self, request: CheckRequest, clock: Clock, transport: Selector) -> None:
        self._request = request
        self._clock = clock
        self._transport = transport
        self._numbers = count(1)
        self._tried: dict[str, BrokerConnection] = {}

    def findings(self) -> Iterator[Finding]:
        config = self._request.config
        try:
            channels = ChannelBuilder(config)
            servers = bootstrap_servers(config)
        except ConfigError as error:
            yield Finding("this machine", "options", Outcome.FAILED, str(error))
            return
        try:
            yield from self._cluster_findings(servers, channels)
        finally:
            channels.close()

    def _cluster_findings(self, servers: Sequence[Server], channels: ChannelBuilder) -> Iterator[Finding]:
        bootstrap = [Node(-1 - index, host, port) for index, (host, port) in enumerate(servers)]
        connection = yield from self._establish(bootstrap, channels)
        if connection is None:
            return
        try:
            nodes = yield from self._cluster(connection)
            yield from self._topic(connection)
            yield from self._ledger(connection)
            yield from self._transactional_ids(connection)
        except KafkaError as error:
            yield Finding(connection.subject, "request", Outcome.FAILED, str(error))
            return
        finally:
            connection.close()
        other = yield from self._establish(nodes, channels)  # the brokers that are not bootstrap servers
        if other is not None:
            other.close()

    def _establish(
        self, nodes: Sequence[Node], channels: ChannelBuilder
    ) -> Generator[Finding, None, BrokerConnection | None]:
        """Connects to each node; returns the first connection that works, still open."""
        working: BrokerConnection | None = None
        refused_by = ""
        for node in nodes:
            address = f"{node.host}:{node.port}"
            if address in self._tried:
                continue
            connection = BrokerConnection(
                node, self._request.config, channels, self._transport, self._clock, self._numbers
            )
            self._tried[address] = connection
            if refused_by:
                text = f"not tried: {refused_by} refused this client"
                yield Finding(address, ConnectionStep.DNS.value, Outcome.UNTESTED, text)
                continue
            yield from connection.establish()
            refused_by = connection.subject if connection.refused else ""
            if connection.is_ready and working is None:
                working = connection
            else:
                connection.close()
        return working

    def _cluster(self, connection: BrokerConnection) -> Generator[Finding, None, list[Node]]:
        """The brokers that the first one names."""
        began = self._clock.now()
        found = parse_metadata(self._metadata(connection, []))
        nodes = [found.nodes[node] for node in sorted(found.nodes)]
        brokers = ", ".join(f"{node.id} at {node.host}:{node.port}" for node in nodes)
        text = f"cluster {found.cluster_id}, brokers {brokers or 'none'}"
        outcome = Outcome.OK if nodes else Outcome.FAILED
        yield Finding("cluster", "brokers", outcome, text, self._clock.now() - began)
        return nodes

    # Topics

    def _topic(self, connection: BrokerConnection) -> Iterator[Finding]:
        if (name := self._request.topic) is None:
            return
        topic, took = self._describe(connection, name)
        if topic.error_code is ErrorCode.unknown_topic_or_partition:
            near = " or ".join(closest_topics(self._metadata(connection, None).topics, name))
            hint = f"Did you mean {near}? " if near else ""
            text = f"there is no such topic. {hint}Create it, or see the option topic. (Brokers with "
            text += "auto.create.topics.enable create it at the first write.)"
            yield Finding(f"topic {name}", "metadata", Outcome.FAILED, text, took)
            return
        yield from _describe_topic(f"topic {name}", topic, _OF_TOPIC, took)

    def _ledger(self, connection: BrokerConnection) -> Iterator[Finding]:
        if self._request.transactional_id_prefix is None:
            return
        name, subject = self._request.ledger_topic, f"ledgerTopic {self._request.ledger_topic}"
        topic, took = self._describe(connection, name)
        if topic.error_code is not ErrorCode.unknown_topic_or_partition:
            yield from _describe_topic(subject, topic, _OF_LEDGER, took)
            return
        missing = "there is no such topic yet; the first exactly-once write creates it"
        yield Finding(subject, "metadata", Outcome.OK, missing, took)
        began = self._clock.now()
        allowed = self._cluster_operations(connection)
        took = self._clock.now() - began
        if allowed is not None and Operation.CREATE in allowed:
            yield Finding(subject, _RIGHTS, Outcome.OK, "CREATE, on the cluster", took)
        else:
            text = "CREATE on this topic: brokers do not return the rights on a missing topic"
            yield Finding(subject, _RIGHTS, Outcome.UNTESTED, text, took)

    def _describe(self, connection: BrokerConnection, name: str) -> tuple[Any, float]:
        """The topic in a Metadata response, and how long that took."""
        began = self._clock.now()
        topics = [topic for topic in self._metadata(connection, [name]).topics if topic.name == name]
        if not topics:
            raise KafkaError(f"The Metadata response lacks topic {name}")
        return topics[0], self._clock.now() - began

    def _metadata(self, connection: BrokerConnection, topics: Sequence[str] | None) -> Any:
        """The Metadata response for these topics, or for all if None. Does not create topics."""
        make = MetadataEntity(topics, allow_auto_topic_creation=False, include_authorized_operations=True)
        return connection.call("metadata", make.versions, make)

    def _cluster_operations(self, connection: BrokerConnection) -> frozenset[Operation] | None:
        """None if the broker does not tell them, as before Kafka 2.8."""

        def make(module: ModuleType, version: int) -> Any:
            fenced = {"include_fenced_brokers": False} if version > _WITHOUT_FENCED_BROKERS else {}
            return module.DescribeClusterRequest(include_cluster_authorized_operations=True, **fenced)

        try:
            body = connection.call("describe_cluster", every("describe_cluster"), make)
        except UnsupportedVersionError:
            return None
        return operations(int(body.cluster_authorized_operations)) if body.error_code is ErrorCode.none else None

    # Transactional ids

    def _transactional_ids(self, connection: BrokerConnection) -> Iterator[Finding]:
        """DescribeTransactions: any broker checks the right first, and no id is fenced, no topic created."""
        if (prefix := self._request.transactional_id_prefix) is None:
            return
        ids = (driver_id(prefix), task_id(prefix, 0))
        subject = f"transactional ids {ids[0]}, {ids[1]}"

        def make(module: ModuleType, version: int) -> Any:
            return module.DescribeTransactionsRequest(transactional_ids=ids)

        began = self._clock.now()
        try:
            body = connection.call("describe_transactions", every("describe_transactions"), make)
        except UnsupportedVersionError:
            text = "DESCRIBE: brokers before Kafka 3.0 cannot be asked; WRITE, as asking would fence a running query"
            yield Finding(subject, _RIGHTS, Outcome.UNTESTED, text)
            return
        took = self._clock.now() - began
        refused = [
            state.transactional_id
            for state in body.transaction_states
            if state.error_code is ErrorCode.transactional_id_authorization_failed
        ]
        if refused:
            text = f"DESCRIBE is missing on {', '.join(refused)}: the principal needs DESCRIBE and WRITE on the "
            text += f"transactional ids that begin with {prefix} (option transactionalIdPrefix)"
            yield Finding(subject, _RIGHTS, Outcome.FAILED, text, took)
        else:
            yield Finding(subject, _RIGHTS, Outcome.OK, "DESCRIBE", took)
        yield Finding(subject, _RIGHTS, Outcome.UNTESTED, "WRITE: asking for it would fence a running query")


def _describe_topic(subject: str, topic: Any, needed: Sequence[Operation], took: float) -> Iterator[Finding]:
    code: ErrorCode = topic.error_code
    if code is ErrorCode.topic_authorization_failed:
        text = f"the principal lacks even DESCRIBE on it: it needs {names(needed)}"
        yield Finding(subject, _RIGHTS, Outcome.FAILED, text, took)
        return
    if code is not ErrorCode.none:
        said = TOPIC_ERRORS.get(code, "").format(topic=topic.name)
        yield Finding(subject, "metadata", Outcome.FAILED, said or code.name.upper(), took)
        return
    leaderless = sorted(
        int(partition.partition_index) for partition in topic.partitions if partition.leader_id == NO_LEADER
    )
    if not topic.partitions:
        yield Finding(subject, "metadata", Outcome.FAILED, "it has no partitions in the broker's metadata", took)
    elif leaderless:
        text = f"partitions without a leader: {', '.join(map(str, leaderless))}; their brokers are down"
        yield Finding(subject, "metadata", Outcome.FAILED, text, took)
    else:
        count = len(topic.partitions)
        text = "1 partition, which has a leader" if count == 1 else f"{count} partitions, each has a leader"
        yield Finding(subject, "metadata", Outcome.OK, text, took)
    allowed = operations(int(getattr(topic, "topic_authorized_operations", NOT_TOLD)))
    if allowed is None:
        yield Finding(subject, _RIGHTS, Outcome.UNTESTED, "the broker does not return them")
    elif missing := [operation for operation in needed if operation not in allowed]:
        text = f"{names(missing)} missing: add an ACL for the principal, which may {names(allowed)}"
        yield Finding(subject, _RIGHTS, Outcome.FAILED, text)
    else:
        yield Finding(subject, _RIGHTS, Outcome.OK, names(needed))
