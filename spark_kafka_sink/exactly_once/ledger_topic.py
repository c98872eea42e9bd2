"""The ledger's topic: creates it, and checks the settings of an existing one."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, ModuleType
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.shell import option
from spark_kafka_sink.common.task_figures import count_noun
from spark_kafka_sink.errors import BrokerError, NetworkError, UnsupportedVersionError, clause, sanitize
from spark_kafka_sink.exactly_once.committer import Cluster
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.values import LedgerPartitions
from spark_kafka_sink.network.api_versions import CREATE_TOPICS_WITH_DEFAULTS, every
from spark_kafka_sink.network.calls import Call, CodeAt
from spark_kafka_sink.network.messages import API_KEYS
from spark_kafka_sink.network.topics import BROKER_DEFAULT, MAX_MESSAGE_BYTES, NewTopic, create_topic, why_not_created

_log = logging.getLogger("spark_kafka_sink.exactly_once")

PARTITIONS: Final = 10
"""A name's entries are in the partition of its hash modulo this, even if the topic has more; its markers are in the one
this many further on.
"""

_POLICY: Final = "cleanup.policy"
_UNCLEAN: Final = "unclean.leader.election.enable"
_IN_SYNC: Final = "min.insync.replicas"
_SEGMENT: Final = "segment.ms"
_DELETE_RETENTION: Final = "delete.retention.ms"
_DIRTY_RATIO: Final = "min.cleanable.dirty.ratio"
SETTINGS: Final[Mapping[str, str]] = MappingProxyType({
    _POLICY: "compact",
    _UNCLEAN: "false",
    _SEGMENT: "300000",
    _DELETE_RETENTION: "1800000",
    _DIRTY_RATIO: "0.1",
})  # fmt: skip
"""Settings of a new ledger topic, besides min.insync.replicas. A starting driver reads the last segment, and the
control records of half an hour. They must not be removed while it reads; a view is read anew after half of that."""

_LIKE_TRANSACTION_LOG: Final = ("transaction.state.log.replication.factor", "transaction.state.log.min.isr")
_DEFAULT_REPLICATION: Final = "default.replication.factor"
_MOST_REPLICAS: Final = 3
_TOPIC, _BROKER = 2, 4
_SOON_MS: Final = 50.0

_MAY_BE_ABOUT_SETTINGS: Final = frozenset({ErrorCode.invalid_config, ErrorCode.policy_violation})
_ATTEMPTS: Final = 3

_COSTS: Final[Mapping[str, str]] = MappingProxyType({
    _UNCLEAN: "if every replica in sync fails, a leader may be elected that lacks the last decisions, and batches "
    "may be written twice",
    _IN_SYNC: "a decision may be acknowledged by fewer replicas, and be lost with them",
    **dict.fromkeys(
        (_SEGMENT, _DELETE_RETENTION, _DIRTY_RATIO), "compaction comes later, so the start of a query reads more"
    ),
})  # fmt: skip
"""What it may cost not to have a setting; compaction itself is required."""

_USE_OTHER_BROKERS: Final = (
    "Use brokers (or a tier of the service) that tell a topic's settings, or deliveryGuarantee=at-least-once"
)

_warned: set[str] = set()


def ledger_partitions(name: str, topic: str, partition_count: int = 2 * PARTITIONS) -> LedgerPartitions:
    """The partitions of a name's entries and markers. If the topic has too few, both are in one partition."""
    partition = zlib.crc32(name.encode()) % PARTITIONS
    return LedgerPartitions(topic, partition, partition + (PARTITIONS if partition_count >= 2 * PARTITIONS else 0))


class EnsuredLedger(NamedTuple):
    """The ledger's topic."""

    partitions: int
    max_message_bytes: int | None = None


def refuse_too_few(topic: str, partitions: int) -> None:
    """Raises ``ExactlyOnceError`` if these are too few for a ledger. Brokers create such a topic for any client."""
    if partitions < PARTITIONS:
        raise ExactlyOnceError(
            f"ledgerTopic {topic} has {count_noun(partitions, 'partition')}, the ledger needs {PARTITIONS}: add "
            "some, or delete an empty one and let this sink create it."
        )


@dataclass(frozen=True, slots=True)
class WantedLedger:
    """The replication factor and the settings of a new topic in this cluster. ``default_told``: the brokers tell their
    default.replication.factor, and ``replication`` is not below it.
    """

    replication: int
    settings: Mapping[str, str]
    default_told: bool


