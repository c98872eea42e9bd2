"""The versions of each API that this client speaks: the one table, from which every request takes its range.

They are the versions that Kafka's Java client 4.x sends (KIP-896), and tests compare them with the message definitions
of its jar. A connection uses the highest version that its broker also speaks, so in a cluster that is being upgraded
each connection has versions of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final, NamedTuple

from spark_kafka_sink.common.compression import CODECS


class VersionRange(NamedTuple):
    """The lowest and highest version, both included. ``need``: a sentence for users that says what needs the lowest
    version and what to do instead; empty if this client just does not speak lower versions.
    """

    lowest: int
    highest: int
    need: str = ""


@dataclass(frozen=True, slots=True)
class Support:
    """The versions of one API, and the Kafka releases in which the lowest and the highest of them appeared.

    ``without``: what the lower versions lack, and what happens then. ``unsent``: why versions of Kafka's definitions
    are left out.
    """

    lowest: int
    highest: int
    since: tuple[str, str]
    without: str = ""
    unsent: str = ""


SUPPORTED_VERSIONS: Final[Mapping[str, Support]] = MappingProxyType({
    "produce": Support(
        3, 13, ("0.11", "4.1"),
        "before 13: topics by name; before 12: AddPartitionsToTxn in transactions; before 10: no hint of the new "
        "leader; before 8: no message for an error; before 7: no zstd, an error before the first row; before 5: no "
        "log start offset",
    ),
    "metadata": Support(
        0, 13, ("0.8", "4.0"),
        "before 13: no REBOOTSTRAP_REQUIRED; before 10: no topic ids; before 9: no leader epochs (those of 7 and 8 "
        "are unreliable); before 8: no rights in `check`; before 4: every request creates missing topics, so "
        "`topicCreation` is an error",
    ),
    "api_versions": Support(
        0, 4, ("0.10", "3.9"), "before 3: no features, so transactions of the first protocol",
        "5 (Kafka 4.4): names the broker that a connection means to reach (KIP-1242)",
    ),
    "sasl_handshake": Support(
        1, 1, ("1.0", "1.0"), "",
        "0: tokens would follow without SaslAuthenticate, which only brokers before 1.0 lack",
    ),
    "sasl_authenticate": Support(0, 2, ("1.0", "2.5"), "before 1: no end of a session, so none is renewed"),
    "init_producer_id": Support(
        0, 5, ("0.11", "3.8"),
        "before 3: no epoch can be renewed (KIP-360), so lost sequences end a transactional producer, and "
        "exactly-once is an error; without the API: see [Idempotence](#idempotence)",
        "6: two-phase commit (KIP-939), unstable",
    ),
    "find_coordinator": Support(
        0, 6, ("0.9", "3.9"), "before 4: one coordinator per request; before 1: no transactions"
    ),
    "add_partitions_to_txn": Support(0, 3, ("0.11", "2.8"), "", "from 4 on: only brokers send it"),
    "add_offsets_to_txn": Support(0, 4, ("0.11", "3.8")),
    "txn_offset_commit": Support(
        0, 5, ("0.11", "4.0"),
        "before 5: AddOffsetsToTxn; before 3: the consumer's member and generation are an error; before 2: no "
        "leader epochs",
        "6 (Kafka 4.4): names topics by ids, which kio's schemas lack",
    ),
    "end_txn": Support(0, 5, ("0.11", "4.0"), "before 5: transactions of the first protocol (KIP-890)"),
    "describe_configs": Support(1, 4, ("1.1", "2.8")),
    "create_topics": Support(
        2, 7, ("0.11", "2.8"),
        "before 4: partitions and replication factor must be given, else an error (KIP-464)",
    ),
    "delete_topics": Support(1, 6, ("0.11", "2.8")),
    "list_offsets": Support(1, 11, ("0.10.1", "4.2")),
    "fetch": Support(4, 18, ("0.11", "4.1"), "before 13: topics by name"),
    "describe_cluster": Support(0, 2, ("2.8", "4.0"), "without the API: not known whether a ledger may be created"),
    "list_transactions": Support(0, 2, ("3.0", "4.1"), "without it, those of dead runs end by their timeout"),
    "describe_transactions": Support(
        0, 0, ("3.0", "3.0"), "without it, transactions of dead runs end by their timeout, and fenced tasks go on"
    ),
})  # fmt: skip
"""The versions of each API, by kio's names (``end_txn``)."""


def every(api: str) -> VersionRange:
    return between(api)


def between(api: str, lowest: int | None = None, highest: int | None = None, need: str = "") -> VersionRange:
    """The versions from ``lowest`` to ``highest``; None: the table's. Raises ``ValueError`` for versions outside the
    table. ``need``: as in ``VersionRange``.
    """
    spoken = SUPPORTED_VERSIONS[api]
    lowest = spoken.lowest if lowest is None else lowest
    highest = spoken.highest if highest is None else highest
    if not spoken.lowest <= lowest <= highest <= spoken.highest:
        raise ValueError(f"{api} is spoken in versions {spoken.lowest} to {spoken.highest}, not {lowest} to {highest}")
    return VersionRange(lowest, highest, need)


