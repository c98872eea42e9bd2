"""Calls to transaction and group coordinators: each is repeated until its answer says how it ended.

Finds the coordinators, several keys in one request, and may use several connections to each: a broker serves one
request of a connection at a time. Owned by the thread that turns the loop; no clock and no I/O of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from types import ModuleType
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.errors import KafkaError, NetworkError, UnsupportedVersionError, unexpected
from spark_kafka_sink.model import Node
from spark_kafka_sink.network.backoff import ExponentialBackoff
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.codec import Response, camel_case, kio_request
from spark_kafka_sink.network.error_table import Action, action, broker_error

_log = logging.getLogger("spark_kafka_sink.sender")

SOON_MS = 5.0
"""First wait after CONCURRENT_TRANSACTIONS; it doubles. Writing the markers takes a few milliseconds."""

_FIND_VERSIONS = (3, 4)
_FIRST_WITH_MANY_KEYS = 4
_MOST_COORDINATORS = 1_000
"""Known places: a producer that goes through many transactional ids looks them up again from time to time."""
_LANE = 1 << 32
"""Node ids are 32 bits wide: lane ``k`` of a node is a node of its own to the network client."""


class CoordinatorType(IntEnum):
    """``key_type`` of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class CoordinatorKey(NamedTuple):
    type: CoordinatorType
    name: str


class CodeAt(NamedTuple):
    """An error code, what it is about, and the broker's own words if it had any."""

    where: str
    code: ErrorCode
    message: str | None = None


@dataclass(frozen=True, slots=True)
class CallEnd:
    """How a call ended: ``body`` when ``action`` is SUCCEED, else ``error``. ``code``: ``none`` if no broker sent one.

    ``node_id``: the network client's name of the connection that responded.
    """

    action: Action
    body: Any
    error: KafkaError | None
    code: ErrorCode
    node_id: int
    at: float


@dataclass(slots=True, eq=False)
class CoordinatorCall:
    """One request to the coordinator of ``key``, made of kio's entities as in ``kio_request``.

    ``codes`` gives every error code of an answer. ``on_end`` is called once, unless the call is stopped.
    """

    api: str
    versions: tuple[int, int]
    key: CoordinatorKey
    make: Callable[[ModuleType, int], Any]
    codes: Callable[[Any], Iterable[CodeAt]]
    on_end: Callable[[CallEnd], None]
    attempts: int = 0
    retry_at: float = 0.0
    in_flight: bool = False
    last_error: KafkaError | None = None