def wanted_ledger(cluster: Cluster, deadline: float) -> WantedLedger:
    """Settings as strong as those of the brokers' transaction log, with no fewer replicas than other topics get."""
    brokers = len(cluster.node_ids(deadline))
    configs = _broker_configs(cluster, (*_LIKE_TRANSACTION_LOG, _DEFAULT_REPLICATION), deadline)
    default = configs.get(_DEFAULT_REPLICATION)
    replication = int(configs.get(_LIKE_TRANSACTION_LOG[0]) or min(brokers, _MOST_REPLICAS))
    replication = max(replication, int(default or 1))
    in_sync = int(configs.get(_LIKE_TRANSACTION_LOG[1]) or max(replication - 1, 1))
    return WantedLedger(replication, {**SETTINGS, _IN_SYNC: str(in_sync)}, default is not None)


def ensure_ledger(cluster: Cluster, topic: str, deadline: float) -> EnsuredLedger:
    """Creates the topic, or checks the settings of an existing one, and warns once of one that is weaker than wanted.
    Raises ``ExactlyOnceError`` if it cannot be created or would lose entries."""
    wanted = wanted_ledger(cluster, deadline)
    info = cluster.topic(topic, deadline)
    if info is None:
        created = create_ledger(cluster, topic, wanted, deadline)
        if not created.existed:
            configs = checked_configs(cluster, topic, wanted, deadline)
            if created.refusal:
                replicas = fewest_replicas(cluster, topic, deadline)
                _log.warning("ledgerTopic %s was created %s", topic, created.explain_losses(wanted, configs, replicas))
            return EnsuredLedger(2 * PARTITIONS, _number(configs.get(MAX_MESSAGE_BYTES)))
        while (info := cluster.topic(topic, deadline)) is None:
            cluster.check_time(deadline, f"ledgerTopic {topic} exists, but is not in the brokers' metadata")
            cluster.pause(_SOON_MS)
    refuse_too_few(topic, info.partition_count)
    configs = checked_configs(cluster, topic, wanted, deadline)
    if topic not in _warned:
        _warn_of_weak_ledger(cluster, topic, wanted, configs, deadline)
    return EnsuredLedger(info.partition_count, _number(configs.get(MAX_MESSAGE_BYTES)))


@dataclass(frozen=True, slots=True)
class CreatedLedger:
    """How the topic was created. ``refusal``: why not with all settings, empty if it has them. ``existed``: another
    client created it meanwhile, or a request of this one whose response was lost.
    """

    replication_factor: int
    left_out: tuple[str, ...]
    refusal: str
    existed: bool

    def explain_losses(self, wanted: WantedLedger, configs: Mapping[str, str | None], replicas: int) -> str:
        """What was left out and what that costs, with what is in effect instead. ``replicas``: of each partition, 0 if
        unknown."""
        without = f"without {', '.join(self.left_out)}"
        if self.replication_factor == BROKER_DEFAULT:
            without += f" and with the brokers' default replication factor instead of {wanted.replication}"
        cost = " ".join(_weaknesses(wanted, configs, replicas)) or "The settings in effect are as strong."
        return f"{without}, because the brokers refuse more ({self.refusal}). {cost}"


def create_ledger(cluster: Cluster, topic: str, wanted: WantedLedger, deadline: float) -> CreatedLedger:
    """Creates the topic, with fewer settings if the brokers refuse some. Raises ``ExactlyOnceError`` if they refuse
    even cleanup.policy alone."""
    refusals: list[BrokerError] = []
    while not refusals or (refusals[-1].code in _MAY_BE_ABOUT_SETTINGS and len(refusals) < _ATTEMPTS):
        replication, names = _next_attempt(cluster, wanted, refusals)
        settings = {name: value for name, value in wanted.settings.items() if name in names}
        try:
            created = create_topic(cluster, NewTopic(topic, 2 * PARTITIONS, replication, settings), deadline)
        except BrokerError as error:
            refusals.append(error)
        else:
            if refusals and created:
                _warned.add(topic)  # the warning about its creation says what it lacks
            left_out = tuple(name for name in wanted.settings if name not in names)
            return CreatedLedger(replication, left_out, str(refusals[0]) if refusals else "", not created)
    even = ", even with no setting but cleanup.policy=compact" if len(refusals) == _ATTEMPTS else ""
    raise ExactlyOnceError(
        f"ledgerTopic {topic} is missing and cannot be created{even}: {why_not_created(refusals[-1])}. Create it by "
        f"hand: {by_hand(wanted)}; only cleanup.policy is required. Without compaction use "
        "deliveryGuarantee=at-least-once."
    ) from refusals[-1]


