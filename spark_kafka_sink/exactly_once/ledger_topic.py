"""The ledger's topic: creates it, and checks the settings of an existing one."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.shell import option
from spark_kafka_sink.common.task_figures import count_noun
from spark_kafka_sink.errors import BrokerError, NetworkError, UnsupportedVersionError, clause, sanitize
from spark_kafka_sink.exactly_once.committer import Cluster
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.values import LedgerPartitions
from spark_kafka_sink.network.api_versions import CREATE_TOPICS_WITH_DEFAULTS
from spark_kafka_sink.network.messages import API_KEYS
from spark_kafka_sink.network.topics import (
    BROKER,
    BROKER_DEFAULT,
    MAX_MESSAGE_BYTES,
    TOPIC,
    NewTopic,
    create_topic,
    describe_configs,
    why_not_created,
)

_log = logging.getLogger("spark_kafka_sink.exactly_once")

PARTITIONS: Final = 10
"""The number of partitions for entries. A name's entries are in the partition of its hash modulo this number, even if
the topic has more partitions; its markers are in the partition this many further on.
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
control records of half an hour. They must not be removed while the driver reads, so it reads anew after half of that
time."""

_FEWER_SETTINGS: Final = ((_POLICY, _SEGMENT, _DELETE_RETENTION, _IN_SYNC), (_POLICY,))
"""The sets of settings that are tried in this order if brokers refuse all settings. Confluent Cloud takes the first
set, MSK Serverless only the policy."""

_ABOUT_SETTINGS: Final = frozenset({ErrorCode.invalid_config, ErrorCode.policy_violation})
_LIKE_TRANSACTION_LOG: Final = ("transaction.state.log.replication.factor", "transaction.state.log.min.isr")
_DEFAULT_REPLICATION: Final = "default.replication.factor"
_MAX_REPLICAS: Final = 3
_MAX_TIMEOUT: Final = "transaction.max.timeout.ms"
_SOON_MS: Final = 50.0

_REPLICATION: Final = "replication.factor"
_PARTITIONS: Final = "partitions"
_MORE_IS_STRONGER: Final = frozenset({_IN_SYNC, _REPLICATION, _PARTITIONS})
_COSTS: Final = (
    ("Decisions may be lost when brokers fail, and batches be written twice", (_UNCLEAN, _IN_SYNC, _REPLICATION)),
    ("The start of a query reads more", (_SEGMENT, _DELETE_RETENTION, _DIRTY_RATIO, _PARTITIONS)),
)
"""What a weaker ledger may cost, with the settings that prevent it. Compaction is required."""

_USE_OTHER_BROKERS: Final = (
    "Use brokers (or a tier of the service) that return a topic's settings, or deliveryGuarantee=at-least-once"
)

_warned: set[str] = set()


def ledger_partitions(name: str, topic: str, partition_count: int = 2 * PARTITIONS) -> LedgerPartitions:
    """The partitions of a name's entries and markers. Both are in one partition if the topic has too few."""
    partition = zlib.crc32(name.encode()) % PARTITIONS
    return LedgerPartitions(topic, partition, partition + (PARTITIONS if partition_count >= 2 * PARTITIONS else 0))


def refuse_too_few(topic: str, partitions: int) -> None:
    """Raises ``ExactlyOnceError`` if these are too few for a ledger. Brokers create such a topic for any client."""
    if partitions < PARTITIONS:
        raise ExactlyOnceError(
            f"ledgerTopic {topic} has {count_noun(partitions, 'partition')}, the ledger needs {PARTITIONS}: add "
            "some, or delete an empty one and let this sink create it."
        )


