"""The verdict of a run, as text to paste into an issue. It has no secret, no host name and no address."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

import spark_kafka_sink
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.option import Password
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.network.login.credentials import jaas_options
from spark_kafka_sink.tools.connection_check.findings import Finding, Outcome

if TYPE_CHECKING:
    from spark_kafka_sink.network.connection import ApiVersions

_LABEL: Final = 11
_OUTCOME: Final = 9
_ADDRESS: Final = re.compile(
    r"(?<![\w.])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7})(?![\w.]*\w)"
)
_SHOWN_APIS: Final = (
    "produce", "fetch", "metadata", "create_topics", "init_producer_id", "add_partitions_to_txn", "end_txn",
    "list_transactions", "describe_transactions",
)  # fmt: skip
_NOT_SECRET: Final = ("username", "principal")
_SHORTEST_SECRET: Final = 3


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """What the brokers tell of themselves. ``apis``: name → highest version. ``vendor``: a guess, or empty."""

    count: int
    cluster_id: str
    apis: Mapping[str, int]
    features: Mapping[str, int]
    vendor: str = ""

    @classmethod
    def of(cls, count: int, cluster_id: str | None, versions: ApiVersions | None, vendor: str) -> BrokerFacts:
        from spark_kafka_sink.network.api_versions import camel_case
        from spark_kafka_sink.network.messages import API_KEYS

        ranges = {} if versions is None else versions.ranges
        apis = {camel_case(api): ranges[API_KEYS[api]][1] for api in _SHOWN_APIS if API_KEYS[api] in ranges}
        return cls(count, cluster_id or "without an id", apis, {} if versions is None else versions.features, vendor)


class Scrubber:
    """Replaces secrets, known hosts and whatever looks like an IP address."""

    def __init__(self, config: ProducerConfig, hosts: Iterable[str]) -> None:
        secrets = sorted((each for each in _secrets(config) if len(each) >= _SHORTEST_SECRET), key=len, reverse=True)
        self._secrets = secrets
        names = sorted({host for host in hosts if host}, key=len, reverse=True)
        self._hosts = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, names))})(?![\w-])", re.IGNORECASE)
        self._has_hosts = bool(names)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "<secret>")
        if self._has_hosts:
            text = self._hosts.sub("<host>", text)
        return _ADDRESS.sub(_without_address, text)


@dataclass(frozen=True, repr=False)
class Certificate:
    """The verdict. ``text``: to paste into an issue; ``str()`` of it is the same. ``worked``: whether every step did.

    ``facts`` maps a label of the text to what was found.
    """

    findings: Sequence[Finding]
    facts: Mapping[str, str]
    epoch_ms: int
    scrubber: Scrubber = field(compare=False)

    @property
    def worked(self) -> bool:
        return all(each.outcome is Outcome.OK for each in self.findings)

    @property
    def text(self) -> str:
        at = datetime.fromtimestamp(self.epoch_ms / 1000, UTC)
        facts = [f"{label:{_LABEL}}{self.scrubber(text)}" for label, text in self.facts.items() if text]
        steps = [
            f"{each.outcome.value:{_OUTCOME}}{each.subject}, {each.step}: {self.scrubber(' '.join(each.text.split()))}"
            for each in self.findings
        ]
        head = f"spark-kafka-sink {spark_kafka_sink.__version__}: {self._verdict()} ({at:%Y-%m-%d %H:%M} UTC)"
        return "\n".join(["```text", head, "", *facts, "", *steps, "```"])

    def _verdict(self) -> str:
        failed = [each for each in self.findings if each.outcome is Outcome.FAILED]
        untested = sum(each.outcome is Outcome.UNTESTED for each in self.findings)
        more = f", {untested} not tried" if untested else ""
        if failed or untested:
            return f"NOT certified, {len(failed)} of {len(self.findings)} steps failed{more}"
        return f"certified, all {len(self.findings)} steps worked"

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Certificate: {self._verdict()}>"


def _secrets(config: ProducerConfig) -> Iterable[str]:
    for each in fields(config):
        if isinstance(value := getattr(config, each.name), Password):
            yield value.value
    if config.sasl_jaas_config is not None:
        with suppress(KafkaError):
            yield from (value for name, value in jaas_options(config).items() if name.lower() not in _NOT_SECRET)


def _without_address(found: re.Match[str]) -> str:
    try:
        ip_address(found[0])
    except ValueError:  # a time of day
        return found[0]
    return "<address>"
