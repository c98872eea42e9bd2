"""The APIs of this broker: the handler of each API, its versions by Kafka release, and what is missing.

The versions are taken from the ``ApiVersions`` responses of real brokers (2.8.2, 3.5.2, 3.9.1, 4.1.1), and for 2.1 and
2.4 from Kafka's sources. Versions that kio cannot read (Produce before 3, Fetch before 4, …) are offered as the real
broker offers them, but the use of one closes the connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, TypeAlias

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.network.api_versions import camel_case
from spark_kafka_sink.testing.broker.apis import fetch, groups, metadata, offsets, produce, sasl, topics, transactions
from spark_kafka_sink.testing.broker.request_context import Handler
from spark_kafka_sink.testing.broker.versions import Narrowed, OfferedVersions, Release

_Range: TypeAlias = tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Api:
    """An API. ``versions``: the lowest and highest version by release, None where the release lacks the API. ``note``:
    for the documentation, what is missing, or what to use instead.
    """

    handler: Handler
    versions: tuple[_Range, _Range, _Range, _Range, _Range, _Range]
    note: str = ""

    @property
    def name(self) -> str:
        """Kafka's name of the API, after which its handler is named."""
        return camel_case(self.handler.__name__)


_TABLE: Final = (
    #   handler                               2.1      2.4      2.8      3.5      3.9      4.1
    Api(produce.produce,                    ((0, 7),  (0, 8),  (0, 9),  (0, 9),  (0, 11), (0, 13)),
        "Missing: record formats 0 and 1. The fields inside the records of an uncompressed batch are not read, only "
        "their lengths; a compressed batch whose offset deltas are not 0, 1, 2, … gets INVALID_RECORD instead of "
        "UNKNOWN_SERVER_ERROR."),
    Api(fetch.fetch,                        ((0, 10), (0, 11), (0, 12), (0, 15), (0, 17), (4, 18)),
        "Missing: fetch sessions (each response has session 0, so clients send complete requests), fetches of "
        "followers, preferred replicas of a rack, tiered storage."),
    Api(fetch.list_offsets,                 ((0, 4),  (0, 5),  (0, 6),  (0, 8),  (0, 9),  (1, 10)),
        "Missing: tiered storage (timestamps -5 and -6). -4 is the same as -2."),
    Api(metadata.metadata,                  ((0, 7),  (0, 9),  (0, 11), (0, 12), (0, 12), (0, 13)),
        "A topic that is created automatically is in the same response. A real broker first responds "
        'UNKNOWN_TOPIC_OR_PARTITION: script that with `faults.answer("Metadata", …)`. Authorized operations: all.'),
    Api(offsets.offset_commit,              ((0, 6),  (0, 8),  (0, 8),  (0, 8),  (0, 9),  (2, 9)),
        "Missing: `offset.metadata.max.bytes`, `offsets.retention.minutes`, version 10."),
    Api(offsets.offset_fetch,               ((0, 5),  (0, 6),  (0, 7),  (0, 8),  (0, 9),  (1, 9)),
        "Missing: members and their epochs (KIP-848)."),
    Api(metadata.find_coordinator,          ((0, 2),  (0, 3),  (0, 3),  (0, 4),  (0, 6),  (0, 6)),
        "Share groups are refused (INVALID_REQUEST). Internal topics are created at once."),
    Api(groups.join_group,                  ((0, 3),  (0, 6),  (0, 7),  (0, 9),  (0, 9),  (0, 9)),
        "Missing: `skip_assignment` (KIP-814), `group.max.size`."),
    Api(groups.heartbeat,                   ((0, 2),  (0, 4),  (0, 4),  (0, 4),  (0, 4),  (0, 4))),
    Api(groups.leave_group,                 ((0, 2),  (0, 4),  (0, 4),  (0, 5),  (0, 5),  (0, 5))),
    Api(groups.sync_group,                  ((0, 2),  (0, 4),  (0, 5),  (0, 5),  (0, 5),  (0, 5))),
    Api(groups.describe_groups,             ((0, 2),  (0, 5),  (0, 5),  (0, 5),  (0, 5),  (0, 6)),
        "Missing: authorized operations. The host of each member is the loopback address."),
    Api(groups.list_groups,                 ((0, 2),  (0, 3),  (0, 4),  (0, 4),  (0, 5),  (0, 5))),
    Api(sasl.sasl_handshake,                ((0, 1),  (0, 1),  (0, 1),  (0, 1),  (0, 1),  (0, 1)),
        "Missing: version 0, after which tokens come without a header."),
    Api(metadata.api_versions,              ((0, 2),  (0, 3),  (0, 3),  (0, 3),  (0, 4),  (0, 4)),
        "Missing: INVALID_REQUEST for odd client names."),
    Api(topics.create_topics,               ((0, 3),  (0, 5),  (0, 7),  (0, 7),  (0, 7),  (2, 7)),
        "Replica assignments are refused (INVALID_REQUEST). Missing: quotas, the time that a controller takes, "
        "policies (`TestBroker.refuse_topic_configs` refuses settings)."),
    Api(topics.delete_topics,               ((0, 3),  (0, 4),  (0, 6),  (0, 6),  (0, 6),  (1, 6)),
        "The topic is gone at once. Missing: `delete.topic.enable`."),
    Api(transactions.init_producer_id,      ((0, 1),  (0, 2),  (0, 4),  (0, 4),  (0, 5),  (0, 5)),
        "Missing: version 6 (two-phase commit, KIP-939), which no release enables."),
    Api(transactions.add_partitions_to_txn, ((0, 1),  (0, 1),  (0, 3),  (0, 3),  (0, 5),  (0, 5))),
    Api(transactions.add_offsets_to_txn,    ((0, 1),  (0, 1),  (0, 3),  (0, 3),  (0, 4),  (0, 4))),
    Api(transactions.end_txn,               ((0, 1),  (0, 1),  (0, 3),  (0, 3),  (0, 4),  (0, 5)),
        "The markers are written before the response, unless `hold_markers` holds them."),
    Api(offsets.txn_offset_commit,          ((0, 2),  (0, 2),  (0, 3),  (0, 3),  (0, 4),  (0, 5))),
    Api(topics.describe_configs,            ((0, 2),  (0, 2),  (0, 4),  (0, 4),  (0, 4),  (1, 4)),
        "Topics and brokers only. Missing: loggers, groups, synonyms, documentation, types. "
        "`TestBroker.hide_configs` leaves settings out, as managed brokers do."),
    Api(sasl.sasl_authenticate,             ((0, 0),  (0, 1),  (0, 2),  (0, 2),  (0, 2),  (0, 2)),
        "Missing: `connection.failed.authentication.delay.ms`, delegation tokens, authorization ids other than the "
        "user, channel binding."),
    Api(topics.create_partitions,           ((0, 1),  (0, 2),  (0, 3),  (0, 3),  (0, 3),  (0, 3)),
        "Assignments are ignored."),
    Api(metadata.describe_cluster,          (None,    None,    (0, 0),  (0, 0),  (0, 1),  (0, 2))),
    Api(transactions.describe_transactions, (None,    None,    None,    (0, 0),  (0, 0),  (0, 0))),
    Api(transactions.list_transactions,     (None,    None,    None,    (0, 0),  (0, 1),  (0, 2)),
        "COORDINATOR_LOAD_IN_PROGRESS has to be scripted."),
    Api(metadata.describe_topic_partitions, (None,    None,    None,    None,    (0, 0),  (0, 0))),
)  # fmt: skip

