"""The vendors that a check may recognise, and what their documentation asks of a client: the one table of them.

A vendor is a guess, so it only leads to advice: nothing is changed and no step fails because of it.
``python -m spark_kafka_sink.tools.connection_check.vendors docs/security.md`` writes the table into the documentation.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from spark_kafka_sink.common import markdown
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.foreign_text import shown
from spark_kafka_sink.exactly_once.ledger_topic import LEDGER_SETTINGS
from spark_kafka_sink.network.api_versions import camel_case

_LONGEST_CLUE: Final = 100


@dataclass(frozen=True, slots=True)
class Limit:
    """What an option of the producer has to be for this vendor: ``below`` a number, or one ``among`` some values.

    ``advised``: a value that fits. ``reason``: why, as the end of a sentence.
    """

    option: str
    advised: str
    reason: str
    below: int | None = None
    among: tuple[str, ...] = ()

    def value(self, config: ProducerConfig) -> int | str:
        """The value of the option in this configuration."""
        value: int | str = getattr(config, self.option.replace(".", "_"))
        return value

    def allows(self, value: int | str) -> bool:
        """Whether the value fits. A negative number means that the option has no limit."""
        if isinstance(value, str):
            return value in self.among
        return self.below is None or 0 <= value < self.below

    def __str__(self) -> str:
        return f"below {self.below:,}" if self.below is not None else f"one of {', '.join(self.among)}"


@dataclass(frozen=True, slots=True)
class Vendor:
    """How a vendor is recognised, and what its documentation says. An empty field: not recognised so, no such advice.

    ``links``: the documentation. ``tried``: what was run, in Markdown. ``section``: of docs/security.md.
    ``hosts``: endings of host names; ``*`` stands for exactly one label. ``cluster_id``: how cluster ids begin.
    ``versions``: APIs, by kio's names, and highest versions that no release of Apache Kafka has together.
    ``topic_settings``: the settings that topics take, None if all do or it is not known. ``transactions``: sentences
    for those who write exactly once.
    """

    name: str
    links: tuple[str, ...]
    tried: str = "nothing"
    section: str = ""
    hosts: tuple[str, ...] = ()
    cluster_id: str = ""
    versions: tuple[tuple[str, int], ...] = ()
    limits: tuple[Limit, ...] = ()
    topic_settings: frozenset[str] | None = None
    transactions: tuple[str, ...] = ()

    def refused_settings(self) -> tuple[str, ...]:
        """The ledger's settings that its topics do not take."""
        if self.topic_settings is None:
            return ()
        return tuple(name for name in LEDGER_SETTINGS if name not in self.topic_settings)


class Guess(NamedTuple):
    """A vendor, and what suggests it: ``clue`` completes "a guess by …" and is safe to show."""

    vendor: Vendor
    clue: str


_ACTIONS: Final = "https://docs.aws.amazon.com/msk/latest/developerguide/kafka-actions.html"
_IAM: Final = (
    "With IAM, the principal needs kafka-cluster:DescribeTransactionalId and kafka-cluster:AlterTransactionalId on the "
    "transactional ids."
)
_PLAYED: Final = "not the service itself, only a broker with its API versions: kfake (`make test-foreign`)"

