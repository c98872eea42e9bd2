"""Three real brokers, whose own traffic goes over a listener that no ACL touches, and what is done to their rights and
their network."""

from __future__ import annotations

import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)

from spark_kafka_sink.testing.local_kafka import DEFAULT_VERSION, LocalKafkaError
from tests.addresses import Address, addresses_of
from tests.faults.chaos import requests
from tests.faults.chaos.network import BROKERS, PartableKafka
from tests.waiting import until

_METADATA_VERSION = "metadata.version"
# That of transactions is changed by a trouble of its own; the other one can only be set when controllers are formatted.
_NOT_UPGRADED = frozenset({_METADATA_VERSION, "transaction.version", "kraft.version"})
REQUEST_S = 10.0
DEADLINE_S = 90.0
_RECOVERS_S = 300.0
_LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="broker" user_broker="broker";'
)

# Brokers and controllers speak SASL among themselves, as User:broker; clients are User:ANONYMOUS, whose rights change.
PROPERTIES = {
    "inter.broker.listener.name": BROKERS,
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.brokers.plain.sasl.jaas.config": _LOGIN,
    "listener.name.controller.plain.sasl.jaas.config": _LOGIN,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:broker",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",  # or a query creates a topic that was deleted before the test does
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "4000",
}
_EVERYTHING = (
    (ResourceType.TOPIC, "*"),
    (ResourceType.GROUP, "*"),
    (ResourceType.TRANSACTIONAL_ID, "*"),
    (ResourceType.BROKER, "kafka-cluster"),
)


@dataclass(frozen=True)
class Right:
    """Something that clients may do until it is revoked. ``name`` ends with * for a prefix."""

    resource: ResourceType
    name: str
    operation: AclOperation

    def __str__(self) -> str:
        return f"{self.operation.name} on {self.resource.name} {self.name}"

    def covers(self, name: str) -> bool:
        return name.startswith(self.name[:-1]) if self.name.endswith("*") else name == self.name

    def denial(self, of: Callable[..., Any]) -> Any:
        pattern = ResourcePatternType.PREFIXED if self.name.endswith("*") else ResourcePatternType.LITERAL
        who = ("User:ANONYMOUS", "*", self.operation, AclPermissionType.DENY)
        return of(self.resource, self.name.rstrip("*"), pattern, *who)


