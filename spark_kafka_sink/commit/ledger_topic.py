"""The ledger's topic: how it is created, and what it must be like to be trusted."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType, ModuleType
from typing import Any, Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.commit.cluster import Cluster, CodeAt, Question
from spark_kafka_sink.commit.errors import ExactlyOnceError
from spark_kafka_sink.commit.values import LedgerPlace
from spark_kafka_sink.errors import BrokerError

PARTITIONS: Final = 10
"""A name's partition is its hash modulo this, however many more the topic gets."""

SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cleanup.policy": "compact",
        "segment.ms": str(3_600_000),
        "unclean.leader.election.enable": "false",
    }
)
"""Created with these, as a transaction log is. An hour's segment is what a driver reads when it starts."""

_REQUIRED: Final = ("cleanup.policy", "unclean.leader.election.enable")
_LIKE_TRANSACTION_LOG: Final = ("transaction.state.log.replication.factor", "transaction.state.log.min.isr")
_MOST_REPLICAS: Final = 3
_TOPIC, _BROKER = 2, 4
_ANSWER_TIME: Final = timedelta(seconds=30)
_FORBIDDEN: Final = frozenset({int(ErrorCode.topic_authorization_failed), int(ErrorCode.cluster_authorization_failed)})


def place_of(name: str, topic: str) -> LedgerPlace:
    return LedgerPlace(topic, zlib.crc32(name.encode()) % PARTITIONS)


def ensure_ledger(cluster: Cluster, topic: str, deadline: float) -> None:
    """Creates the topic when it is missing and verifies what is there. Raises ``ExactlyOnceError`` when it cannot be
    created or would lose entries."""
    info = cluster.topic(topic, deadline)
    if info is None:
        _create(cluster, topic, deadline)
        return
    if info.partition_count < PARTITIONS:
        raise ExactlyOnceError(
            f"commitLogTopic {topic} has {info.partition_count} partitions, the ledger needs {PARTITIONS}: add some, "
            "or delete an empty one and let this sink create it."
        )
    configs = _describe(cluster, _TOPIC, [topic], _REQUIRED, deadline)
    faults = [
        f"{name} is {configs[name]!r}, not {SETTINGS[name]!r}" for name in _REQUIRED if configs[name] != SETTINGS[name]
    ]
    if faults:
        raise ExactlyOnceError(
            f"commitLogTopic {topic} would lose what was decided: {'; '.join(faults)}. Change its settings "
            "(kafka-configs --alter), or name another topic."
        )


def broker_limit_ms(cluster: Cluster, deadline: float) -> int | None:
    """The brokers' transaction.max.timeout.ms; None when this principal may not ask."""
    configs = _broker_configs(cluster, ("transaction.max.timeout.ms",), deadline)
    limit = configs.get("transaction.max.timeout.ms")
    return None if limit is None else int(limit)


def _create(cluster: Cluster, topic: str, deadline: float) -> None:
    brokers = len(cluster.node_ids(deadline))
    like = _broker_configs(cluster, _LIKE_TRANSACTION_LOG, deadline)
    replication = int(like.get(_LIKE_TRANSACTION_LOG[0]) or min(brokers, _MOST_REPLICAS))
    in_sync = int(like.get(_LIKE_TRANSACTION_LOG[1]) or max(replication - 1, 1))
    settings = {**SETTINGS, "min.insync.replicas": str(in_sync)}

    def make(module: ModuleType, version: int) -> Any:
        entry = module.request.CreatableTopicConfig
        asked = module.request.CreatableTopic(
            name=topic,
            num_partitions=PARTITIONS,
            replication_factor=replication,
            assignments=(),
            configs=tuple(entry(name=name, value=value) for name, value in settings.items()),
        )
        return module.CreateTopicsRequest(topics=(asked,), timeout=_ANSWER_TIME)

    def codes(body: Any) -> list[CodeAt]:
        return [CodeAt(f"CreateTopics of {topic}", each.error_code, each.error_message) for each in body.topics]

    try:
        cluster.ask_any(Question("create_topics", (5, 7), make, codes), deadline)
    except BrokerError as error:
        if error.code == ErrorCode.topic_already_exists:
            return
        advice = "the principal needs CREATE on the topic or the cluster" if error.code in _FORBIDDEN else "see above"
        raise ExactlyOnceError(
            f"commitLogTopic {topic} is missing and cannot be created: {error} ({advice}). Create it by hand: "
            f"{PARTITIONS} partitions, {', '.join(f'{name}={value}' for name, value in settings.items())}."
        ) from error


def _broker_configs(cluster: Cluster, names: tuple[str, ...], deadline: float) -> dict[str, str | None]:
    """Of whichever broker responds first: it describes itself and refuses the names of the others."""
    try:
        return _describe(cluster, _BROKER, [str(each) for each in cluster.node_ids(deadline)], names, deadline)
    except BrokerError as error:
        if error.code in _FORBIDDEN:
            return {}
        raise


def _describe(
    cluster: Cluster, kind: int, names: list[str], keys: tuple[str, ...], deadline: float
) -> dict[str, str | None]:
    """The configs of the first of these resources that the broker describes."""

    def make(module: ModuleType, version: int) -> Any:
        resource = module.request.DescribeConfigsResource
        asked = [resource(resource_type=kind, resource_name=name, configuration_keys=keys) for name in names]
        return module.DescribeConfigsRequest(resources=tuple(asked))

    def codes(body: Any) -> list[CodeAt]:
        described = [each for each in body.results if each.error_code is ErrorCode.none]
        return [
            CodeAt(f"DescribeConfigs of {each.resource_name}", each.error_code, each.error_message)
            for each in described or body.results
        ]

    body = cluster.ask_any(Question("describe_configs", (2, 4), make, codes), deadline)
    described = next(each for each in body.results if each.error_code is ErrorCode.none)
    return {config.name: config.value for config in described.configs}