@dataclass(frozen=True, slots=True)
class LedgerTopic:
    """The ledger's topic as this sink wants it in a cluster, or as the brokers describe it.

    ``replication``: replicas of the partition that has the fewest. ``settings``: topic configs by Kafka's names;
    settings that the brokers do not return are missing.
    """

    replication: int
    settings: Mapping[str, str]
    partitions: int = 2 * PARTITIONS

    @property
    def max_message_bytes(self) -> int | None:
        """The largest record that the topic takes; None: not known."""
        return int(self.settings[MAX_MESSAGE_BYTES]) if MAX_MESSAGE_BYTES in self.settings else None

    def weaknesses(self, found: LedgerTopic) -> str:
        """The settings of ``found`` that are weaker than wanted or not known, and what that may cost; "" if there are
        none."""
        wanted, has = self._figures(), found._figures()
        weaker = {
            name: f"{name}={has.get(name, 'unknown')} instead of {value}"
            for name, value in wanted.items()
            if name not in has or _is_weaker(name, has[name], value)
        }
        costs = ((cost, [weaker[name] for name in names if name in weaker]) for cost, names in _COSTS)
        return " ".join(f"{cost}: {', '.join(settings)}." for cost, settings in costs if settings)

    def _figures(self) -> Mapping[str, str]:
        return {**self.settings, _REPLICATION: str(self.replication), _PARTITIONS: str(self.partitions)}

    def create_command(self, cluster: Cluster, topic: str) -> str:
        """The command with which an administrator creates the topic."""
        settings = " ".join(f"--config {name}={value}" for name, value in self.settings.items())
        return (
            f"kafka-topics.sh {cluster.server_options} --create {option('--topic', topic)} "
            f"--partitions {self.partitions} --replication-factor {self.replication} {settings}"
        )


def _is_weaker(name: str, found: str, wanted: str) -> bool:
    if found == wanted:
        return False
    more = float(found) - float(wanted)
    return more < 0 if name in _MORE_IS_STRONGER else more > 0


def wanted_ledger(cluster: Cluster, deadline: float) -> LedgerTopic:
    """Settings as strong as those of the brokers' transaction log, with no fewer replicas than other topics get."""
    brokers = len(cluster.node_ids(deadline))
    configs = _broker_configs(cluster, (*_LIKE_TRANSACTION_LOG, _DEFAULT_REPLICATION), deadline)
    replication = int(configs.get(_LIKE_TRANSACTION_LOG[0]) or min(brokers, _MAX_REPLICAS))
    replication = max(replication, int(configs.get(_DEFAULT_REPLICATION) or 1))
    in_sync = int(configs.get(_LIKE_TRANSACTION_LOG[1]) or max(replication - 1, 1))
    return LedgerTopic(replication, {**SETTINGS, _IN_SYNC: str(in_sync)})


def ensure_ledger(cluster: Cluster, topic: str, deadline: float) -> LedgerTopic:
    """Creates the topic if it is missing, checks its settings, and warns once if it is weaker than wanted. Raises
    ``ExactlyOnceError`` if it cannot be created or would lose entries."""
    wanted, refusal = wanted_ledger(cluster, deadline), ""
    if cluster.topic(topic, deadline) is None:
        refusal = create_ledger(cluster, topic, wanted, deadline)
    found = describe_ledger(cluster, topic, wanted, deadline)
    if topic not in _warned and (weaknesses := wanted.weaknesses(found)):
        _warned.add(topic)
        reason = f", because the brokers refuse more ({refusal})" if refusal else ""
        _log.warning(
            "ledgerTopic %s is weaker than wanted%s. %s The page Operate exactly-once of the documentation says how to "
            "change it.",
            topic,
            reason,
            weaknesses,
        )
    return found


def create_ledger(cluster: Cluster, topic: str, wanted: LedgerTopic, deadline: float) -> str:
    """Creates the topic, unless it exists by now, with fewer settings if the brokers refuse all. Returns the refusal of
    all settings, or "". Raises ``ExactlyOnceError`` if they refuse even cleanup.policy alone."""
    refusals: list[BrokerError] = []
    for names in (tuple(wanted.settings), *_FEWER_SETTINGS):
        replication = wanted.replication
        if names == (_POLICY,) and _can_choose_replication(cluster):
            replication = BROKER_DEFAULT  # some take no other (Confluent Cloud)
        settings = {name: wanted.settings[name] for name in names}
        try:
            create_topic(cluster, NewTopic(topic, wanted.partitions, replication, settings), deadline)
        except BrokerError as error:
            refusals.append(error)
            if error.code not in _ABOUT_SETTINGS:
                break
        else:
            return str(refusals[0]) if refusals else ""
    even = ", even with no setting but cleanup.policy=compact" if len(refusals) > len(_FEWER_SETTINGS) else ""
    raise ExactlyOnceError(
        f"ledgerTopic {topic} is missing and cannot be created{even}: {why_not_created(refusals[-1])}. Have it "
        f"created: `{wanted.create_command(cluster, topic)}` (only cleanup.policy is required). Without compaction use "
        "deliveryGuarantee=at-least-once."
    ) from refusals[-1]


