"""The ledger's topic: creates it, and checks the settings of an existing one."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, ModuleType
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import BrokerError
from spark_kafka_sink.exactly_once.cluster import Cluster
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.values import LedgerPartitions
from spark_kafka_sink.network.calls import Call, CodeAt
from spark_kafka_sink.network.error_table import FORBIDDEN
from spark_kafka_sink.network.topics import NewTopic, create_topic, why_not_created

_log = logging.getLogger("spark_kafka_sink.exactly_once")

PARTITIONS: Final = 10
"""A name's entries are in the partition of its hash modulo this, even if the topic has more; its markers are in the one
this many further on.
"""

_HOUR_MS: Final = 3_600_000
SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cleanup.policy": "compact",
        "unclean.leader.election.enable": "false",
        "segment.ms": str(_HOUR_MS // 12),
        "delete.retention.ms": str(_HOUR_MS // 2),
        "min.cleanable.dirty.ratio": "0.1",
    }
)
"""Retention of a new ledger topic. A starting driver reads the last segment, and the control records of half an hour.
They must not be removed while it reads; a kept view is read anew after half of that."""

_REQUIRED: Final = ("cleanup.policy", "unclean.leader.election.enable")
_NO_MORE_THAN: Final = ("segment.ms", "delete.retention.ms", "min.cleanable.dirty.ratio")
_IN_SYNC: Final = "min.insync.replicas"
_LIKE_TRANSACTION_LOG: Final = ("transaction.state.log.replication.factor", "transaction.state.log.min.isr")
_MOST_REPLICAS: Final = 3
_MAX_MESSAGE: Final = "max.message.bytes"
_TOPIC, _BROKER = 2, 4

_warned: set[str] = set()


def ledger_partitions(name: str, topic: str, partition_count: int = 2 * PARTITIONS) -> LedgerPartitions:
    """The partitions of a name's entries and markers. If the topic has too few, both are in one partition."""
    partition = zlib.crc32(name.encode()) % PARTITIONS
    return LedgerPartitions(topic, partition, partition + (PARTITIONS if partition_count >= 2 * PARTITIONS else 0))


class EnsuredLedger(NamedTuple):
    """The ledger's topic; ``created`` if it did not exist before."""

    partitions: int
    created: bool
    max_message_bytes: int | None = None


