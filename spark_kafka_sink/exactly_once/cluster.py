"""Questions to brokers on the caller's own thread: each is asked again until it is answered or the time is up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from types import ModuleType
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import (
    KafkaError,
    KafkaTimeoutError,
    NetworkError,
    UnsupportedVersionError,
    WrongProtocolError,
)
from spark_kafka_sink.model import NO_LEADER, Node, TopicInfo, TopicPartition
from spark_kafka_sink.network.backoff import ExponentialBackoff
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.codec import Request, Response, kio_request
from spark_kafka_sink.network.error_table import Action, action, broker_error
from spark_kafka_sink.network.metadata import Metadata, metadata_request, parse_metadata
from spark_kafka_sink.network.rpc import InlineNetwork, MakeRequest
from spark_kafka_sink.network.selector import Selector

_SOON_MS: Final = 5.0
_FATAL: Final = (UnsupportedVersionError, WrongProtocolError)


class CodeAt(NamedTuple):
    """An error code in an answer, and what it is about."""

    where: str
    code: ErrorCode
    message: str | None = None


class BrokerGoneError(KafkaError):
    """The broker is not in the cluster's metadata any more; what it had is another's."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request made of kio's entities, as in ``kio_request``; ``codes`` gives every error code of a response.

    A response without any says nothing of what was asked (a throttled Fetch has no partitions) and is asked for again.
    """

    api: str
    versions: tuple[int, int]
    make: Callable[[ModuleType, int], Any]
    codes: Callable[[Any], Iterable[CodeAt]]

    def request(self, completed: Callable[[Response], None]) -> Request:
        return kio_request(self.api, *self.versions, self.make, completed)


class Cluster:
    """Belongs to one thread. Every method raises ``KafkaTimeoutError`` when ``deadline`` (monotonic ms) has passed, and
    ``BrokerError`` for a refusal that asking again does not mend."""

    def __init__(self, config: ProducerConfig, clock: Clock) -> None:
        random = Random()
        transport = Selector(config.send_buffer_bytes, config.receive_buffer_bytes)
        client = NetworkClient(config, transport, random)
        metadata = Metadata(config, random)
        self._network = InlineNetwork(client, metadata, transport, clock, config.request_timeout_ms)
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
        self._soon = ExponentialBackoff(_SOON_MS, config.retry_backoff_max_ms, random)
        self._clock = clock
        self._leaders: dict[TopicPartition, int] = {}
        self.servers = ",".join(f"{host}:{port}" for host, port in config.bootstrap_servers)

    def close(self) -> None:
        self._network.close()

    def node_ids(self, deadline: float) -> list[int]:
        """Every broker."""
        self._await_nodes(deadline)
        return sorted(self._network.snapshot.nodes)

    def known_nodes(self) -> tuple[Node, ...]:
        """The brokers of the last metadata response; none before the first."""
        return tuple(self._network.snapshot.nodes.values())

    def ask_any(self, question: Question, deadline: float) -> Any:
        """Any broker, another one when it fails; it passes on what is the controller's to do."""
        return self._ask(question, self._any_node, lambda: None, deadline)

    def ask_node(self, node_id: int, question: Question, deadline: float) -> Any:
        """This broker and no other; raises ``BrokerGoneError`` when it leaves the cluster."""

        def node(deadline: float) -> int:
            self._await_nodes(deadline)
            if node_id not in self._network.snapshot.nodes:
                raise BrokerGoneError(f"Broker {node_id} has left the cluster")
            return node_id

        return self._ask(question, node, lambda: None, deadline)

    def ask_leader(self, partition: TopicPartition, question: Question, deadline: float) -> Any:
        """The partition's leader, looked up again when it has moved."""

        def leader(deadline: float) -> int:
            if partition not in self._leaders:
                self._find_leader(partition, deadline)
            return self._leaders[partition]

        return self._ask(question, leader, lambda: self.forget_leader(partition), deadline)

    def topic(self, name: str, deadline: float) -> TopicInfo | None:
        """The topic as the cluster has it, None when there is none; never creates it."""
        code, info = self._topic(name, deadline)
        if code is ErrorCode.unknown_topic_or_partition:
            return None
        if code is not ErrorCode.none and action("metadata", code) is Action.FAIL:
            raise broker_error(code, f"Metadata of topic {name}")
        return info

    def topic_ids(self, names: Iterable[str], deadline: float) -> dict[str, UUID | None]:
        """By one request; None for a topic that does not exist. Topics that cannot be described now are left out."""
        response = self._exchange(lambda done: metadata_request([*names], False, done), self._any_node, deadline)
        ids: dict[str, UUID | None] = {}
        for name, info in parse_metadata(response).topics.items():
            code = ErrorCode(info.error)
            if code in (ErrorCode.none, ErrorCode.unknown_topic_or_partition):
                ids[name] = info.topic_id if code is ErrorCode.none else None
        return ids

    def forget_leader(self, partition: TopicPartition) -> None:
        """The next ``ask_leader`` looks the leader up anew: a deposed one may answer as if it still were."""
        self._leaders.pop(partition, None)

    def now(self) -> float:
        """Monotonic ms, as deadlines are."""
        return self._clock.now()

    def replicas(self, name: str, deadline: float) -> list[list[int]]:
        """The nodes that have each partition of a topic, the preferred leader first; of one that there is."""
        answer = self._exchange(lambda done: metadata_request([name], False, done), self._any_node, deadline)
        partitions = [each for topic in answer.topics if topic.name == name for each in topic.partitions]
        return [list(map(int, each.replica_nodes)) for each in sorted(partitions, key=lambda p: p.partition_index)]

    def pause(self, ms: float) -> None:
        self._network.pause(ms)

    def check_time(self, deadline: float, what: str) -> None:
        if self._clock.now() >= deadline:
            raise KafkaTimeoutError(f"{what} in time")

    def _find_leader(self, partition: TopicPartition, deadline: float) -> None:
        attempts = 0
        while True:
            info = self.topic(partition.topic, deadline)
            if info is not None and partition.partition < len(info.leaders):
                leader = info.leaders[partition.partition]
                if leader != NO_LEADER and leader in self._network.snapshot.nodes:
                    self._leaders[partition] = leader
                    return
            if self._clock.now() >= deadline:
                raise KafkaTimeoutError(f"{partition} has no leader that can be reached")
            self._network.pause(self._backoff.delay(attempts))
            self._network.refresh(deadline)
            attempts += 1

    def _topic(self, name: str, deadline: float) -> tuple[ErrorCode, TopicInfo]:
        answer = self._exchange(lambda done: metadata_request([name], False, done), self._any_node, deadline)
        info = parse_metadata(answer).topics.get(name)
        if info is None:
            raise NetworkError(f"The brokers' metadata says nothing of topic {name}, which was asked for")
        return ErrorCode(info.error), info

    def _any_node(self, deadline: float) -> int:
        while True:
            self._await_nodes(deadline)
            node_id = self._network.least_loaded()
            if node_id is not None:
                return node_id
            self.check_time(deadline, "No broker could be reached")
            self._network.pause(_SOON_MS)

    def _await_nodes(self, deadline: float) -> None:
        while not self._network.snapshot.nodes:
            if self._clock.now() >= deadline:
                raise KafkaTimeoutError("No broker of kafka.bootstrap.servers has answered")
            self._network.refresh(deadline)

    def _ask(
        self, question: Question, node: Callable[[float], int], moved: Callable[[], object], deadline: float
    ) -> Any:
        attempts = 0
        while True:
            body = self._exchange(question.request, node, deadline, moved)
            codes = list(question.codes(body))
            refused = [each for each in codes if each.code is not ErrorCode.none]
            actions = [action(question.api, each.code) for each in refused]
            if codes and all(each is Action.SUCCEED for each in actions):
                return body
            code, error = ErrorCode.none, _says_nothing(question)
            if refused:
                where, code, message = refused[0]
                error = broker_error(code, where, message)
            if any(each is Action.SUCCEED or each >= Action.SPLIT for each in actions):
                raise error
            if self._clock.now() >= deadline:
                raise KafkaTimeoutError(f"Out of time: {error}") from error
            backoff = self._soon if code is ErrorCode.concurrent_transactions else self._backoff
            self._network.pause(backoff.delay(attempts))
            if Action.REFRESH_RETRY in actions:
                moved()
            attempts += 1

    def _exchange(
        self,
        make: MakeRequest,
        node: Callable[[float], int],
        deadline: float,
        moved: Callable[[], object] = lambda: None,
    ) -> Any:
        """One answer, whatever it says; a connection that fails is tried again, elsewhere if need be."""
        attempts = 0
        while True:
            node_id = node(deadline)
            outcome = self._network.exchange({node_id: make}, deadline)[node_id]
            if isinstance(outcome, Response) and outcome.error is None:
                return outcome.body
            error: KafkaError | None = outcome.error if isinstance(outcome, Response) else outcome
            if isinstance(error, _FATAL):
                raise error
            if self._clock.now() >= deadline:
                raise KafkaTimeoutError(f"No answer in time: {error}") from error
            self._network.pause(self._backoff.delay(attempts))
            moved()
            self._network.refresh(deadline)
            attempts += 1


def _says_nothing(question: Question) -> KafkaError:
    return NetworkError(f"The response to {question.api} says nothing of what was asked: throttled by a quota")
