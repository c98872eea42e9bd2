"""Which APIs and versions the broker offers, by the Kafka release it imitates.

The figures are those of the ``ApiVersions`` responses of real brokers (2.8.2, 3.5.2, 3.9.1, 4.1.1), and for 2.1 and
2.4 those of Kafka's sources. Versions that kio cannot read (Produce before 3, Fetch before 4, …) are offered as the
real broker offers them; to use one closes the connection. ``emulation.APIS`` names the APIs that are not offered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, TypeAlias

from spark_kafka_sink.errors import ConfigError

LATEST: Final = "4.1"


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Lowest and highest version of an API, both included."""

    lowest: int
    highest: int

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest


@dataclass(frozen=True, slots=True)
class Release:
    """Versions and features of a broker of one Kafka release.

    ``features`` are the finalized features (name to level); ``transaction.version`` 2 means KIP-890's second part.
    ``verifies_partitions``: a transactional Produce must name a partition of the transaction (3.6 and later).
    ``watermark_needs_min_isr``: the high watermark advances only with ``min.insync.replicas`` in sync (3.7 and later).
    ``commit_acks``: with which group coordinators append (-1: all; 1 since 4.0). ``offset_value_version``: of the
    records in ``__consumer_offsets``.
    """

    versions: Mapping[str, VersionRange]
    features: Mapping[str, int]
    verifies_partitions: bool
    watermark_needs_min_isr: bool
    commit_acks: int = -1
    offset_value_version: int = 3


_Range: TypeAlias = tuple[int, int]
_Row: TypeAlias = tuple[int, _Range | None, _Range | None, _Range | None, _Range | None, _Range, _Range]

_TABLE: Final[Mapping[str, _Row]] = MappingProxyType(
    {
        # API                     key  2.1      2.4      2.8      3.5      3.9      4.1
        "Produce":                (0,  (0, 7),   (0, 8),   (0, 9),   (0, 9),   (0, 11),  (0, 13)),
        "Fetch":                  (1,  (0, 10),  (0, 11),  (0, 12),  (0, 15),  (0, 17),  (4, 18)),
        "ListOffsets":            (2,  (0, 4),   (0, 5),   (0, 6),   (0, 8),   (0, 9),   (1, 10)),
        "Metadata":               (3,  (0, 7),   (0, 9),   (0, 11),  (0, 12),  (0, 12),  (0, 13)),
        "OffsetCommit":           (8,  (0, 6),   (0, 8),   (0, 8),   (0, 8),   (0, 9),   (2, 9)),
        "OffsetFetch":            (9,  (0, 5),   (0, 6),   (0, 7),   (0, 8),   (0, 9),   (1, 9)),
        "FindCoordinator":        (10, (0, 2),   (0, 3),   (0, 3),   (0, 4),   (0, 6),   (0, 6)),
        "JoinGroup":              (11, (0, 3),   (0, 6),   (0, 7),   (0, 9),   (0, 9),   (0, 9)),
        "Heartbeat":              (12, (0, 2),   (0, 4),   (0, 4),   (0, 4),   (0, 4),   (0, 4)),
        "LeaveGroup":             (13, (0, 2),   (0, 4),   (0, 4),   (0, 5),   (0, 5),   (0, 5)),
        "SyncGroup":              (14, (0, 2),   (0, 4),   (0, 5),   (0, 5),   (0, 5),   (0, 5)),
        "DescribeGroups":         (15, (0, 2),   (0, 5),   (0, 5),   (0, 5),   (0, 5),   (0, 6)),
        "ListGroups":             (16, (0, 2),   (0, 3),   (0, 4),   (0, 4),   (0, 5),   (0, 5)),
        "SaslHandshake":          (17, (0, 1),   (0, 1),   (0, 1),   (0, 1),   (0, 1),   (0, 1)),
        "ApiVersions":            (18, (0, 2),   (0, 3),   (0, 3),   (0, 3),   (0, 4),   (0, 4)),
        "CreateTopics":           (19, (0, 3),   (0, 5),   (0, 7),   (0, 7),   (0, 7),   (2, 7)),
        "DeleteTopics":           (20, (0, 3),   (0, 4),   (0, 6),   (0, 6),   (0, 6),   (1, 6)),
        "InitProducerId":         (22, (0, 1),   (0, 2),   (0, 4),   (0, 4),   (0, 5),   (0, 5)),
        "AddPartitionsToTxn":     (24, (0, 1),   (0, 1),   (0, 3),   (0, 3),   (0, 5),   (0, 5)),
        "AddOffsetsToTxn":        (25, (0, 1),   (0, 1),   (0, 3),   (0, 3),   (0, 4),   (0, 4)),
        "EndTxn":                 (26, (0, 1),   (0, 1),   (0, 3),   (0, 3),   (0, 4),   (0, 5)),
        "TxnOffsetCommit":        (28, (0, 2),   (0, 2),   (0, 3),   (0, 3),   (0, 4),   (0, 5)),
        "DescribeConfigs":        (32, (0, 2),   (0, 2),   (0, 4),   (0, 4),   (0, 4),   (1, 4)),
        "SaslAuthenticate":       (36, (0, 0),   (0, 1),   (0, 2),   (0, 2),   (0, 2),   (0, 2)),
        "CreatePartitions":       (37, (0, 1),   (0, 2),   (0, 3),   (0, 3),   (0, 3),   (0, 3)),
        "DescribeCluster":        (60, None,     None,     (0, 0),   (0, 0),   (0, 1),   (0, 2)),
        "DescribeTransactions":   (65, None,     None,     None,     (0, 0),   (0, 0),   (0, 0)),
        "ListTransactions":       (66, None,     None,     None,     (0, 0),   (0, 1),   (0, 2)),
        "DescribeTopicPartitions":(75, None,     None,     None,     None,     (0, 0),   (0, 0)),
    }
)  # fmt: skip