def _next_attempt(
    cluster: Cluster, wanted: WantedLedger, refusals: Sequence[BrokerError]
) -> tuple[int, Collection[str]]:
    """The replication factor, and the settings by name, to try after these refusals.

    First with all; then without those that the refusal names, or if it names none, with those that keep a start short;
    then with cleanup.policy alone. There the brokers choose the replication factor, unless they tell their default:
    some take no other (Confluent Cloud).
    """
    if not refusals:
        return wanted.replication, wanted.settings
    if len(refusals) == 1:
        named = {name for name in wanted.settings if name in str(refusals[0])} - {_POLICY}
        return wanted.replication, wanted.settings.keys() - named if named else {_POLICY, _SEGMENT, _DELETE_RETENTION}
    versions = cluster.any_api_versions()
    can_choose = versions is not None and versions.speaks(API_KEYS["create_topics"], CREATE_TOPICS_WITH_DEFAULTS)
    return BROKER_DEFAULT if can_choose and not wanted.default_told else wanted.replication, {_POLICY}


def by_hand(wanted: WantedLedger) -> str:
    """The partitions and settings of the topic, for an administrator who creates it."""
    return ", ".join([f"{2 * PARTITIONS} partitions", *(f"{name}={value}" for name, value in wanted.settings.items())])


def checked_configs(cluster: Cluster, topic: str, wanted: WantedLedger, deadline: float) -> dict[str, str | None]:
    """The topic's effective settings, as far as the brokers tell them. Raises ``ExactlyOnceError`` if it would lose
    entries, or if they do not tell its cleanup.policy.
    """
    configs = _describe(cluster, _TOPIC, [topic], (*wanted.settings, MAX_MESSAGE_BYTES), deadline)
    if configs.get(_POLICY) is None:
        raise ExactlyOnceError(
            f"ledgerTopic {topic} could lose decisions: DescribeConfigs does not tell its {_POLICY}, which must be "
            f"{SETTINGS[_POLICY]!r}. {_USE_OTHER_BROKERS}."
        )
    # Redpanda, for one, has no unclean.leader.election.enable, and never elects a leader that lacks records.
    if faults := [
        f"{name} is {configs[name]!r}, not {SETTINGS[name]!r}"
        for name in (_POLICY, _UNCLEAN)
        if configs.get(name) not in (None, SETTINGS[name])
    ]:
        raise ExactlyOnceError(
            f"ledgerTopic {topic} could lose decisions: {'; '.join(faults)}. Change its settings (kafka-configs "
            "--alter), or name another topic."
        )
    return configs


def fewest_replicas(cluster: Cluster, topic: str, deadline: float) -> int:
    """The replicas of the partition with the fewest; 0 if the topic is not in the metadata yet."""
    return min(map(len, cluster.replicas(topic, deadline)), default=0)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _warn_of_weak_ledger(
    cluster: Cluster, topic: str, wanted: WantedLedger, configs: Mapping[str, str | None], deadline: float
) -> None:
    """Warns once of an existing topic that is weaker than a new one, or of which that is not known, with the commands
    that change it."""
    brokers, replicas = cluster.node_ids(deadline), cluster.replicas(topic, deadline)
    texts = _weaknesses(wanted, configs, min(map(len, replicas), default=0))
    server, commands, factor = cluster.server_options, [], min(wanted.replication, len(brokers))
    if any(len(nodes) < factor for nodes in replicas):
        moves = [
            {
                "topic": topic,
                "partition": index,
                "replicas": _add_replicas(nodes, brokers[index % len(brokers) :] + brokers, factor),
            }
            for index, nodes in enumerate(replicas)
        ]
        plan = json.dumps({"version": 1, "partitions": moves}, separators=(",", ":"))
        commands.append(f"kafka-reassign-partitions.sh {server} --execute --reassignment-json-file <(echo '{plan}')")
    if len(replicas) < 2 * PARTITIONS:
        commands.append(f"kafka-topics.sh {server} --alter {option('--topic', topic)} --partitions {2 * PARTITIONS}")
    if changes := ",".join(f"{name}={wanted.settings[name]}" for name in _weaker(wanted, configs)):
        commands.append(
            f"kafka-configs.sh {server} --alter --entity-type topics {option('--entity-name', topic)} --add-config "
            f"{changes}"
        )
    if commands:
        texts.append(
            "It may lose decisions when brokers fail, or slow down the start of queries. To change it, if the brokers "
            f"let you, run: {' ; '.join(commands)}"
        )
    if texts:
        _warned.add(topic)
        _log.warning("ledgerTopic %s: %s", topic, " ".join(texts))


def _add_replicas(nodes: Sequence[int], brokers: Sequence[int], factor: int) -> list[int]:
    """The replicas and further brokers, up to ``factor``. The preferred leader stays the first."""
    return list(dict.fromkeys([*nodes, *brokers]))[: max(factor, len(nodes))]


