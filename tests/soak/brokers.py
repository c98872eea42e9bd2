"""Three real brokers, whose own traffic goes over a listener of their own, and what is done to them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import ApiVersionsResponse

from spark_kafka_sink.testing.blocking_admin import exchange
from spark_kafka_sink.testing.local_kafka import DEFAULT_VERSION, LocalKafkaError
from tests.soak.network import BROKERS, PartableKafka
from tests.support.addresses import Address, addresses_of
from tests.support.waiting import until

_METADATA_VERSION = "metadata.version"
# That of transactions is changed by a trouble of its own; the other one can only be set when controllers are formatted.
_NOT_UPGRADED = frozenset({_METADATA_VERSION, "transaction.version", "kraft.version"})
REQUEST_S = 10.0
DEADLINE_S = 90.0
_RECOVERS_S = 300.0
PROPERTIES = {
    "inter.broker.listener.name": BROKERS,
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "4000",
}


class SoakKafka:
    """``LocalKafka`` for several threads, at most one of which does something to the brokers at a time.

    ``versions``: the releases that ``upgrade`` goes through, the brokers begin with the first.
    """

    def __init__(self, versions: Sequence[str] = (DEFAULT_VERSION,)) -> None:
        first = versions[0]
        self.local = PartableKafka(3, first, PROPERTIES, listeners={BROKERS: "PLAINTEXT"})
        self.transaction_version = 0
        self._versions = versions
        self._runs = dict.fromkeys((1, 2, 3), first)
        self._finalized = first
        self._lock = threading.RLock()

    def __enter__(self) -> SoakKafka:
        self.local.__enter__()
        try:
            if self.knows_transaction_versions:
                self.set_transaction_version(1)
        except BaseException:
            self.local.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.local.close()

    @property
    def servers(self) -> str:
        return self.local.bootstrap_servers

    def pause(self, node: int) -> None:
        with self._lock:
            self.local.pause(node)

    def resume(self, node: int) -> None:
        with self._lock:
            self.local.resume(node)

    def kill(self, node: int) -> None:
        with self._lock:
            self.local.kill(node)

    def start(self, node: int, version: str | None = None) -> None:
        """Returns when it responds: after a SIGKILL it first reads its logs, for minutes on a busy machine."""
        with self._lock:
            try:
                self.local.start(node, version)
            except LocalKafkaError:
                if not self.local.alive(node):
                    raise
                address = addresses_of(self.servers)[self.local.node_ids.index(node)]
                _until(lambda: _features(address), bool, _RECOVERS_S)

    def restart(self, node: int, version: str | None = None) -> None:
        """A controlled shutdown, before which its leaders and coordinators move away, and a start."""
        with self._lock:
            self.local.stop(node)
            self.start(node, version)

    def upgrade(self) -> str:
        """The next step from one release to the next: a broker, or the features once all brokers run it. Returns what
        was done, "" if nothing is left."""
        with self._lock:
            following = dict(zip(self._versions, self._versions[1:], strict=False))
            oldest = min(self._runs.values(), key=self._versions.index)
            node = next(node for node, version in self._runs.items() if version == oldest)
            if set(self._runs.values()) == {oldest} and self._finalized != oldest:
                self._finalize()
                self._finalized = oldest
                return f"the features of {oldest}"
            if oldest not in following:
                return ""
            self.restart(node, following[oldest])
            self._runs[node] = following[oldest]
            return f"broker {node} from {oldest} to {following[oldest]}"

    def _finalize(self) -> None:
        levels = self._features()
        for name in (_METADATA_VERSION, *levels.keys() - _NOT_UPGRADED):  # which others may need
            _until(lambda name=name: self.local.set_feature(name, levels[name]), lambda _: True)

    @property
    def knows_transaction_versions(self) -> bool:
        """Whether every broker does; those before 4.0 do not."""
        return all(int(version.split(".")[0]) >= 4 for version in self._runs.values())

    def _features(self) -> dict[str, int]:
        """Those that every broker supports, with their highest levels."""

        def ask() -> dict[str, int]:
            each = [_features(address) for address in addresses_of(self.servers)]
            common = set.intersection(*(set(levels) for levels in each))
            return {name: min(levels[name] for levels in each) for name in common}

        return _until(ask, bool)

    def heal(self) -> None:
        """Every node runs again and reaches the others."""
        with self._lock:
            self.local.heal_network()
            for node in self.local.node_ids:
                if self.local.alive(node):
                    self.local.resume(node)
            for node in self.local.node_ids:
                if not self.local.alive(node):
                    self.start(node)

    def leader(self, topic: str, partition: int) -> int:
        with self._lock:
            return _until(lambda: self.local.leader(topic, partition), lambda node: node > 0)

    def coordinator(self, transactional_id: str) -> int:
        with self._lock:
            return _until(lambda: self.local.transaction_coordinator(transactional_id), lambda node: node > 0)

    def set_transaction_version(self, level: int) -> None:
        def set_feature() -> None:
            with self._lock:
                self.local.set_feature("transaction.version", level)

        _until(set_feature, lambda _: True)
        self.transaction_version = level

    def set_min_in_sync(self, topic: str, replicas: int) -> None:
        entry = ConfigEntry("min.insync.replicas", str(replicas), incremental_operation=AlterConfigOpType.SET)
        of_topic = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])

        def ask() -> None:
            admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
            (answer,) = admin.incremental_alter_configs([of_topic], request_timeout=REQUEST_S).values()
            answer.result(REQUEST_S)

        _until(ask, lambda _: True)


def _features(address: Address) -> dict[str, int]:
    """The highest level of each feature that this broker supports."""
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    response = exchange(address, request, ApiVersionsResponse)
    assert not response.error_code.value, response.error_code.name
    return {each.name: int(each.max_version) for each in response.supported_features}


def _until(ask: Callable[[], Any], good: Callable[[Any], bool], deadline_s: float = DEADLINE_S) -> Any:
    """What ``ask`` gives once it gives something ``good``; its errors, and other answers, count only at the end."""

    def asked() -> Any:
        try:
            return ask()
        except Exception as error:
            return error

    return until(asked, lambda answer: not isinstance(answer, Exception) and good(answer), "no good answer", deadline_s)
