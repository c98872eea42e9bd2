"""A handler's argument and result."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.authentication import LoginSession
from spark_kafka_sink.testing.broker.faults import Fault
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.cluster import BrokerNode, ClusterState
from spark_kafka_sink.testing.broker.state.groups import Groups
from spark_kafka_sink.testing.broker.state.offsets import GroupOffsets
from spark_kafka_sink.testing.broker.state.quotas import ClientQuotas
from spark_kafka_sink.testing.broker.state.transactions import TransactionCoordinator
from spark_kafka_sink.testing.broker.versions import Release
from spark_kafka_sink.testing.broker.wire import Fields, ReceivedRequest


@dataclass(frozen=True, slots=True)
class BrokerState:
    """The state that the handlers of all nodes share."""

    cluster: ClusterState
    offsets: GroupOffsets
    groups: Groups
    transactions: TransactionCoordinator
    quotas: ClientQuotas
    release: Release
    node_releases: dict[int, Release] = field(default_factory=dict)
    """The releases of the nodes that speak other versions than ``release``."""

    def release_of(self, node: int) -> Release:
        return self.node_releases.get(node, self.release)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """A request with everything that its handler may read or change. ``now_ms``: epoch ms."""

    request: ReceivedRequest
    session: LoginSession
    state: BrokerState
    now_ms: int
    scripted_faults: tuple[Fault, ...] = ()
    _met: set[Fault] = field(default_factory=set)

    @property
    def body(self) -> Any:
        return self.request.body

    @property
    def version(self) -> int:
        return self.request.version

    @property
    def cluster(self) -> ClusterState:
        return self.state.cluster

    def scripted(self, topic: str | None = None, partition: int | None = None) -> ErrorCode:
        """The scripted error for this partition (topic, request), ``none`` without one."""
        for fault in self.scripted_faults:
            if not fault.fits_partition(topic, partition):
                continue
            if fault not in self._met:
                if fault.is_spent:  # another request met the fault while this one waited
                    continue
                self._met.add(fault)
                fault.take()
            return fault.error
        return ErrorCode.none

    def check_script(self, topic: str | None = None, partition: int | None = None) -> None:
        """Raise the scripted error as ``ApiError``."""
        error = self.scripted(topic, partition)
        if error:
            raise ApiError(error)

    def fenced(self, refused: ApiError, since: int) -> ErrorCode:
        """The error code for a fenced producer in this version. PRODUCER_FENCED came with KIP-588, so versions before
        ``since`` have INVALID_PRODUCER_EPOCH instead.
        """
        if refused.error is ErrorCode.producer_fenced and self.version < since:
            return ErrorCode.invalid_producer_epoch
        return refused.error

    def check_coordinator(self, transactional_id: str) -> None:
        """Raise NOT_COORDINATOR unless the asked node coordinates this transactional id."""
        if not self.coordinates(transactional_id):
            raise ApiError(ErrorCode.not_coordinator)

    def check_group_coordinator(self, group: str) -> None:
        """Raise NOT_COORDINATOR unless the asked node coordinates this group."""
        if not self.coordinates_group(group):
            raise ApiError(ErrorCode.not_coordinator)

    def coordinates(self, transactional_id: str) -> bool:
        """Whether the asked node coordinates this transactional id."""
        coordinator = self.cluster.coordinator(transactional_id)
        return coordinator is not None and coordinator.id == self.request.node

    def coordinates_group(self, group: str) -> bool:
        """Whether the asked node leads the group's partition of ``__consumer_offsets``."""
        return self.state.offsets.partition(group).leader == self.request.node


@dataclass(frozen=True, slots=True)
class Delayed:
    """A response that waits in purgatory.

    ``try_complete`` is called after every change of the state and returns the response when it is due;
    ``expire`` returns the response when ``timeout_ms`` have passed.
    """

    timeout_ms: int
    try_complete: Callable[[], Fields | None]
    expire: Callable[[], Fields]


@dataclass(frozen=True, slots=True)
class LastResponse:
    """A response after which the connection is closed."""

    fields: Fields


class HangupError(Exception):
    """Close the connection instead of responding."""


class HaltError(HangupError):
    """The node's disk has failed: the node stops without a response (Kafka: ``Exit.halt``)."""


HandlerResult: TypeAlias = Fields | Delayed | LastResponse | None
"""The result of a handler. ``None``: the request gets no response (acks=0)."""

Handler: TypeAlias = Callable[[RequestContext], HandlerResult]


def address(context: RequestContext, node: BrokerNode) -> Fields:
    """The fields of a node in a coordinator look-up, with its address on the request's listener."""
    return {"node_id": node.id, "host": node.host, "port": node.port_of(context.session.listener)}


def endpoint(context: RequestContext, node: BrokerNode) -> Fields:
    """The fields of a node in metadata and leader hints: its address and its rack."""
    return {**address(context, node), "rack": node.rack}


def by_topic(rows: Iterable[tuple[Hashable, object]], name: str, partitions: str) -> list[Fields]:
    """Nest rows of a response by topic: ``(topic or its id, partition)`` to ``{name: topic, partitions: [...]}``."""
    nested: dict[Hashable, list[object]] = {}
    for topic, partition in rows:
        nested.setdefault(topic, []).append(partition)
    return [{name: topic, partitions: parts} for topic, parts in nested.items()]


def milliseconds(duration: timedelta) -> int:
    """kio's durations as Kafka's integers."""
    return round(duration.total_seconds() * 1000)
