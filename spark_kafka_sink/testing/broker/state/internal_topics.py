"""The topics that brokers create for themselves (Kafka: ``Topic.INTERNAL_TOPICS``, ``AutoTopicCreationManager``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from spark_kafka_sink.testing.broker.state.config import Setting

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
"""The topic of Kafka's controllers, which no client may create. It does not count as internal."""

INTERNAL_REPLICAS: Final = 3
"""The number of replicas of an internal topic, or the number of nodes if there are fewer."""

_SEGMENT_BYTES: Final = 104_857_600
_MIN_INT: Final = 2**31


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """The settings with which a broker creates an internal topic. ``partitions``: the broker setting with the number of
    partitions."""

    partitions: str
    configs: Mapping[str, Setting]


INTERNAL_TOPICS: Final[Mapping[str, InternalTopic]] = MappingProxyType(
    {
        OFFSETS_TOPIC: InternalTopic(
            "offsets.topic.num.partitions",
            {"compression.type": "producer", "cleanup.policy": "compact", "segment.bytes": _SEGMENT_BYTES},
        ),
        TRANSACTIONS_TOPIC: InternalTopic(
            "transaction.state.log.num.partitions",
            {
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": 2,
                "segment.bytes": _SEGMENT_BYTES,
                "unclean.leader.election.enable": False,
            },
        ),
        "__share_group_state": InternalTopic(
            "share.coordinator.state.topic.num.partitions",
            {
                "compression.type": "producer",
                "cleanup.policy": "delete",
                "min.insync.replicas": 2,
                "segment.bytes": _SEGMENT_BYTES,
                "retention.ms": -1,
            },
        ),
    }
)


def coordinator_partition(key: str, count: int) -> int:
    """The partition that holds a group or transactional id: the absolute value of Java's hash of it."""
    code_units = key.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(code_units[::2], code_units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    if code == _MIN_INT:
        return 0  # Java's abs cannot make it positive, Kafka's makes it 0
    return min(code, 2 * _MIN_INT - code) % count
