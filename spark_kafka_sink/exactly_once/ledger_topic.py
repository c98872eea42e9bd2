"""The ledger's topic: creates it, and checks the settings of an existing one."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType, ModuleType
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.task_figures import counted
from spark_kafka_sink.errors import BrokerError, NetworkError, UnsupportedVersionError, clause, shown
from spark_kafka_sink.exactly_once.committer import Cluster
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.values import LedgerPartitions
from spark_kafka_sink.network.api_versions import every
from spark_kafka_sink.network.calls import Call, CodeAt
from spark_kafka_sink.network.error_table import FORBIDDEN
from spark_kafka_sink.network.topics import BROKER_DEFAULT, NewTopic, create_topic, why_not_created

_log = logging.getLogger("spark_kafka_sink.exactly_once")

PARTITIONS: Final = 10
"""A name's entries are in the partition of its hash modulo this, even if the topic has more; its markers are in the one
this many further on.
"""

_HOUR_MS: Final = 3_600_000
_DIRTY_RATIO: Final = "min.cleanable.dirty.ratio"
SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cleanup.policy": "compact",
        "unclean.leader.election.enable": "false",
        "segment.ms": str(_HOUR_MS // 12),
        "delete.retention.ms": str(_HOUR_MS // 2),
        _DIRTY_RATIO: "0.1",
    }
)
"""Retention of a new ledger topic. A starting driver reads the last segment, and the control records of half an hour.
They must not be removed while it reads; a kept view is read anew after half of that."""

_POLICY: Final = "cleanup.policy"
_UNCLEAN: Final = "unclean.leader.election.enable"
_NO_MORE_THAN: Final = ("segment.ms", "delete.retention.ms", _DIRTY_RATIO)
_IN_SYNC: Final = "min.insync.replicas"
LEDGER_SETTINGS: Final = (*SETTINGS, _IN_SYNC)
"""The settings that a new ledger has if the brokers take them."""

_LIKE_TRANSACTION_LOG: Final = ("transaction.state.log.replication.factor", "transaction.state.log.min.isr")
_DEFAULT_REPLICATION: Final = "default.replication.factor"
_MOST_REPLICAS: Final = 3
_MAX_MESSAGE: Final = "max.message.bytes"
_TOPIC, _BROKER = 2, 4
_SOON_MS: Final = 50.0

_TRIED_AGAIN: Final = frozenset({ErrorCode.invalid_config, ErrorCode.policy_violation})
"""Refusals of CreateTopics that may be about one of the settings."""

_OPTIONAL: Final = (_UNCLEAN, _IN_SYNC, "delete.retention.ms", "segment.ms", _DIRTY_RATIO)
"""The settings that a ledger can do without, the most important one first."""

_COSTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        _UNCLEAN: "if every replica in sync fails, a leader may be elected that lacks the last decisions, and batches "
        "may be written twice",
        _IN_SYNC: "a decision may be acknowledged by fewer replicas, and be lost with them",
        **dict.fromkeys(_NO_MORE_THAN, "compaction comes later, so the start of a query reads more"),
    }
)

_USE_OTHER_BROKERS: Final = (
    "Use brokers (or a tier of the service) that tell a topic's settings, or deliveryGuarantee=at-least-once"
)

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


def refuse_too_few(topic: str, partitions: int) -> None:
    """Raises ``ExactlyOnceError`` if these are too few for a ledger. Brokers create such a topic for any client."""
    if partitions < PARTITIONS:
        raise ExactlyOnceError(
            f"ledgerTopic {topic} has {counted(partitions, 'partition')}, the ledger needs {PARTITIONS}: add some, or "
            "delete an empty one and let this sink create it."
        )


def ensure_ledger(cluster: Cluster, topic: str, deadline: float) -> EnsuredLedger:
    """Creates the topic, with as many of its settings as the brokers take, and checks the effective ones. Raises
    ``ExactlyOnceError`` if it cannot be created or would lose entries."""
    wanted = wanted_ledger(cluster, deadline)
    info = cluster.topic(topic, deadline)
    if info is None:
        made = create_ledger(cluster, topic, wanted, deadline)
        if not made.existed:
            configs = checked_configs(cluster, topic, wanted, deadline)
            if made.left_out or made.replication_factor != wanted.replication:
                replicas = fewest_replicas(cluster, topic, deadline)
                _log.warning("ledgerTopic %s was created %s", topic, made.told(wanted, configs, replicas))
            return EnsuredLedger(2 * PARTITIONS, True, _number(configs.get(_MAX_MESSAGE)))
        while (info := cluster.topic(topic, deadline)) is None:
            cluster.check_time(deadline, f"ledgerTopic {topic} exists, but is not in the brokers' metadata")
            cluster.pause(_SOON_MS)
    refuse_too_few(topic, info.partition_count)
    configs = checked_configs(cluster, topic, wanted, deadline)
    if topic not in _warned:
        _warn_of_weakness(cluster, topic, wanted, configs, deadline)
    return EnsuredLedger(info.partition_count, False, _number(configs.get(_MAX_MESSAGE)))


def checked_configs(cluster: Cluster, topic: str, wanted: WantedLedger, deadline: float) -> dict[str, str | None]:
    """The topic's effective settings, as far as the brokers tell them. Raises ``ExactlyOnceError`` if it would lose
    entries, or if they do not tell its cleanup.policy.
    """
    try:
        configs = _describe(cluster, _TOPIC, [topic], (*wanted.settings, _MAX_MESSAGE), deadline)
    except BrokerError as error:
        if error.code not in FORBIDDEN:
            raise
        raise ExactlyOnceError(
            f"The settings of ledgerTopic {topic} cannot be read: {error.name}: the principal needs "
            "DESCRIBE_CONFIGS on it"
        ) from error
    if faults := ledger_faults(configs):
        change = "Change its settings (kafka-configs --alter), or name another topic."
        remedy = change if configs.get(_POLICY) is not None else f"{_USE_OTHER_BROKERS}."
        raise ExactlyOnceError(f"ledgerTopic {topic} could lose decisions: {'; '.join(faults)}. {remedy}")
    return configs


def fewest_replicas(cluster: Cluster, topic: str, deadline: float) -> int:
    """The replicas of the partition with the fewest; 0 if the topic is not in the metadata yet."""
    return min(map(len, cluster.replicas(topic, deadline)), default=0)


def ledger_faults(configs: Mapping[str, str | None]) -> list[str]:
    """Why a topic with these effective settings cannot be the ledger.

    An unclean.leader.election.enable that DescribeConfigs leaves out is no fault: Redpanda, for one, has no such
    setting and never elects a leader that lacks records.
    """
    policy, unclean = configs.get(_POLICY), configs.get(_UNCLEAN)
    faults = []
    if policy is None:
        faults.append(f"DescribeConfigs does not tell its {_POLICY}, which must be 'compact'")
    elif policy != SETTINGS[_POLICY]:
        faults.append(f"{_POLICY} is {policy!r}, not {SETTINGS[_POLICY]!r}")
    if unclean not in (None, SETTINGS[_UNCLEAN]):
        faults.append(f"{_UNCLEAN} is {unclean!r}, not {SETTINGS[_UNCLEAN]!r}")
    return faults


def _warn_of_weakness(
    cluster: Cluster, topic: str, wanted: WantedLedger, configs: Mapping[str, str | None], deadline: float
) -> None:
    """Warns once of an existing topic that is weaker than a new one, or of which that is not known."""
    commands = _repair_commands(cluster, topic, wanted, configs, deadline)
    unknown = [name for name in (_UNCLEAN, _IN_SYNC) if configs.get(name) is None]
    texts = []
    if unknown:
        texts.append(f"The brokers do not tell {_costs(unknown)}.")
    if commands:
        texts.append(
            "It has other settings than this sink creates it with: it may lose decisions when brokers fail, or slow "
            f"down the start of queries. To change it, if the brokers let you, run: {' ; '.join(commands)}"
        )
    if texts:
        _warned.add(topic)
        _log.warning("ledgerTopic %s: %s", topic, " ".join(texts))


def _costs(names: Sequence[str]) -> str:
    """The settings, and what it may cost not to have them; each cost once."""
    by_cost: dict[str, list[str]] = {}
    for name in names:
        by_cost.setdefault(_COSTS[name.partition("=")[0]], []).append(name)
    return "; ".join(f"{', '.join(each)} ({cost})" for cost, each in by_cost.items())


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


@dataclass(frozen=True, slots=True)
class WantedLedger:
    """The replication factor and settings of a new topic in this cluster. ``default_told``: the brokers tell their
    default.replication.factor, so the replication factor is not below it.
    """

    replication: int
    settings: Mapping[str, str]
    default_told: bool


@dataclass(frozen=True, slots=True)
class MadeLedger:
    """How the topic was created. ``left_out``: settings that the brokers refused; ``refusal``: their first error.
    ``existed``: another client created it meanwhile, or a request of this one whose response was lost.
    """

    replication_factor: int
    left_out: tuple[str, ...]
    refusal: str
    existed: bool

    def told(self, wanted: WantedLedger, configs: Mapping[str, str | None], replicas: int) -> str:
        """What was left out and what that costs, with what is in effect instead. ``replicas``: of each partition, 0 if
        unknown."""
        texts = [f"without {', '.join(self.left_out)}"] if self.left_out else []
        if self.replication_factor == BROKER_DEFAULT:
            texts.append(f"with the brokers' default replication factor instead of {wanted.replication}")
        unknown = [name for name in self.left_out if configs.get(name) is None]
        weaker = [
            f"{name}={configs[name]}" for name in self.left_out if _is_weaker(name, configs.get(name), wanted.settings)
        ]
        costs = [f"Not told, so perhaps weaker: {_costs(unknown)}."] if unknown else []
        if weaker:
            costs.append(f"In effect: {_costs(weaker)}.")
        if replicas < wanted.replication:
            number = f"{replicas or 'an unknown number'} instead of {wanted.replication}"
            costs.append(f"Replicas of a partition: {number} (a decision may be lost with the brokers that hold it).")
        cost = " ".join(costs) or "The settings in effect are as strong."
        return f"{' and '.join(texts)}, because the brokers refuse more ({self.refusal}). {cost}"


def _is_weaker(name: str, value: str | None, settings: Mapping[str, str]) -> bool:
    if value is None or name == _UNCLEAN:  # an unclean election is a fault
        return False
    return float(value) < float(settings[name]) if name == _IN_SYNC else float(value) > float(settings[name])


def wanted_ledger(cluster: Cluster, deadline: float) -> WantedLedger:
    """Settings as strong as those of the brokers' transaction log, with no fewer replicas than other topics get."""
    brokers = len(cluster.node_ids(deadline))
    told = _broker_configs(cluster, (*_LIKE_TRANSACTION_LOG, _DEFAULT_REPLICATION), deadline)
    default = told.get(_DEFAULT_REPLICATION)
    replication = int(told.get(_LIKE_TRANSACTION_LOG[0]) or min(brokers, _MOST_REPLICAS))
    replication = max(replication, int(default or 1))
    in_sync = int(told.get(_LIKE_TRANSACTION_LOG[1]) or max(replication - 1, 1))
    return WantedLedger(replication, {**SETTINGS, _IN_SYNC: str(in_sync)}, default is not None)