def ensure_ledger(cluster: Cluster, topic: str, deadline: float) -> EnsuredLedger:
    """Creates the topic, or checks its settings. Raises ``ExactlyOnceError`` if it cannot be created or would lose
    entries."""
    wanted = _wanted(cluster, deadline)
    info = cluster.topic(topic, deadline)
    if info is None:
        _create(cluster, topic, wanted, deadline)
        return EnsuredLedger(2 * PARTITIONS, created=True)
    if info.partition_count < PARTITIONS:
        raise ExactlyOnceError(
            f"commitLogTopic {topic} has {info.partition_count} partitions, the ledger needs {PARTITIONS}: add some, "
            "or delete an empty one and let this sink create it."
        )
    configs = _describe(cluster, _TOPIC, [topic], (*wanted.settings, _MAX_MESSAGE), deadline)
    faults = [
        f"{name} is {configs[name]!r}, not {SETTINGS[name]!r}" for name in _REQUIRED if configs[name] != SETTINGS[name]
    ]
    if faults:
        raise ExactlyOnceError(
            f"commitLogTopic {topic} could lose decisions: {'; '.join(faults)}. Change its settings "
            "(kafka-configs --alter), or name another topic."
        )
    if topic not in _warned and (commands := _repair_commands(cluster, topic, wanted, configs, deadline)):
        _warned.add(topic)
        _log.warning(
            "commitLogTopic %s has other settings than this sink creates it with: it may lose decisions when brokers "
            "fail, or slow down the start of queries. To change it, run: %s",
            topic,
            " ; ".join(commands),
        )
    limit = configs.get(_MAX_MESSAGE)
    return EnsuredLedger(info.partition_count, created=False, max_message_bytes=None if limit is None else int(limit))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The replication factor and settings of a new topic in this cluster."""

    replication: int
    settings: Mapping[str, str]


def _wanted(cluster: Cluster, deadline: float) -> _Wanted:
    brokers = len(cluster.node_ids(deadline))
    like = _broker_configs(cluster, _LIKE_TRANSACTION_LOG, deadline)
    replication = int(like.get(_LIKE_TRANSACTION_LOG[0]) or min(brokers, _MOST_REPLICAS))
    in_sync = int(like.get(_LIKE_TRANSACTION_LOG[1]) or max(replication - 1, 1))
    return _Wanted(replication, {**SETTINGS, _IN_SYNC: str(in_sync)})


def _repair_commands(
    cluster: Cluster, topic: str, wanted: _Wanted, configs: Mapping[str, str | None], deadline: float
) -> list[str]:
    """The commands that give an existing topic the settings of a new one."""
    server, commands = f"--bootstrap-server {cluster.servers}", []
    replicas = cluster.replicas(topic, deadline)
    brokers = cluster.node_ids(deadline)
    factor = min(wanted.replication, len(brokers))
    if any(len(each) < factor for each in replicas):
        moves = [
            {
                "topic": topic,
                "partition": index,
                "replicas": _widened(each, brokers[index % len(brokers) :] + brokers, factor),
            }
            for index, each in enumerate(replicas)
        ]
        plan = json.dumps({"version": 1, "partitions": moves}, separators=(",", ":"))
        commands.append(f"kafka-reassign-partitions.sh {server} --execute --reassignment-json-file <(echo '{plan}')")
    if len(replicas) < 2 * PARTITIONS:
        commands.append(f"kafka-topics.sh {server} --alter --topic {topic} --partitions {2 * PARTITIONS}")
    weak = [name for name in _NO_MORE_THAN if float(configs.get(name) or 0) > float(wanted.settings[name])]
    if int(configs.get(_IN_SYNC) or 1) < min(int(wanted.settings[_IN_SYNC]), len(brokers)):
        weak.append(_IN_SYNC)
    if weak:
        changes = ",".join(f"{name}={wanted.settings[name]}" for name in weak)
        commands.append(
            f"kafka-configs.sh {server} --alter --entity-type topics --entity-name {topic} --add-config {changes}"
        )
    return commands


def _widened(replicas: Sequence[int], brokers: Sequence[int], factor: int) -> list[int]:
    """The replicas and further brokers, up to ``factor``. The preferred leader stays the first."""
    return list(dict.fromkeys([*replicas, *brokers]))[: max(factor, len(replicas))]


def broker_limit_ms(cluster: Cluster, deadline: float) -> int | None:
    """The brokers' transaction.max.timeout.ms; None without the right to describe configs."""
    configs = _broker_configs(cluster, ("transaction.max.timeout.ms",), deadline)
    limit = configs.get("transaction.max.timeout.ms")
    return None if limit is None else int(limit)


def _create(cluster: Cluster, topic: str, wanted: _Wanted, deadline: float) -> None:
    try:
        create_topic(cluster, NewTopic(topic, 2 * PARTITIONS, wanted.replication, wanted.settings), deadline)
    except BrokerError as error:
        raise ExactlyOnceError(
            f"commitLogTopic {topic} is missing and cannot be created: {why_not_created(error)}. Create it by hand: "
            f"{2 * PARTITIONS} partitions, {', '.join(f'{name}={value}' for name, value in wanted.settings.items())}."
        ) from error


def _broker_configs(cluster: Cluster, names: tuple[str, ...], deadline: float) -> dict[str, str | None]:
    """The configs of the broker that responds: a broker describes itself, and refuses to describe the others."""
    try:
        return _describe(cluster, _BROKER, [str(each) for each in cluster.node_ids(deadline)], names, deadline)
    except BrokerError as error:
        if error.code in FORBIDDEN:
            return {}
        raise


def _describe(
    cluster: Cluster, kind: int, names: list[str], keys: tuple[str, ...], deadline: float
) -> dict[str, str | None]:
    """The configs of the first resource that the broker describes."""

    def make(module: ModuleType, version: int) -> Any:
        resource = module.request.DescribeConfigsResource
        resources = [resource(resource_type=kind, resource_name=name, configuration_keys=keys) for name in names]
        return module.DescribeConfigsRequest(resources=tuple(resources))

    def codes(body: Any) -> list[CodeAt]:
        described = [each for each in body.results if each.error_code is ErrorCode.none]
        return [
            CodeAt(f"DescribeConfigs of {each.resource_name}", each.error_code, each.error_message)
            for each in described or body.results
        ]

    body = cluster.call(Call("describe_configs", (2, 4), None, make, codes), deadline)
    described = next(each for each in body.results if each.error_code is ErrorCode.none)
    return {config.name: config.value for config in described.configs}
