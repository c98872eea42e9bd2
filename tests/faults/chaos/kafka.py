"""Three real brokers, whose own traffic goes over a listener that no ACL touches, and what is done to their rights."""

from __future__ import annotations

import threading
from collections.abc import Callable
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
    ResourcePatternType,
    ResourceType,
)

from spark_kafka_sink.testing import LocalKafka
from tests.waiting import until

REQUEST_S = 10.0
DEADLINE_S = 90.0
_LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="broker" user_broker="broker";'
)

# Brokers and controllers speak SASL among themselves, as User:broker; clients are User:ANONYMOUS, whose rights change.
PROPERTIES = {
    "inter.broker.listener.name": "BROKERS",
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.brokers.plain.sasl.jaas.config": _LOGIN,
    "listener.name.controller.plain.sasl.jaas.config": _LOGIN,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:broker",
    "allow.everyone.if.no.acl.found": "true",
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

    def denial(self, of: Callable[..., Any]) -> Any:
        pattern = ResourcePatternType.PREFIXED if self.name.endswith("*") else ResourcePatternType.LITERAL
        who = ("User:ANONYMOUS", "*", self.operation, AclPermissionType.DENY)
        return of(self.resource, self.name.rstrip("*"), pattern, *who)


class ChaosKafka:
    """``LocalKafka`` for several threads, at most one of which does something to the brokers at a time."""

    def __init__(self) -> None:
        self.local = LocalKafka(nodes=3, properties=PROPERTIES, listeners={"BROKERS": "SASL_PLAINTEXT"})
        self.transaction_version = 2
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

    def start(self, node: int) -> None:
        with self._lock:
            self.local.start(node)

    def heal(self) -> None:
        """Every node runs again."""
        with self._lock:
            for node in self.local.node_ids:
                if self.local.alive(node):
                    self.local.resume(node)
            for node in self.local.node_ids:
                if not self.local.alive(node):
                    self.local.start(node)

    def leader(self, topic: str, partition: int) -> int:
        with self._lock:
            return _until(lambda: self.local.leader(topic, partition), lambda node: node > 0)

    def coordinator(self, transactional_id: str) -> int:
        with self._lock:
            return _until(lambda: self.local.transaction_coordinator(transactional_id), lambda node: node > 0)

    def ledger_partition(self, ledger: str) -> int:
        """The partition with the most records: this cluster has one query."""

        def ends(admin: AdminClient) -> dict[Any, Any]:
            from confluent_kafka import TopicPartition
            from confluent_kafka.admin import OffsetSpec

            count = len(admin.list_topics(ledger, timeout=REQUEST_S).topics[ledger].partitions)
            asked = {TopicPartition(ledger, index): OffsetSpec.latest() for index in range(count)}
            return admin.list_offsets(asked, request_timeout=REQUEST_S)

        found = self._ask(ends)
        return max(found, key=lambda place: found[place].offset).partition

    def set_transaction_version(self, level: int) -> None:
        def set_feature() -> None:
            with self._lock:
                self.local.set_feature("transaction.version", level)

        _until(set_feature, lambda _: True)
        self.transaction_version = level

    def set_min_in_sync(self, topic: str, replicas: int) -> None:
        entry = ConfigEntry("min.insync.replicas", str(replicas), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self._ask(lambda admin: admin.incremental_alter_configs([resource], request_timeout=REQUEST_S))

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


def _until(ask: Callable[[], Any], good: Callable[[Any], bool]) -> Any:
    """What ``ask`` gives once it gives something ``good``; its errors, and other answers, count only at the end."""

    def asked() -> Any:
        try:
            return ask()
        except Exception as error:
            return error

    return until(asked, lambda answer: not isinstance(answer, Exception) and good(answer), "no good answer", DEADLINE_S)