class ChaosKafka:
    """``LocalKafka`` for several threads, at most one of which does something to the brokers at a time.

    ``versions``: the releases that ``upgrade`` goes through, the brokers begin with the first.
    """

    def __init__(self, versions: Sequence[str] = (DEFAULT_VERSION,)) -> None:
        first = versions[0]
        self.local = PartableKafka(3, first, PROPERTIES, listeners={BROKERS: "SASL_PLAINTEXT"})
        self.transaction_version = 0
        self._versions = versions
        self._runs = dict.fromkeys((1, 2, 3), first)
        self._finalized = first
        self._lock = threading.RLock()

    def __enter__(self) -> ChaosKafka:
        self.local.__enter__()
        allowed = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", AclOperation.ALL,
                       AclPermissionType.ALLOW)
            for kind, name in _EVERYTHING
        ]  # fmt: skip
        try:
            self._ask(lambda admin: admin.create_acls(allowed, request_timeout=REQUEST_S))
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
                address = self._addresses()[self.local.node_ids.index(node)]
                _until(lambda: requests.features(address), bool, _RECOVERS_S)

    def restart(self, node: int, version: str | None = None) -> None:
        """A controlled shutdown, before which its leaders and coordinators move away, and a start."""
        with self._lock:
            self.local.stop(node)
            self.start(node, version)

    def fill_disk(self, node: int, seconds: float) -> bool:
        """No file of the broker can grow any more. Whether that has ended it in so many seconds.

        A limit of the process does what a disk without space does: each write fails with an error of the system.
        """
        with self._lock:
            pid = self.local._process(node).pid
            limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, limits[1]))
            deadline = time.monotonic() + seconds
            while self.local.alive(node):
                if time.monotonic() > deadline:
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
                    return False
                time.sleep(0.1)
            return True

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
            each = [requests.features(address) for address in self._addresses()]
            common = set.intersection(*(set(levels) for levels in each))
            return {name: min(levels[name] for levels in each) for name in common}

        return _until(ask, bool)

    def _addresses(self) -> list[Address]:
        return addresses_of(self.servers)

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

    def controller(self) -> int:
        """The node that leads the quorum of controllers, as most nodes say."""

        def ask() -> int:
            told: Counter[int] = Counter()
            for address in self._addresses():
                with suppress(Exception):  # it is parted from the others, or down
                    told[requests.quorum_leader(address)] += 1
            leader, count = told.most_common(1)[0]
            return leader if count > len(self._runs) // 2 else -1

        with self._lock:
            return int(_until(ask, lambda node: node > 0))

    def move_leader(self, topic: str, partition: int) -> None:
        """To the next of its replicas, by an election of the preferred leader; returns when it leads."""

        def move() -> bool:
            with self._lock:
                found = AdminClient({"bootstrap.servers": self.servers, "log_level": 0}).list_topics(topic, REQUEST_S)
                told = found.topics[topic].partitions[partition]
                replicas = sorted(told.replicas)
                first = (replicas.index(told.leader) + 1) % len(replicas)
                order = replicas[first:] + replicas[:first]
                address = self._addresses()[self.local.node_ids.index(found.controller_id)]
                requests.reorder_replicas(address, topic, partition, order)
                requests.elect_preferred_leader(address, topic, partition)
                return self.local.leader(topic, partition) == order[0]

        _until(move, bool)

    def partitions(self, topic: str) -> int:
        def count() -> int:
            admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
            return len(admin.list_topics(topic, REQUEST_S).topics[topic].partitions)

        return _until(count, bool)

    def grow(self, topic: str, partitions: int) -> None:
        """Returns when the topic has so many."""

        def grow() -> bool:
            if self.partitions(topic) < partitions:
                admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
                admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(REQUEST_S)
            return self.partitions(topic) >= partitions

        _until(grow, bool)

    def topic_id(self, topic: str) -> str:
        """Returns when all brokers know the topic under one id."""
        (found,) = _until(lambda: self._topic_ids(topic), lambda ids: len(ids) == 1 and "" not in ids)
        return str(found)

    def recreate(self, topic: str, partitions: int) -> str:
        """Deletes the topic and creates it again as soon as no broker knows it. Returns its new id.

        A request whose response is late may have been carried out: each step looks at what is there.
        """

        def delete() -> bool:
            if any(self._topic_ids(topic)):
                self.local.delete_topic(topic)
            return True

        def create() -> bool:
            if any(self._topic_ids(topic)):
                self.local.await_in_sync(topic)
            else:
                self.local.create_topic(topic, partitions)
            return True

        with self._lock:
            for step in (delete, create):
                _until(step, bool, _RECOVERS_S)
            return self.topic_id(topic)

    def _topic_ids(self, topic: str) -> set[str]:
        """Those under which the brokers know it, with "" if one of them does not."""
        return {requests.topic_id(address, topic) for address in self._addresses()}

    def transactional_ids(self, prefix: str) -> list[str]:
        """Those with this prefix that have been used, in the last week."""

        def ask() -> list[str]:
            found = {name for address in self._addresses() for name in requests.transactional_ids(address)}
            return sorted(name for name in found if name.startswith(prefix))

        ids: list[str] = _until(ask, lambda _: True)
        return ids

    def set_transaction_version(self, level: int) -> None:
        def set_feature() -> None:
            with self._lock:
                self.local.set_feature("transaction.version", level)

        _until(set_feature, lambda _: True)
        self.transaction_version = level

    def set_min_in_sync(self, topic: str, replicas: int) -> None:
        entry = ConfigEntry("min.insync.replicas", str(replicas), incremental_operation=AlterConfigOpType.SET)
        of_topic = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self._ask(lambda admin: admin.incremental_alter_configs([of_topic], request_timeout=REQUEST_S))

    def revoke(self, right: Right) -> None:
        denial = right.denial(AclBinding)
        self._ask(lambda admin: admin.create_acls([denial], request_timeout=REQUEST_S))

    def give_back(self, right: Right) -> None:
        denial = right.denial(AclBindingFilter)
        self._ask(lambda admin: admin.delete_acls([denial], request_timeout=REQUEST_S))

    def _ask(self, question: Callable[[AdminClient], dict[Any, Any]]) -> dict[Any, Any]:
        """Asked again until the cluster answers."""

        def ask() -> dict[Any, Any]:
            admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
            answers = question(admin)  # which come only as long as there is the client
            return {about: answer.result(REQUEST_S) for about, answer in answers.items()}

        return _until(ask, lambda _: True)


def _until(ask: Callable[[], Any], good: Callable[[Any], bool], deadline_s: float = DEADLINE_S) -> Any:
    """What ``ask`` gives once it gives something ``good``; its errors, and other answers, count only at the end."""

    def asked() -> Any:
        try:
            return ask()
        except Exception as error:
            return error

    return until(asked, lambda answer: not isinstance(answer, Exception) and good(answer), "no good answer", deadline_s)
