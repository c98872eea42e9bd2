"""The connection check: it tries every bootstrap server and every broker, then the rights of the principal. It writes
nothing to the cluster."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
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
from spark_kafka_sink.network.metadata_api import NOT_TOLD, MetadataEntity, Operation, names, operations, parse_metadata
from spark_kafka_sink.network.name_lookup import Server, bootstrap_servers
from spark_kafka_sink.network.topics import closest_topics
from spark_kafka_sink.tools.broker_connection import BrokerConnections
from spark_kafka_sink.tools.findings import Finding, Outcome

_WITHOUT_FENCED_BROKERS: Final = 1
_RIGHTS: Final = "rights"

_OF_TOPIC: Final = (Operation.DESCRIBE, Operation.WRITE)
_OF_LEDGER: Final = (Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """The subjects of a check. ``transactional_id_prefix``: if it is given, the needs of exactly-once writes are
    checked as well."""

    config: ProducerConfig
    topic: str | None = None
    transactional_id_prefix: str | None = None
    ledger_topic: str = ""


def check(request: CheckRequest, clock: Clock) -> Generator[Finding, None, None]:
    """The findings, as they come. Makes one connection to each address. After a refused login no further broker is
    tried, because brokers log each attempt and may lock the user out.
    """
    try:
        connections = BrokerConnections(request.config, clock)
        servers = bootstrap_servers(request.config)
    except ConfigError as error:
        yield Finding("this machine", "options", Outcome.FAILED, str(error))
        return
    try:
        yield from _Check(request, connections).findings(servers)
    finally:
        connections.close()


class _Check:
    def __init__(self, request: CheckRequest, connections: BrokerConnections) -> None:
        self._request = request
        self._connections = connections
        self._tried: set[str] = set()

    def findings(self, servers: Sequence[Server]) -> Iterator[Finding]:
        bootstrap = [Node(-1 - index, host, port) for index, (host, port) in enumerate(servers)]
        if (node := (yield from self._establish(bootstrap))) is None:
            return
        try:
            nodes = yield from self._cluster(node)
            yield from self._topic(node)
            yield from self._ledger(node)
            yield from self._transactional_ids(node)
        except KafkaError as error:
            yield Finding(f"{node.host}:{node.port}", "request", Outcome.FAILED, str(error))
            return
        yield from self._establish(nodes)  # the brokers that are not bootstrap servers

    def _establish(self, nodes: Sequence[Node]) -> Generator[Finding, None, Node | None]:
        """Connects to each node; returns the first one that responds."""
        working: Node | None = None
        refused_by = ""
        for node in nodes:
            address = f"{node.host}:{node.port}"
            if address in self._tried:
                continue
            self._tried.add(address)
            if refused_by:
                text = f"not tried: {refused_by} refused this client"
                yield Finding(address, ConnectionStep.DNS.value, Outcome.UNTESTED, text)
                continue
            connected = yield from self._connections.establish(node)
            refused_by = address if self._connections.refused else ""
            working = working or connected
        return working

    def _cluster(self, node: Node) -> Generator[Finding, None, list[Node]]:
        """The brokers that the first broker names."""
        began = self._connections.now()
        found = parse_metadata(self._metadata(node, []))
        nodes = [found.nodes[each] for each in sorted(found.nodes)]
        brokers = ", ".join(f"{each.id} at {each.host}:{each.port}" for each in nodes)
        text = f"cluster {found.cluster_id}, brokers {brokers or 'none'}"
        outcome = Outcome.OK if nodes else Outcome.FAILED
        yield Finding("cluster", "brokers", outcome, text, self._connections.now() - began)
        return nodes

    # Topics

    def _topic(self, node: Node) -> Iterator[Finding]:
        if (name := self._request.topic) is None:
            return
        topic, took = self._describe(node, name)
        if topic.error_code is ErrorCode.unknown_topic_or_partition:
            near = " or ".join(closest_topics(self._metadata(node, None).topics, name))
            hint = f"Did you mean {near}? " if near else ""
            text = f"there is no such topic. {hint}Create it, or see the option topic. (Brokers with "
            text += "auto.create.topics.enable create it at the first write.)"
            yield Finding(f"topic {name}", "metadata", Outcome.FAILED, text, took)
            return
        yield from _describe_topic(f"topic {name}", topic, _OF_TOPIC, took)

    def _ledger(self, node: Node) -> Iterator[Finding]:
        if self._request.transactional_id_prefix is None:
            return
        name, subject = self._request.ledger_topic, f"ledgerTopic {self._request.ledger_topic}"
        topic, took = self._describe(node, name)
        if topic.error_code is not ErrorCode.unknown_topic_or_partition:
            yield from _describe_topic(subject, topic, _OF_LEDGER, took)
            return
        missing = "there is no such topic yet; the first exactly-once write creates it"
        yield Finding(subject, "metadata", Outcome.OK, missing, took)
        began = self._connections.now()
        allowed = self._cluster_operations(node)
        took = self._connections.now() - began
        if allowed is not None and Operation.CREATE in allowed:
            yield Finding(subject, _RIGHTS, Outcome.OK, "CREATE, on the cluster", took)
        else:
            text = "CREATE on this topic: brokers do not return the rights on a missing topic"
            yield Finding(subject, _RIGHTS, Outcome.UNTESTED, text, took)

    def _describe(self, node: Node, name: str) -> tuple[Any, float]:
        """The topic in a Metadata response, and how long that took."""
        began = self._connections.now()
        topics = [topic for topic in self._metadata(node, [name]).topics if topic.name == name]
        if not topics:
            raise KafkaError(f"The Metadata response lacks topic {name}")
        return topics[0], self._connections.now() - began

    def _metadata(self, node: Node, topics: Sequence[str] | None) -> Any:
        """The Metadata response for these topics, or for all if None. Does not create topics."""
        make = MetadataEntity(topics, allow_auto_topic_creation=False, include_authorized_operations=True)
        return self._connections.ask(node, "metadata", make.versions, make)

    def _cluster_operations(self, node: Node) -> frozenset[Operation] | None:
        """The principal's operations on the cluster; None if the broker does not send them (before Kafka 2.8)."""

        def make(module: ModuleType, version: int) -> Any:
            fenced = {"include_fenced_brokers": False} if version > _WITHOUT_FENCED_BROKERS else {}
            return module.DescribeClusterRequest(include_cluster_authorized_operations=True, **fenced)

        try:
            body = self._connections.ask(node, "describe_cluster", every("describe_cluster"), make)
        except UnsupportedVersionError:
            return None
        return operations(int(body.cluster_authorized_operations)) if body.error_code is ErrorCode.none else None

    # Transactional ids

    def _transactional_ids(self, node: Node) -> Iterator[Finding]:
        """Checks the rights on transactional ids by DescribeTransactions. Any broker checks the right first, so no id
        is fenced and no topic created."""
        if (prefix := self._request.transactional_id_prefix) is None:
            return
        ids = (driver_id(prefix), task_id(prefix, 0))
        subject = f"transactional ids {ids[0]}, {ids[1]}"

        def make(module: ModuleType, version: int) -> Any:
            return module.DescribeTransactionsRequest(transactional_ids=ids)

        began = self._connections.now()
        try:
            body = self._connections.ask(node, "describe_transactions", every("describe_transactions"), make)
        except UnsupportedVersionError:
            text = "DESCRIBE: brokers before Kafka 3.0 cannot be asked; WRITE, as asking would fence a running query"
            yield Finding(subject, _RIGHTS, Outcome.UNTESTED, text)
            return
        took = self._connections.now() - began
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