def _can_choose_replication(cluster: Cluster) -> bool:
    """Whether the brokers choose the replication factor of a topic that is created without one (KIP-464)."""
    versions = cluster.any_api_versions()
    return versions is not None and versions.speaks(API_KEYS["create_topics"], CREATE_TOPICS_WITH_DEFAULTS)


def describe_ledger(cluster: Cluster, topic: str, wanted: LedgerTopic, deadline: float) -> LedgerTopic:
    """The topic, once it is in the brokers' metadata. Raises ``ExactlyOnceError`` if it has too few partitions, and as
    ``checked_configs``."""
    while (info := cluster.topic(topic, deadline)) is None or not info.partition_count:
        cluster.check_time(deadline, f"ledgerTopic {topic} exists, but is not in the brokers' metadata")
        cluster.pause(_SOON_MS)
    refuse_too_few(topic, info.partition_count)
    settings = checked_configs(cluster, topic, wanted, deadline)
    return LedgerTopic(min(len(each.all) for each in info.replicas), settings, info.partition_count)


def checked_configs(cluster: Cluster, topic: str, wanted: LedgerTopic, deadline: float) -> dict[str, str]:
    """The topic's effective settings that the brokers return. Raises ``ExactlyOnceError`` if the topic would lose
    entries, or if its cleanup.policy is not among them.
    """
    configs = _describe(cluster, TOPIC, [topic], (*wanted.settings, MAX_MESSAGE_BYTES), deadline)
    if _POLICY not in configs:
        raise ExactlyOnceError(
            f"ledgerTopic {topic} could lose decisions: DescribeConfigs does not return its {_POLICY}, which must be "
            f"{SETTINGS[_POLICY]!r}. {_USE_OTHER_BROKERS}."
        )
    # Redpanda, for one, has no unclean.leader.election.enable, and never elects a leader that lacks records.
    if faults := [
        f"{name} is {configs[name]!r}, not {SETTINGS[name]!r}"
        for name in (_POLICY, _UNCLEAN)
        if configs.get(name, SETTINGS[name]) != SETTINGS[name]
    ]:
        raise ExactlyOnceError(
            f"ledgerTopic {topic} could lose decisions: {'; '.join(faults)}. Change its settings (kafka-configs "
            "--alter), or name another topic."
        )
    return configs


def broker_limit_ms(cluster: Cluster, deadline: float) -> int | None:
    """The brokers' transaction.max.timeout.ms; None without the right to describe configs."""
    limit = _broker_configs(cluster, (_MAX_TIMEOUT,), deadline).get(_MAX_TIMEOUT)
    return None if limit is None else int(limit)


def _broker_configs(cluster: Cluster, names: tuple[str, ...], deadline: float) -> dict[str, str]:
    """The configs of the broker that responds: a broker describes itself, and refuses to describe the others. Empty if
    it does not describe itself to this principal. Raises as ``_describe`` if the API is missing."""
    try:
        return _describe(cluster, BROKER, [str(id_) for id_ in cluster.node_ids(deadline)], names, deadline)
    except BrokerError:
        return {}


def _describe(cluster: Cluster, kind: int, names: list[str], keys: tuple[str, ...], deadline: float) -> dict[str, str]:
    """The configs with a value of the first resource that the broker describes. Raises ``ExactlyOnceError`` if the API
    is missing, because nothing else shows whether the ledger is compacted."""
    try:
        found = [*describe_configs(cluster, kind, names, keys, deadline).values()]
    except UnsupportedVersionError as error:
        raise ExactlyOnceError(
            "Exactly-once needs the API DescribeConfigs to know that the ledger is compacted and loses no decisions: "
            f"{clause(error)}. {_USE_OTHER_BROKERS}."
        ) from error
    configs = next((each for each in found if not isinstance(each, BrokerError)), found[0])
    if isinstance(configs, BrokerError):
        raise configs
    for name, value in configs.items():
        if name in keys and not _is_readable(name, value):
            raise NetworkError(f"The DescribeConfigs response has {name}={sanitize(value)}, which is not a number")
    return configs


def _is_readable(name: str, value: str) -> bool:
    """Whether the value can be compared: it is a number, or the setting's values are words."""
    if name in (_POLICY, _UNCLEAN):
        return True
    try:
        return abs((float if name == _DIRTY_RATIO else int)(value)) < 1 << 63
    except ValueError:
        return False