VENDORS: Final = (
    Vendor(
        "Azure Event Hubs",
        (
            "https://learn.microsoft.com/azure/event-hubs/apache-kafka-configurations",
            "https://github.com/Azure/azure-event-hubs-for-kafka/issues/209",
        ),
        _PLAYED,
        "azure-event-hubs",
        hosts=("servicebus.windows.net", "servicebus.chinacloudapi.cn", "servicebus.usgovcloudapi.net"),
        # github.com/oliveigah/klife/issues/13. Kafka 1.1 has Metadata 5 with Produce 5, Kafka 2.1 Produce 7 with
        # Metadata 7.
        versions=(("produce", 7), ("metadata", 5)),
        limits=(
            Limit(
                "max.request.size", "1000000", "the service closes connections that send larger requests",
                below=1_046_528,
            ),
            Limit(
                "connections.max.idle.ms", "180000", "Azure closes connections that are idle for longer", below=240_000
            ),
            Limit("metadata.max.age.ms", "180000", "this is the range that the service permits", below=240_000),
            Limit("compression.type", "gzip", "the service supports no other compression", among=("none", "gzip")),
        ),
        transactions=("The Standard tier has no transactions: use deliveryGuarantee=at-least-once there.",),
    ),
    Vendor(
        "Confluent Cloud",
        ("https://docs.confluent.io/cloud/current/topics/manage.html",),
        section="confluent-cloud",
        hosts=("confluent.cloud",),
        # The page says of each setting whether it is editable.
        topic_settings=frozenset(
            {
                "cleanup.policy", "delete.retention.ms", "max.compaction.lag.ms", "max.message.bytes",
                "message.timestamp.after.max.ms", "message.timestamp.before.max.ms",
                "message.timestamp.difference.max.ms", "message.timestamp.type", "min.compaction.lag.ms",
                "min.insync.replicas", "retention.bytes", "retention.ms", "segment.bytes", "segment.ms",
            }
        ),
    ),
    Vendor(
        "MSK Serverless",
        ("https://docs.aws.amazon.com/msk/latest/developerguide/serverless-config.html", _ACTIONS),
        section="amazon-msk",
        hosts=("kafka-serverless.*.amazonaws.com",),
        topic_settings=frozenset(
            {
                "cleanup.policy", "compression.type", "max.message.bytes", "message.timestamp.after.max.ms",
                "message.timestamp.before.max.ms", "message.timestamp.difference.max.ms", "message.timestamp.type",
                "retention.bytes", "retention.ms",
            }
        ),
        transactions=(_IAM,),
    ),
    Vendor(
        "Amazon MSK (provisioned)",
        (_ACTIONS,),
        section="amazon-msk",
        hosts=("kafka.*.amazonaws.com", "kafka.*.amazonaws.com.cn"),
        transactions=(_IAM,),
    ),
    Vendor(
        "Redpanda",
        (
            "https://docs.redpanda.com/current/develop/produce-data/configure-producers/",
            "https://github.com/redpanda-data/console/issues/441",
        ),
        _PLAYED,
        hosts=("cloud.redpanda.com",),
        # github.com/redpanda-data/redpanda/pull/4457
        cluster_id="redpanda.",
        # github.com/platformatic/kafka/issues/51. Kafka 2.1 has Metadata 7 with Fetch 10, Kafka 2.3 Fetch 11 with
        # Metadata 8.
        versions=(("produce", 7), ("fetch", 11), ("metadata", 7)),
        transactions=(
            "It has no min.insync.replicas. Its brokers acknowledge a record once a majority of its "
            "replicas has it, so a commitLogTopic that was created without it is no weaker.",
        ),
    ),
    Vendor(
        "Google Managed Service for Apache Kafka",
        ("https://cloud.google.com/managed-service-for-apache-kafka/docs/limitations",),
        section="google-managed-service-for-apache-kafka",
        hosts=("managedkafka.*.cloud.goog",),
        limits=(
            Limit(
                "compression.type", "lz4", "the service's topics do not support zstd",
                among=("none", "gzip", "snappy", "lz4"),
            ),
        ),
    ),
    Vendor(
        "Aiven",
        ("https://aiven.io/docs/products/kafka/howto/connect-with-java-quick-connect",),
        section="aiven",
        hosts=("aivencloud.com",),
    ),
    Vendor(
        "Strimzi",
        ("https://strimzi.io/documentation",),
        "not the operator; its brokers are Apache Kafka, which [is run](versions.md)",
        "strimzi",
    ),
)  # fmt: skip
"""No host name has the endings of two vendors."""


def guess(hosts: Sequence[str], cluster_id: str | None, highest: Mapping[str, int]) -> Guess | None:
    """The vendor that host names, cluster id or API versions suggest, in this order; None if none does.

    ``hosts``: of bootstrap.servers; all must be of the same vendor. ``highest``: kio's name of an API to the highest
    version that the broker speaks.
    """
    for vendor in VENDORS:
        if hosts and all(any(_ends_with(host, ending) for ending in vendor.hosts) for host in hosts):
            return Guess(vendor, f"the host name {shown(hosts[0], _LONGEST_CLUE)}")
    for vendor in VENDORS:
        if vendor.cluster_id and cluster_id is not None and cluster_id.startswith(vendor.cluster_id):
            return Guess(vendor, f"the cluster id {shown(cluster_id, _LONGEST_CLUE)}")
    for vendor in VENDORS:
        if vendor.versions and all(highest.get(api) == version for api, version in vendor.versions):
            versions = " and ".join(f"{camel_case(api)} {version}" for api, version in vendor.versions)
            return Guess(vendor, f"its API versions, {versions}, which no release of Apache Kafka has together")
    return None


def advice(vendor: Vendor, config: ProducerConfig, transactional: bool) -> Iterator[str]:
    """What the vendor's documentation advises against in this configuration; ``transactional``: also what exactly-once
    writes should know. Whole sentences.
    """
    for limit in vendor.limits:
        if not limit.allows(value := limit.value(config)):
            yield f"{limit.option} is {value} and should be {limit}, for example {limit.advised}: {limit.reason}."
    if transactional:
        if refused := vendor.refused_settings():
            yield f"Its topics do not take {', '.join(refused)}: the commitLogTopic is created without."
        yield from vendor.transactions


def _ends_with(host: str, ending: str) -> bool:
    """Whether the host is below the domain ``ending``, label by label."""
    labels, wanted = host.lower().removesuffix(".").split("."), ending.split(".")
    last = labels[-len(wanted) :]
    return (
        len(labels) > len(wanted)
        and all(labels)
        and all(ours in ("*", theirs) for ours, theirs in zip(wanted, last, strict=True))
    )


def table() -> str:
    """The table of the documentation."""
    rows = [(vendor.name, vendor.tried, _documented(vendor), _links(vendor)) for vendor in VENDORS]
    return markdown.table(("vendor", "tried", "from its documentation only", "link"), rows)


def _links(vendor: Vendor) -> str:
    return ", ".join(f"[{link.split('/')[2]}]({link})" for link in vendor.links)


def _documented(vendor: Vendor) -> str:
    parts = [f"[how to connect](#{vendor.section})"] if vendor.section else []
    parts.extend(f"`{limit.option}` {limit}" for limit in vendor.limits)
    if refused := vendor.refused_settings():
        parts.append(f"the ledger without {', '.join(f'`{name}`' for name in refused)}")
    return ". ".join(filter(None, ["; ".join(parts), *(text.removesuffix(".") for text in vendor.transactions)]))


def filled(page: str) -> str:
    """``page`` with its table written anew."""
    return markdown.filled(page, {"vendors": table})


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(filled(path.read_text()))
