"""The parts of a real broker that TestBroker emulates, accepts without effect, or refuses, for the documentation.

The emulated APIs are taken from ``apis/table.py``. Tests compare the lists with the APIs that TestBroker announces,
with its settings, and with the settings of a real Kafka. They fail until a new setting is listed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from spark_kafka_sink.common.compression import CODECS
from spark_kafka_sink.testing.broker.apis.table import APIS as HANDLED
from spark_kafka_sink.testing.broker.wire import API_KEYS


class EmulationStatus(Enum):
    EMULATED = "emulated"
    NO_EFFECT = "accepted without effect"
    REFUSED = "refused"

    def of(self, names: str, note: str = "") -> EmulationNote:
        """A note of this status. ``names``: APIs or settings, separated by spaces."""
        return EmulationNote(tuple(names.split()), self, note)


@dataclass(frozen=True, slots=True)
class EmulationNote:
    """APIs or settings of one status. ``note``: what is missing, or what to use instead."""

    names: tuple[str, ...]
    status: EmulationStatus
    note: str = ""


_emulated, _no_effect, _refused = EmulationStatus.EMULATED.of, EmulationStatus.NO_EFFECT.of, EmulationStatus.REFUSED.of

_REFUSED_APIS: Final = (
    _refused("DeleteRecords", "`TestBroker.delete_records` moves the log start offset."),
    _refused("AlterConfigs IncrementalAlterConfigs", "`TestBroker.set_topic_configs` changes a topic."),
    _refused(
        "DescribeAcls CreateAcls DeleteAcls",
        'Everything is authorized. Script refusals: `faults.answer("Produce", "TOPIC_AUTHORIZATION_FAILED")`.',
    ),
    _refused(
        "DescribeClientQuotas AlterClientQuotas",
        "`TestBroker.set_quotas` limits `producer_byte_rate` of a client id. Others: `faults.throttle`.",
    ),
    _refused("DescribeUserScramCredentials AlterUserScramCredentials", "`Listener(users=…)` has the users."),
    _refused(
        "ElectLeaders AlterPartitionReassignments ListPartitionReassignments",
        "`TestBroker.move_leader` elects a leader; replicas stay where they are.",
    ),
    _refused("OffsetForLeaderEpoch", "Consumers do without it: leaders never truncate their log."),
    _refused("ConsumerGroupHeartbeat ConsumerGroupDescribe", "`group.protocol=classic` works."),
    _refused(
        "WriteTxnMarkers AlterPartition AllocateProducerIds Envelope BrokerRegistration BrokerHeartbeat "
        "UnregisterBroker ControllerRegistration Vote BeginQuorumEpoch EndQuorumEpoch DescribeQuorum FetchSnapshot "
        "AddRaftVoter RemoveRaftVoter UpdateRaftVoter UpdateFeatures",
        "Between brokers and controllers. All nodes share one state instead.",
    ),
)
_NAMED: Final = {*HANDLED, *(name for entry in _REFUSED_APIS for name in entry.names)}
APIS: Final = (
    *(_emulated(name, api.note) for name, api in HANDLED.items() if api.note),
    _emulated(" ".join(name for name, api in HANDLED.items() if not api.note)),
    *_REFUSED_APIS,
    _refused(" ".join(name for name in API_KEYS if name not in _NAMED)),
)
"""Every API of Kafka's protocol. A refused API is not announced, and a connection that uses it is closed."""

TOPIC_CONFIGS: Final = (
    _emulated(
        "compression.type",
        "An uncompressed batch whose offset deltas are not 0, 1, 2, … gets INVALID_RECORD if it is to be compressed.",
    ),
    _emulated("max.message.bytes message.timestamp.type min.insync.replicas"),
    _emulated("cleanup.policy", "`compact` requires keys. Nothing is ever compacted or deleted."),
    _no_effect(
        "retention.bytes retention.ms segment.bytes segment.ms file.delete.delay.ms",
        "There are no segments, and records stay. `TestBroker.delete_records` removes them.",
    ),
    _no_effect("delete.retention.ms max.compaction.lag.ms min.cleanable.dirty.ratio min.compaction.lag.ms"),
    _no_effect("flush.messages flush.ms", "Everything is in memory."),
    _no_effect("unclean.leader.election.enable", "Only in-sync replicas are elected, except by `move_leader`."),
    _refused(
        " ".join(f"compression.{name}.level" for name, codec in CODECS.items() if codec.level is not None),
        "Each codec has its default level.",
    ),
    _emulated("message.timestamp.after.max.ms message.timestamp.before.max.ms", "Default: any timestamp is accepted."),
    _refused("segment.jitter.ms segment.index.bytes index.interval.bytes preallocate"),
    _refused("follower.replication.throttled.replicas leader.replication.throttled.replicas"),
    _refused(
        "local.retention.bytes local.retention.ms remote.log.copy.disable remote.log.delete.on.disable "
        "remote.storage.enable",
        "Tiered storage.",
    ),
)
"""Every topic setting of Kafka. A refused setting is INVALID_CONFIG."""

BROKER_CONFIGS: Final = (
    _emulated(
        "auto.create.topics.enable compression.type connections.max.reauth.ms default.replication.factor "
        "group.initial.rebalance.delay.ms group.max.session.timeout.ms group.min.session.timeout.ms "
        "log.message.timestamp.type message.max.bytes min.insync.replicas num.io.threads num.partitions "
        "offsets.commit.timeout.ms offsets.topic.num.partitions share.coordinator.state.topic.num.partitions "
        "socket.request.max.bytes transaction.max.timeout.ms transaction.state.log.num.partitions",
        "`group.initial.rebalance.delay.ms` is 0 by default. Internal topics have three replicas, or as many as there "
        "are nodes.",
    ),
)
"""Every broker setting of ``TestBroker(config=…)``; any other is a ``ConfigError``."""

PARTS: Final = (
    (
        "replication",
        "Followers have no logs of their own, so a new leader has every record. A node that is killed leaves the "
        "in-sync replicas at once, and rejoins them when it starts. A held follower stays in sync until `set_isr` "
        "removes it (no `replica.lag.time.max.ms`); a paused node still gets every record. Missing: controllers, "
        "reassignment, replicas spread over racks.",
    ),
    ("logs", "Missing: segments, retention, compaction, tiered storage."),
    (
        "producer ids",
        "Missing: expiry (`producer.id.expiration.ms`). `TestBroker.drop_producer_state` forgets producers.",
    ),
    (
        "transactions",
        "Missing: records of `__transaction_state` (its replicas do not count), expiry "
        "(`transactional.id.expiration.ms`), the milliseconds in which a real coordinator responds "
        "CONCURRENT_TRANSACTIONS while it writes markers (`hold_markers`).",
    ),
    (
        "consumer groups",
        "Missing: the protocol of KIP-848 (`group.protocol=consumer`), static members that come back without a "
        "rebalance (KIP-345), records of members in `__consumer_offsets` (a SyncGroup does not wait for replicas), "
        "loading of coordinators.",
    ),
    ("quotas", "`producer_byte_rate` of a client id only. Missing: quotas of users, defaults, other kinds."),
    ("security", "Listeners have TLS and SASL (PLAIN, SCRAM). Missing: ACLs, delegation tokens, other mechanisms."),
)
"""Parts of a broker that no API or setting names, and what is missing of each."""
