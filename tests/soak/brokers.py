"""Three real brokers, whose own traffic goes over a listener of their own, and what is done to them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, Self

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from spark_kafka_sink.testing import LocalKafka
from spark_kafka_sink.testing.blocking_admin import exchange
from spark_kafka_sink.testing.kafka_node import CONTROLLER
from spark_kafka_sink.testing.local_kafka import DEFAULT_VERSION, LocalKafkaError
from tests.faults.support.proxy import Direction
from tests.soak.network import PeerGate
from tests.support.addresses import Address, addresses_of, text_of
from tests.support.waiting import until

BROKERS = "BROKERS"
BETWEEN = (BROKERS, CONTROLLER)
"""The listeners over which brokers and controllers speak to each other; clients have another one."""

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


class SoakKafka(LocalKafka):
    """Three nodes. A gate stands before each one's listener ``BROKERS`` and before that of its controller, and tells by
    the process that connects which node it is.

    ``versions``: the releases that ``upgrade`` goes through, the brokers begin with the first. At most one thread at a
    time does something to the brokers: troubles that need them do not come together.
    """

    def __init__(self, versions: Sequence[str] = (DEFAULT_VERSION,)) -> None:
        super().__init__(3, versions[0], PROPERTIES, listeners={BROKERS: "PLAINTEXT"})
        self.transaction_version = 0
        self._versions = versions
        self._runs = dict.fromkeys((1, 2, 3), versions[0])
        self._finalized = versions[0]
        self._network = ExitStack()
        self._gates: dict[tuple[int, str], PeerGate] = {}

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            if self.knows_transaction_versions:
                self.set_transaction_version(1)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        super().close()
        if os.getpid() == self._owner:
            self._network.close()

    def _lay_out(self) -> None:
        super()._lay_out()
        for node in self._nodes.values():
            for listener in BETWEEN:
                gate = PeerGate(node.address(listener), self._nodes)
                self._gates[node.id, listener] = self._network.enter_context(gate)
        for node in self._nodes.values():
            lines = node.properties_file.read_text().splitlines()
            node.properties_file.write_text("".join(f"{self._behind_gates(line)}\n" for line in lines))

    def _behind_gates(self, line: str) -> str:
        """A line of ``server.properties`` with the addresses at which others find a node. A broker tells others where
        its controller is, too."""
        name, _, value = line.partition("=")
        if name == "advertised.listeners":
            of_node = next(node for node in self._nodes.values() if f":{node.ports[BROKERS]}" in value)
            value = f"{value},{CONTROLLER}://{text_of(of_node.address(CONTROLLER))}"
        elif name != "controller.quorum.voters":
            return line
        for (id_, listener), gate in self._gates.items():
            value = value.replace(text_of(self._nodes[id_].address(listener)), text_of(gate.address))
        return f"{name}={value}"

    def part(self, node: int, others: Iterable[int]) -> int:
        """No connection between the node and the others works any more, whoever opens it. Returns how many break."""
        return sum(
            self._gates[here, listener].part(there)
            for other in others
            for listener in BETWEEN
            for here, there in ((node, other), (other, node))
        )

    def hold(self, sender: int, receiver: int) -> int:
        """What one node sends to the other, requests or responses, waits until ``heal_network``. Returns on how many
        connections."""
        return sum(
            self._gates[receiver, listener].close(Direction.TO_BROKER, sender)
            + self._gates[sender, listener].close(Direction.TO_CLIENT, receiver)
            for listener in BETWEEN
        )

    def heal_network(self) -> None:
        for gate in self._gates.values():
            gate.heal()

    def start(self, node: int, version: str | None = None) -> None:
        """Returns when it responds: after a SIGKILL it first reads its logs, for minutes on a busy machine."""
        try:
            super().start(node, version)
        except LocalKafkaError:
            if not self.alive(node):
                raise
            address = addresses_of(self.bootstrap_servers)[self.node_ids.index(node)]
            _until(lambda: _features(address), bool, _RECOVERS_S)

    def restart(self, node: int, version: str | None = None) -> None:
        """A controlled shutdown, before which its leaders and coordinators move away, and a start."""
        self.stop(node)
        self.start(node, version)

    def upgrade(self) -> str:
        """The next step from one release to the next: a broker, or the features once all brokers run it. Returns what
        was done, "" if nothing is left."""
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
        """The highest level of each feature that every broker supports."""

        def ask() -> dict[str, int]:
            each = [_features(address) for address in addresses_of(self.bootstrap_servers)]
            common = set.intersection(*(set(levels) for levels in each))
            return {name: min(levels[name] for levels in each) for name in common}

        levels = _until(ask, bool)
        for name in (_METADATA_VERSION, *levels.keys() - _NOT_UPGRADED):  # which others may need
            _until(lambda name=name: self.set_feature(name, levels[name]), lambda _: True)

    @property
    def knows_transaction_versions(self) -> bool:
        """Whether every broker does; those before 4.0 do not."""
        return all(int(version.split(".")[0]) >= 4 for version in self._runs.values())

    def heal(self) -> None:
        """Every node runs again and reaches the others."""
        self.heal_network()
        for node in filter(self.alive, self.node_ids):
            self.resume(node)
        for node in self.node_ids:
            if not self.alive(node):
                self.start(node)

    def leader(self, topic: str, partition: int) -> int:
        return _until(lambda: super(SoakKafka, self).leader(topic, partition), lambda node: node > 0)

    def coordinator(self, transactional_id: str) -> int:
        return _until(lambda: self.transaction_coordinator(transactional_id), lambda node: node > 0)

    def set_transaction_version(self, level: int) -> None:
        _until(lambda: self.set_feature("transaction.version", level), lambda _: True)
        self.transaction_version = level

    def set_min_in_sync(self, topic: str, replicas: int) -> None:
        entry = ConfigEntry("min.insync.replicas", str(replicas), incremental_operation=AlterConfigOpType.SET)
        of_topic = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])

        def ask() -> None:
            admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
            (answer,) = admin.incremental_alter_configs([of_topic], request_timeout=REQUEST_S).values()
            answer.result(REQUEST_S)

        _until(ask, lambda _: True)


def _features(address: Address) -> dict[str, int]:
    """The highest level of each feature that this broker supports."""
    response = exchange(address, "api_versions", 4, client_software_name="tests", client_software_version="1")
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