def _repair_commands(
    cluster: Cluster, topic: str, wanted: WantedLedger, configs: Mapping[str, str | None], deadline: float
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
    if (in_sync := configs.get(_IN_SYNC)) is not None and int(in_sync) < min(
        int(wanted.settings[_IN_SYNC]), len(brokers)
    ):
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


def create_ledger(cluster: Cluster, topic: str, wanted: WantedLedger, deadline: float) -> MadeLedger:
    """Creates the topic with as many of the settings as the brokers take. Raises ``ExactlyOnceError`` if they refuse
    even cleanup.policy alone."""
    attempt: _Attempt | None = _Attempt(wanted.replication, tuple(wanted.settings))
    tried: dict[_Attempt, BrokerError] = {}
    while attempt is not None:
        settings = {name: wanted.settings[name] for name in attempt.names}
        try:
            new = NewTopic(topic, 2 * PARTITIONS, attempt.replication, settings)
            created = create_topic(cluster, new, deadline)
        except BrokerError as error:
            tried[attempt] = error
            if error.code not in _TRIED_AGAIN:
                break
            attempt = _with_fewer(wanted, tried)
        else:
            left_out = tuple(name for name in wanted.settings if name not in settings)
            if created and (left_out or attempt.replication != wanted.replication):
                _warned.add(topic)  # the warning about its creation says what it lacks
            return MadeLedger(attempt.replication, left_out, str(next(iter(tried.values()), "")), not created)
    last = [*tried.values()][-1]
    even = ", even with no setting but cleanup.policy=compact" if attempt is None else ""
    raise ExactlyOnceError(
        f"ledgerTopic {topic} is missing and cannot be created{even}: {why_not_created(last)}. Create it by hand: "
        + by_hand(wanted)
        + (
            "; of these the ledger cannot do without cleanup.policy. Without compaction use "
            "deliveryGuarantee=at-least-once."
            if even
            else "."
        )
    ) from last


def by_hand(wanted: WantedLedger) -> str:
    """The partitions and settings of the topic, for an administrator who creates it."""
    return ", ".join([f"{2 * PARTITIONS} partitions", *(f"{name}={value}" for name, value in wanted.settings.items())])


class _Attempt(NamedTuple):
    replication: int
    names: tuple[str, ...]


def _with_fewer(wanted: WantedLedger, tried: Mapping[_Attempt, BrokerError]) -> _Attempt | None:
    """What to try after a refusal; None if everything was tried.

    If the error names one of the settings, the same without it. Otherwise the most settings that were not tried yet:
    at most 32 attempts, once in the life of a ledger, while a broker that names what it refuses needs two. If the
    brokers do not tell their default replication factor, perhaps they take no other (Confluent Cloud); with it goes
    min.insync.replicas, which might be larger.
    """
    refused, error = list(tried.items())[-1]
    named = [name for name in refused.names if name != _POLICY and name in str(error)]
    if len(named) == 1:
        narrowed = _Attempt(refused.replication, tuple(name for name in refused.names if name != named[0]))
        if narrowed not in tried:
            return narrowed
    return next((each for each in _attempts(wanted) if each not in tried), None)


def _attempts(wanted: WantedLedger) -> Iterator[_Attempt]:
    """Every attempt, those with the most settings first. The brokers' default replication factor comes as soon as the
    same settings were refused with another."""

    def attempt(replication: int, optional: Collection[str]) -> _Attempt:
        return _Attempt(replication, tuple(name for name in wanted.settings if name == _POLICY or name in optional))

    without_in_sync = tuple(name for name in _OPTIONAL if name != _IN_SYNC)
    choices: list[tuple[int, tuple[str, ...]]] = [(wanted.replication, _OPTIONAL)]
    if not wanted.default_told:
        yield attempt(wanted.replication, without_in_sync)
        yield attempt(BROKER_DEFAULT, without_in_sync)
        choices.append((BROKER_DEFAULT, without_in_sync))
    for replication, optional in choices:
        for count in range(len(optional), -1, -1):
            yield from (attempt(replication, names) for names in combinations(optional, count))


def _broker_configs(cluster: Cluster, names: tuple[str, ...], deadline: float) -> dict[str, str | None]:
    """The configs of the broker that responds: a broker describes itself, and refuses to describe the others. Empty if
    it does not describe itself to this principal. Raises as ``_describe`` if the API is missing."""
    try:
        return _describe(cluster, _BROKER, [str(each) for each in cluster.node_ids(deadline)], names, deadline)
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
        described = [each for each in body.results if each.error_code is ErrorCode.none]
        return [
            CodeAt(f"DescribeConfigs of {each.resource_name}", each.error_code, each.error_message)
            for each in described or body.results
        ]

    try:
        body = cluster.call(Call("describe_configs", every("describe_configs"), None, make, codes), deadline)
    except UnsupportedVersionError as error:
        raise ExactlyOnceError(
            "Exactly-once needs the API DescribeConfigs to know that the ledger is compacted and loses no decisions: "
            f"{clause(error)}. {_USE_OTHER_BROKERS}."
        ) from error
    described = next((each for each in body.results if each.error_code is ErrorCode.none), None)
    if described is None:
        raise NetworkError(f"The DescribeConfigs response lacks {', '.join(names)}")
    configs = {config.name: config.value or None for config in described.configs}
    for name in keys:
        if (value := configs.get(name)) is not None and not _is_readable(name, value):
            raise NetworkError(f"The DescribeConfigs response has {name}={shown(value)}, which is not a number")
    return configs


def _is_readable(name: str, value: str) -> bool:
    """Whether the value is a number, unless the setting is one of those that are not."""
    if name in (_POLICY, _UNCLEAN):
        return True
    try:
        return abs((float if name == _DIRTY_RATIO else int)(value)) < 1 << 63
    except ValueError:
        return False