class CoordinatorCalls:
    """``start`` calls, then ``advance`` once a turn. ``nodes(now)`` are brokers that can say who coordinates what.

    ``connections``: how many may be used to one coordinator; more than one serves many calls at a time.
    """

    def __init__(
        self,
        client: NetworkClient,
        nodes: Callable[[float], Sequence[Node]],
        backoff: ExponentialBackoff,
        soon: ExponentialBackoff,
        connections: int = 1,
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._backoff = backoff
        self._soon = soon
        self._lanes = connections
        self._calls: dict[CoordinatorCall, None] = {}
        self._coordinators: dict[CoordinatorKey, Node] = {}
        self._finding = False
        self._find_attempts = 0
        self._find_at = 0.0

    @property
    def busy(self) -> bool:
        """Whether any call has not ended; a stopped one counts while it is in flight."""
        return bool(self._calls)

    def coordinator(self, key: CoordinatorKey) -> Node | None:
        return self._coordinators.get(key)

    def start(self, call: CoordinatorCall) -> None:
        self._calls[call] = None

    def stop(self) -> None:
        """Nothing is sent again; what is in flight is awaited, and its answer is nobody's."""
        for call in [*self._calls]:
            call.on_end = _ignore
            if not call.in_flight:
                del self._calls[call]

    def advance(self, now: float) -> float:
        """Send what can be sent; says when time alone will make a difference (monotonic ms)."""
        wake_at = NEVER
        missing: dict[CoordinatorKey, None] = {}
        by_node: dict[int, tuple[Node, list[CoordinatorCall]]] = {}
        for call in self._calls:
            if call.in_flight:
                continue
            if call.retry_at > now:
                wake_at = min(wake_at, call.retry_at)
            elif (node := self._coordinators.get(call.key)) is None:
                missing[call.key] = None
            else:
                by_node.setdefault(node.id, (node, []))[1].append(call)
        if missing and not self._finding:
            wake_at = min(wake_at, self._find(list(missing), now))
        for node, calls in by_node.values():
            wake_at = min(wake_at, self._send(node, calls, now))
        return wake_at

    # Coordinators

    def _find(self, missing: list[CoordinatorKey], now: float) -> float:
        """Ask any broker who coordinates the keys of the first one's type."""
        if self._find_at > now:
            return self._find_at
        nodes = self._nodes(now)
        node = self._client.least_loaded_node(nodes, now)
        if node is None or not self._client.ready(node, now):
            self._note_unreachable(nodes)
            return now + min((self._client.ready_delay(each, now) for each in nodes), default=NEVER)
        keys = [key for key in missing if key.type is missing[0].type]

        def make(module: ModuleType, version: int) -> Any:
            if version < _FIRST_WITH_MANY_KEYS:
                return module.FindCoordinatorRequest(key=keys[0].name, key_type=keys[0].type)
            return module.FindCoordinatorRequest(
                key_type=keys[0].type, coordinator_keys=tuple(key.name for key in keys)
            )

        def found(response: Response) -> None:
            self._finding = False
            if response.error is not None:
                self._not_found(keys, response.error, response.completed_at)
            elif response.api_version < _FIRST_WITH_MANY_KEYS:
                self._found(keys[0], response.body, response.completed_at)
            else:
                body: Any = response.body
                told = {CoordinatorKey(keys[0].type, each.key): each for each in body.coordinators}
                for key, each in told.items():
                    self._found(key, each, response.completed_at)
                if left_out := [key for key in keys if key not in told]:
                    error = NetworkError(f"FindCoordinator has no response for {_name(left_out[0])}")
                    self._not_found(left_out, error, response.completed_at)

        self._finding = True
        self._client.send(node.id, kio_request("find_coordinator", *_FIND_VERSIONS, make, found), now)
        return NEVER

    def _note_unreachable(self, nodes: Iterable[Node]) -> None:
        errors = [error for node in nodes if (error := self._client.last_error(node.id)) is not None]
        if errors:
            for call in self._calls:
                call.last_error = call.last_error or NetworkError(errors[-1])

    def _found(self, key: CoordinatorKey, answer: Any, now: float) -> None:
        code: ErrorCode = answer.error_code
        if code is ErrorCode.none:
            if len(self._coordinators) >= _MOST_COORDINATORS:
                self._coordinators.clear()
            self._coordinators[key] = Node(int(answer.node_id), answer.host, int(answer.port))
            return
        error = broker_error(code, f"FindCoordinator for {_name(key)}", answer.error_message)
        what = action("find_coordinator", code)
        if what < Action.ABORT:
            self._not_found([key], error, now)
            return
        for call in [call for call in self._calls if call.key == key]:
            self._end(call, CallEnd(what, None, error, code, -1, now))

    def _not_found(self, keys: Iterable[CoordinatorKey], error: KafkaError, now: float) -> None:
        _log.debug("Coordinators are looked for again: %s", error)
        wanted = set(keys)
        for call in [call for call in self._calls if call.key in wanted]:
            call.last_error = error
            if isinstance(error, UnsupportedVersionError):
                self._end(call, CallEnd(Action.FAIL, None, error, ErrorCode.none, -1, now))
        self._find_later(now)

    def _find_later(self, now: float) -> None:
        if self._find_at <= now:
            self._find_at = now + self._backoff.delay(self._find_attempts)
            self._find_attempts += 1

    # Calls

    def _send(self, node: Node, calls: list[CoordinatorCall], now: float) -> float:
        """To the connections with the least in flight, none of which waits for another."""
        lanes = [self._lane(node, lane) for lane in range(min(self._lanes, len(calls)))]
        ready = [lane for lane in lanes if self._client.ready(lane, now)]
        if not ready and (error := self._client.last_error(node.id)) is not None:
            return self._lost(calls, error, now)
        for call in calls:
            if not ready:
                break
            lane = min(ready, key=lambda each: self._client.in_flight(each.id))
            self._request(lane, call, now)
            if not self._client.ready(lane, now):
                ready.remove(lane)
        else:
            return NEVER
        return now + min(self._client.ready_delay(lane, now) for lane in lanes)

    def _lost(self, calls: list[CoordinatorCall], error: str, now: float) -> float:
        """The coordinator cannot be reached; by now another broker may be it."""
        for call in calls:
            call.last_error = NetworkError(error)
            self._coordinators.pop(call.key, None)
        self._find_later(now)
        return self._find_at

    @staticmethod
    def _lane(node: Node, lane: int) -> Node:
        return node if lane == 0 else replace(node, id=node.id + lane * _LANE)

    def _request(self, lane: Node, call: CoordinatorCall, now: float) -> None:
        call.in_flight = True
        call.attempts += 1

        def answered(response: Response) -> None:
            self._answered(call, response)

        self._client.send(lane.id, kio_request(call.api, *call.versions, call.make, answered), now)

    def _answered(self, call: CoordinatorCall, response: Response) -> None:
        call.in_flight = False
        try:
            self._take_in(call, response)
        except Exception as error:
            _log.exception("The response to %s could not be taken in", camel_case(call.api))
            self._calls.pop(call, None)
            at, node_id = response.completed_at, response.node_id
            call.on_end(CallEnd(Action.FAIL, None, unexpected(error), ErrorCode.none, node_id, at))

    def _take_in(self, call: CoordinatorCall, response: Response) -> None:
        at = response.completed_at
        if response.error is not None:
            if isinstance(response.error, UnsupportedVersionError):
                self._end(call, CallEnd(Action.FAIL, None, response.error, ErrorCode.none, response.node_id, at))
            else:
                self._retry(call, Action.REFRESH_RETRY, response.error, at)
            return
        self._find_attempts = 0
        worst = max(call.codes(response.body), key=lambda each: action(call.api, each.code), default=None)
        if worst is None:
            self._retry(
                call, Action.RETRY, NetworkError(f"{camel_case(call.api)} was answered for nothing that was asked"), at
            )
            return
        what = action(call.api, worst.code)
        if what is Action.SUCCEED:
            self._end(call, CallEnd(what, response.body, None, worst.code, response.node_id, at))
            return
        error = broker_error(worst.code, worst.where, worst.message)
        if what < Action.ABORT:
            self._retry(call, what, error, at)
        else:
            self._end(call, CallEnd(what, None, error, worst.code, response.node_id, at))

    def _retry(self, call: CoordinatorCall, what: Action, error: KafkaError, now: float) -> None:
        call.last_error = error
        if call.on_end is _ignore:
            self._calls.pop(call, None)
            return
        _log.debug("Attempt %d is repeated: %s", call.attempts, error)
        if what is Action.REFRESH_RETRY:
            self._coordinators.pop(call.key, None)
        backoff = self._soon if what is Action.RETRY_SOON else self._backoff
        call.retry_at = now + backoff.delay(call.attempts - 1)

    def _end(self, call: CoordinatorCall, end: CallEnd) -> None:
        if call in self._calls:
            del self._calls[call]
            call.on_end(end)


def _ignore(_end: CallEnd) -> None:
    pass


def _name(key: CoordinatorKey) -> str:
    return f"transactional.id {key.name}" if key.type is CoordinatorType.TRANSACTION else f"group {key.name}"


def last_reason(call: CoordinatorCall) -> str:
    """What kept a call from ending, for whoever cannot wait any longer."""
    return "no broker has answered" if call.last_error is None else str(call.last_error)