API_KEYS: Final[Mapping[str, int]] = MappingProxyType({api: row[0] for api, row in _TABLE.items()})
API_OF_KEY: Final[Mapping[int, str]] = MappingProxyType({key: api for api, key in API_KEYS.items()})


def _column(index: int) -> Mapping[str, VersionRange]:
    # The first entry of a row is the key.
    ranges = {api: row[index + 1] for api, row in _TABLE.items()}
    return MappingProxyType({api: VersionRange(*offered) for api, offered in ranges.items() if offered})  # type: ignore[misc]


RELEASES: Final[Mapping[str, Release]] = MappingProxyType(
    {
        "2.1": Release(_column(0), {}, verifies_partitions=False, watermark_needs_min_isr=False),
        "2.4": Release(_column(1), {}, verifies_partitions=False, watermark_needs_min_isr=False),
        "2.8": Release(_column(2), {}, verifies_partitions=False, watermark_needs_min_isr=False),
        "3.5": Release(_column(3), {"metadata.version": 11}, verifies_partitions=False, watermark_needs_min_isr=False),
        "3.9": Release(_column(4), {"metadata.version": 21}, verifies_partitions=True, watermark_needs_min_isr=True),
        "4.1": Release(
            _column(5),
            {"metadata.version": 27, "transaction.version": 2},
            verifies_partitions=True,
            watermark_needs_min_isr=True,
            commit_acks=1,
            offset_value_version=4,
        ),
    }
)


Narrowed: TypeAlias = Mapping[str, tuple[int, int] | None]
"""API name to lowest and highest version; None: the API is not offered."""


def release(like: str, narrowed: Narrowed | None = None) -> Release:
    """The release ``like``, its ranges replaced by those of ``narrowed``."""
    faults = []
    if like not in RELEASES:
        faults.append(f"like={like!r} is not a release that TestBroker imitates; use one of {', '.join(RELEASES)}")
    offered = RELEASES[like].versions if like in RELEASES else _TABLE
    unknown = sorted(set(narrowed or {}) - set(offered))
    if unknown:
        faults.append(f"api_versions names {', '.join(unknown)}; TestBroker like={like!r} has {', '.join(offered)}")
    if faults:
        raise ConfigError(faults)
    base = RELEASES[like]
    ranges = dict(base.versions)
    for api, given in (narrowed or {}).items():
        if given is None:
            del ranges[api]
        else:
            ranges[api] = VersionRange(max(given[0], ranges[api].lowest), min(given[1], ranges[api].highest))
    return replace(base, versions=MappingProxyType(ranges))