APIS: Final[Mapping[str, Api]] = MappingProxyType({api.name: api for api in _TABLE})


def _offered(release: int) -> Mapping[str, OfferedVersions]:
    """The ranges in one column of the table."""
    columns = {name: api.versions[release] for name, api in APIS.items()}
    return MappingProxyType({name: OfferedVersions(*offered) for name, offered in columns.items() if offered})


RELEASES: Final[Mapping[str, Release]] = MappingProxyType(
    {
        "2.1": Release(_offered(0)),
        "2.4": Release(_offered(1)),
        "2.8": Release(_offered(2)),
        "3.5": Release(_offered(3), {"metadata.version": 11}),
        "3.9": Release(_offered(4), {"metadata.version": 21}, verifies_partitions=True, watermark_needs_min_isr=True),
        "4.1": Release(
            _offered(5),
            {"metadata.version": 27, "transaction.version": 2},
            verifies_partitions=True,
            watermark_needs_min_isr=True,
            commit_acks=1,
            offset_value_version=4,
        ),
    }
)


def release(like: str, narrowed: Narrowed | None = None) -> Release:
    """The release ``like``, with the ranges of ``narrowed`` in place of its own."""
    faults = []
    if like not in RELEASES:
        faults.append(f"like={like!r} is not a release that TestBroker imitates; use one of {', '.join(RELEASES)}")
    offered = RELEASES[like].versions if like in RELEASES else APIS
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
            ranges[api] = OfferedVersions(max(given[0], ranges[api].lowest), min(given[1], ranges[api].highest))
    return replace(base, versions=MappingProxyType(ranges))