PRODUCE_FIRST_FLEXIBLE: Final = 9
PRODUCE_FIRST_WITH_LEADERS: Final = 10
PRODUCE_FIRST_OF_TRANSACTIONS_V2: Final = 12
"""The version from which on Produce adds partitions to the transaction (KIP-890)."""
PRODUCE_FIRST_WITH_TOPIC_IDS: Final = 13
END_TXN_LAST_OF_TRANSACTIONS_V1: Final = 4
METADATA_FIRST_WITHOUT_CREATION: Final = 4
METADATA_FIRST_WITH_OPERATIONS: Final = 8
METADATA_FIRST_WITH_RELIABLE_EPOCHS: Final = 9
"""Brokers before 2.4 send stale epochs during a reassignment (Java: ``MetadataResponse.hasReliableLeaderEpochs``)."""
METADATA_FIRST_WITH_TOPIC_IDS: Final = 10
METADATA_LAST_WITH_CLUSTER_OPERATIONS: Final = 10
FETCH_FIRST_WITH_TOPIC_IDS: Final = 13
INIT_PRODUCER_ID_FIRST_WITH_IDENTITY: Final = 3
CREATE_TOPICS_FIRST_WITH_DEFAULTS: Final = 4
DELETE_TOPICS_FIRST_WITH_TOPIC_IDS: Final = 6

METADATA: Final = every("metadata")
METADATA_WITHOUT_CREATION: Final = between(
    "metadata", METADATA_FIRST_WITHOUT_CREATION, need="older versions would create the topics that are looked up"
)
END_TXN_OF_TRANSACTIONS_V1: Final = between("end_txn", highest=END_TXN_LAST_OF_TRANSACTIONS_V1)
END_TXN_OF_TRANSACTIONS_V2: Final = between("end_txn", END_TXN_LAST_OF_TRANSACTIONS_V1 + 1)
FIND_COORDINATOR_OF_GROUP: Final = every("find_coordinator")
FIND_COORDINATOR_OF_TRANSACTION: Final = between("find_coordinator", 1, need="transactions need it")
INIT_PRODUCER_ID: Final = every("init_producer_id")
INIT_PRODUCER_ID_WITH_IDENTITY: Final = between(
    "init_producer_id",
    INIT_PRODUCER_ID_FIRST_WITH_IDENTITY,
    need="exactly-once needs it to renew the epoch of a transaction (KIP-360, Kafka 2.5): "
    "use deliveryGuarantee=at-least-once, or newer brokers",
)
TXN_OFFSET_COMMIT_V1: Final = between("txn_offset_commit", highest=4)
TXN_OFFSET_COMMIT_V2: Final = between("txn_offset_commit", 5)
TXN_OFFSET_COMMIT_V1_OF_MEMBER: Final = between(
    "txn_offset_commit", 3, 4, "the consumer's member and generation need it (KIP-447, Kafka 2.5)"
)
CREATE_TOPICS: Final = every("create_topics")
CREATE_TOPICS_WITH_DEFAULTS: Final = between(
    "create_topics",
    CREATE_TOPICS_FIRST_WITH_DEFAULTS,
    need="the brokers' defaults need it (KIP-464, Kafka 2.4): give the number of partitions and the replication factor",
)
FETCH_BY_NAME: Final = between("fetch", highest=FETCH_FIRST_WITH_TOPIC_IDS - 1)
_NEWER_CODEC: Final = "compression.type={} needs it (Kafka {}): use another codec, such as lz4, or newer brokers"
_TRANSACTIONS_V2: Final = "the cluster's transaction.version is 2, which needs it"


@cache
def produce_versions(by_id: bool = False, protocol: int = 0, codec: str = "none") -> VersionRange:
    """The versions of a Produce request.

    ``by_id``: whether the ids of all its topics are known. ``protocol``: the protocol of its transaction (1, or 2 since
    KIP-890), 0 for none. ``codec``: the codec of its batches, a name of ``CODECS``.
    """
    spoken, compression = SUPPORTED_VERSIONS["produce"], CODECS[codec]
    lowest, need = spoken.lowest, ""
    if compression.first_produce > lowest:
        lowest, need = compression.first_produce, _NEWER_CODEC.format(codec, compression.since)
    highest = spoken.highest if by_id else PRODUCE_FIRST_WITH_TOPIC_IDS - 1
    if protocol == 1:
        highest = PRODUCE_FIRST_OF_TRANSACTIONS_V2 - 1
    elif protocol:
        lowest, need = PRODUCE_FIRST_OF_TRANSACTIONS_V2, _TRANSACTIONS_V2
    return between("produce", lowest, highest, need)


def camel_case(api: str) -> str:
    """Kafka's name of an API: ``init_producer_id`` is ``InitProducerId``."""
    return "".join(word.capitalize() for word in api.split("_"))