def _weaknesses(wanted: WantedLedger, configs: Mapping[str, str | None], replicas: int) -> list[str]:
    """What is weaker than ``wanted``, and what that may cost. ``replicas``: of the partition with the fewest, 0 if
    unknown."""
    unknown = [name for name in wanted.settings if configs.get(name) is None]
    weaker = [f"{name}={configs[name]}" for name in _weaker(wanted, configs)]
    texts = [f"Not told, so perhaps weaker: {_costs(unknown)}."] if unknown else []
    if weaker:
        texts.append(f"In effect: {_costs(weaker)}.")
    if replicas < wanted.replication:
        number = f"{replicas or 'an unknown number'} instead of {wanted.replication}"
        texts.append(f"Replicas of a partition: {number} (a decision may be lost with the brokers that hold it).")
    return texts


def _weaker(wanted: WantedLedger, configs: Mapping[str, str | None]) -> list[str]:
    """The settings that are told, and are weaker than wanted. Those that are not numbers were checked before."""
    told = [name for name in wanted.settings if name not in (_POLICY, _UNCLEAN) and configs.get(name) is not None]
    more = {name: float(configs[name] or 0) - float(wanted.settings[name]) for name in told}
    return [name for name in told if (more[name] < 0 if name == _IN_SYNC else more[name] > 0)]


def _costs(settings: Sequence[str]) -> str:
    """The settings, names or name=value, and what it may cost not to have them; each cost once."""
    by_cost: dict[str, list[str]] = {}
    for setting in settings:
        by_cost.setdefault(_COSTS[setting.partition("=")[0]], []).append(setting)
    return "; ".join(f"{', '.join(named)} ({cost})" for cost, named in by_cost.items())


def broker_limit_ms(cluster: Cluster, deadline: float) -> int | None:
    """The brokers' transaction.max.timeout.ms; None without the right to describe configs."""
    configs = _broker_configs(cluster, ("transaction.max.timeout.ms",), deadline)
    limit = configs.get("transaction.max.timeout.ms")
    return None if limit is None else int(limit)


def _broker_configs(cluster: Cluster, names: tuple[str, ...], deadline: float) -> dict[str, str | None]:
    """The configs of the broker that responds: a broker describes itself, and refuses to describe the others. Empty if
    it does not describe itself to this principal. Raises as ``_describe`` if the API is missing."""
    try:
        return _describe(cluster, _BROKER, [str(id_) for id_ in cluster.node_ids(deadline)], names, deadline)
    except BrokerError:
        return {}


def _describe(
    cluster: Cluster, kind: int, names: list[str], keys: tuple[str, ...], deadline: float
) -> dict[str, str | None]:
    """The configs of the first resource that the broker describes. Raises ``ExactlyOnceError`` if the API is missing,
    because only this API tells whether the ledger is compacted."""

    def make(module: ModuleType, version: int) -> Any:
        resource = module.request.DescribeConfigsResource
        resources = [resource(resource_type=kind, resource_name=name, configuration_keys=keys) for name in names]
        return module.DescribeConfigsRequest(resources=tuple(resources))

    def codes(body: Any) -> list[CodeAt]:
        described = [result for result in body.results if result.error_code is ErrorCode.none]
        return [
            CodeAt(f"DescribeConfigs of {resource.resource_name}", resource.error_code, resource.error_message)
            for resource in described or body.results
        ]

    try:
        body = cluster.call(Call("describe_configs", every("describe_configs"), None, make, codes), deadline)
    except UnsupportedVersionError as error:
        raise ExactlyOnceError(
            "Exactly-once needs the API DescribeConfigs to know that the ledger is compacted and loses no decisions: "
            f"{clause(error)}. {_USE_OTHER_BROKERS}."
        ) from error
    described = next((result for result in body.results if result.error_code is ErrorCode.none), None)
    if described is None:
        raise NetworkError(f"The DescribeConfigs response lacks {', '.join(names)}")
    configs = {config.name: config.value or None for config in described.configs}
    for name in keys:
        if (value := configs.get(name)) is not None and not _is_readable(name, value):
            raise NetworkError(f"The DescribeConfigs response has {name}={sanitize(value)}, which is not a number")
    return configs


def _is_readable(name: str, value: str) -> bool:
    """Whether the value is a number, unless the setting is one of those that are not."""
    if name in (_POLICY, _UNCLEAN):
        return True
    try:
        return abs((float if name == _DIRTY_RATIO else int)(value)) < 1 << 63
    except ValueError:
        return False
