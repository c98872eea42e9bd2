"""API calls that are repeated until a response or an error ends them. This is the one retry loop, for transactions, for
callers that wait on a producer's connections, and for callers that run the loop themselves (``rpc``).

A call finds its broker by its target: a coordinator, a partition's leader, one node, or any node. Retries, node
rotation and their delays follow ``error_table``.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from random import Random
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.cause import Cause, timed_out
from spark_kafka_sink.common.clock import NEVER, ExponentialBackoff
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import CONNECTION, NO_LEADER, ClusterSnapshot, Node, TopicPartition
from spark_kafka_sink.common.repeated_warnings import RepeatedWarnings
from spark_kafka_sink.common.waiting import Waiters
from spark_kafka_sink.errors import (
    KafkaError,
    KafkaTimeoutError,
    NetworkError,
    RequestBuildError,
    WrongProtocolError,
    clause,
    own_copy,
    unexpected_error,
)
from spark_kafka_sink.network.api_versions import (
    FIND_COORDINATOR_OF_GROUP,
    FIND_COORDINATOR_OF_TRANSACTION,
    VersionRange,
    camel_case,
)
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.error_table import NOT_RETRIED, Action, action, broker_error
from spark_kafka_sink.network.messages import KioRequest, MakeEntity, Response
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.network.metadata_api import metadata_request, parse_metadata

_log = logging.getLogger("spark_kafka_sink.network")

SOON_MS: Final = 5.0
"""The first delay after CONCURRENT_TRANSACTIONS, because writing the markers takes a few milliseconds. It doubles."""

_FIRST_WITH_MANY_KEYS: Final = 4
_FIRST_WITH_KEY_TYPE: Final = 1
_MAX_LOCATIONS: Final = 1_000
"""The most coordinators that are remembered. A producer with more transactional ids forgets all of them and finds them
again."""


class CoordinatorType(IntEnum):
    """``key_type`` of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class Coordinator(NamedTuple):
    """The coordinator of a group or of a transactional id."""

    type: CoordinatorType
    name: str

    def __str__(self) -> str:
        return f"transactional.id {self.name}" if self.type is CoordinatorType.TRANSACTION else f"group {self.name}"


CallTarget: TypeAlias = Coordinator | TopicPartition | int | None
"""The broker of a call: a coordinator, a partition's leader, a node id, or None for any broker."""


class BrokerGoneError(NetworkError):
    """The broker is no longer in the cluster's metadata."""


class CodeAt(NamedTuple):
    """An error code, what it is about, and the broker's message if there is one."""

    where: str
    code: ErrorCode
    message: str | None = None


ReadCodes: TypeAlias = Callable[[Any], Iterable[CodeAt]]
"""The error codes in a response's body; empty if the broker sends none (a throttled Fetch has no partitions)."""


@dataclass(frozen=True, slots=True)
class CallEnd:
    """How a call ended, with a ``body`` when ``action`` is SUCCEED, else with an ``error``. ``code`` is ``none`` if no
    broker sent one.

    ``node_id`` is the network client's number of the connection that responded. ``unanswered`` means that an earlier
    attempt was sent and never had a response, so a broker may still receive it.
    """

    action: Action
    body: Any = None
    error: KafkaError | None = None
    code: ErrorCode = ErrorCode.none
    node_id: int = -1
    unanswered: bool = False


CallHandler: TypeAlias = Callable[[CallEnd], None]


@dataclass(slots=True, eq=False)
class Call:
    """One request made of kio's entities (``KioRequest``), and the state of its retries.

    ``asked``: the ``where`` of each code that the response must have; other codes do not count. Empty: any code counts.
    ``end`` is set once, then ``on_end`` is called; neither happens once it is ``stopped``. ``owner``: the object for
    which ``Calls.stop`` stops it. ``began``: the time of the first ``Calls.advance``. ``sent_to``: the node that it was
    last sent to. ``why``: what keeps it from its end, for ``timeout_error``.
    """

    api: str
    versions: VersionRange
    target: CallTarget
    make: MakeEntity
    codes: ReadCodes
    on_end: CallHandler | None = None
    asked: Collection[str] = frozenset()
    owner: object = None
    end: CallEnd | None = None
    began: float = NEVER
    attempts: int = 0
    retry_at: float = 0.0
    in_flight: bool = False
    stopped: bool = False
    unanswered: bool = False
    last_error: KafkaError | None = None
    sent_to: Node | None = None
    why: Cause | None = None


class Calls:
    """The calls that have not ended, each with its owner. Callers wait as in ``metadata``, for the same loop, which
    calls ``advance`` in each iteration while ``busy``. Times and deadlines are monotonic ms. ``connections``: the most
    connections to one coordinator, because a broker serves one request of a connection at a time.
    """

    def __init__(
        self, client: NetworkClient, metadata: Metadata, config: ProducerConfig, random: Random, connections: int = 1
    ) -> None:
        self._client = client
        self.metadata = metadata
        self._clock = metadata.clock
        self._timeout_ms = config.request_timeout_ms
        self._changed = Waiters(metadata.waiters.sender)
        self._failed_by: KafkaError | None = None
        self._warnings = RepeatedWarnings(_log)
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
        self._soon = ExponentialBackoff(SOON_MS, config.retry_backoff_max_ms, random)
        self._connections = connections
        self._calls: dict[Call, None] = {}
        self._located: dict[CallTarget, Node] = {}
        self._topic_ids: dict[str, UUID] = {}
        self._finding = False
        self._find_attempts = 0
        self._find_at = 0.0

    # Any thread

    @property
    def snapshot(self) -> ClusterSnapshot:
        return self.metadata.snapshot

    def now(self) -> float:
        """Monotonic ms, as in deadlines."""
        return self._clock.now()

    def call(self, call: Call, deadline: float) -> Any:
        """The response's body. Raises the error that ended the call, or ``KafkaTimeoutError`` at the deadline."""
        began = self._clock.now()
        self.run([call], deadline)
        if call.end is None:
            if self._failed_by is not None:
                raise own_copy(self._failed_by)
            raise timeout_error(call, deadline - began)
        if call.end.error is not None:
            raise own_copy(call.end.error)
        return call.end.body

    def run(self, calls: Collection[Call], deadline: float, latest_ms: float = NEVER) -> None:
        """Returns when all calls have ended or the deadline has passed; nothing is sent after the deadline.

        ``latest_ms``: a second deadline, in epoch ms, for requests that another machine no longer accepts after this
        time, because the monotonic clock stops while this machine is suspended.
        """
        left = deque(calls)

        def is_over() -> bool:
            while left and left[0].end is not None:
                left.popleft()
            late = latest_ms != NEVER and self._clock.epoch_ms() >= latest_ms
            return not left or late or self._failed_by is not None

        try:
            for call in calls:
                call.on_end = self._ended
                self.start(call, left)
            self._changed.wake_sender()
            self._changed.wait_for(is_over, deadline - self._clock.now())
        finally:
            if left:
                for call in [call for call in left if call.end is None]:
                    call.why = self.why_waiting(call, self._clock.now())
                self.stop(left)
                self._changed.wake_sender()

    def await_brokers(self, deadline: float) -> None:
        """Returns when the snapshot has brokers.

        Raises ``KafkaTimeoutError`` at the deadline, and permanent errors immediately.
        """
        began = self._clock.now()
        while not self.snapshot.nodes:
            if (now := self._clock.now()) >= deadline:
                why = self.metadata.why_waiting((), now, began)
                raise timed_out("No broker has responded" if why is None else why.text, why)
            self.refresh(deadline)

    def refresh(self, deadline: float = NEVER) -> None:
        """Updates the metadata of all topics, or keeps the snapshot if no broker responds within request.timeout.ms.

        Raises ``AuthenticationError``, and without a snapshot every permanent error.
        """
        after, wait_ms = self.metadata.round, min(deadline - self._clock.now(), self._timeout_ms)
        self.metadata.request_update(at_once=True)
        self.metadata.await_round(after, wait_ms)

    def pause(self, ms: float) -> None:
        """Waits for ``ms``; without a sender, it runs the loop meanwhile."""
        self._changed.wait_for(lambda: False, ms)

    def start(self, call: Call, owner: object) -> None:
        call.owner = owner
        self._calls[call] = None

    def stop(self, owner: object) -> None:
        """Stops the owner's calls: none is sent again, and the responses to calls in flight are dropped."""
        for call in self.of(owner):
            call.stopped = True

    def of(self, owner: object) -> list[Call]:
        """The owner's calls that have not ended, including stopped calls in flight."""
        return [call for call in [*self._calls] if call.owner is owner and (call.in_flight or not call.stopped)]

    def oldest(self, owner: object) -> Call | None:
        """The owner's call that has waited longest."""
        return next((call for call in self.of(owner) if not call.stopped), None)

    @property
    def busy(self) -> bool:
        """Whether there is something for ``advance`` to do."""
        return bool(self._calls)

    def why_waiting(self, call: Call, now: float) -> Cause:
        """The cause why the call has not ended yet. Any thread may call it."""
        node = call.sent_to if call.in_flight else None if call.target is None else self._node(call.target)
        why = self.metadata.why_waiting((), now) if node is None else self._client.why_waiting(node, now)
        if (last := call.last_error) is None:
            return why or Cause("No broker has responded")
        if why is None:
            return Cause.of(last)
        text = why.text if str(last) in why.text else f"{clause(why.text)}. The last error: {last}"
        return why._replace(text=text, error=why.error or last)

    def fail(self, error: KafkaError) -> None:
        """Makes every call that a caller waits for, now and later, raise ``error``."""
        self._failed_by = error
        self._changed.notify_all()

    def _ended(self, _end: CallEnd) -> None:
        self._changed.notify_all()

    # The thread that runs the loop

    def located(self, target: Coordinator | TopicPartition) -> Node | None:
        """The coordinator or leader, if it has been found."""
        return self._located.get(target)

    def topic_id(self, topic: str) -> UUID | None:
        """The topic's id, if the response with a leader of the topic had it."""
        return self._topic_ids.get(topic)

    def forget(self, target: Coordinator | TopicPartition) -> None:
        """Forgets the coordinator or leader, which the next call finds again."""
        self._located.pop(target, None)

    def advance(self, now: float) -> float:
        """Sends what can be sent. Returns when to call it again at the latest (monotonic ms)."""
        wake_at = self._warn_of_stalls(now)
        missing: dict[Coordinator | TopicPartition, None] = {}
        by_node: dict[int, tuple[Node, list[Call]]] = {}
        for call in _unsent(self._calls):
            if call.stopped:
                self._calls.pop(call, None)  # the end of another call may have removed it
                continue
            if call.retry_at > now:
                wake_at = min(wake_at, call.retry_at)
            elif call.target is None:
                wake_at = min(wake_at, self._send_to_any(call, now))
            elif (node := self._node(call.target)) is not None:
                by_node.setdefault(node.id, (node, []))[1].append(call)
            elif not isinstance(call.target, int):
                missing[call.target] = None
            elif self.metadata.snapshot.nodes:
                self._end_unsent([call], BrokerGoneError(f"Broker {call.target} has left the cluster"))
                wake_at = now
        if missing and not self._finding:
            wake_at = min(wake_at, self._find(list(missing), now))
        for node, calls in by_node.values():
            wake_at = min(wake_at, self._send(node, calls, now))
        return wake_at

    def _warn_of_stalls(self, now: float) -> float:
        """Warns once per API of what its oldest call waits for. Returns when the next warning is due."""
        oldest: dict[str, Call] = {}
        for call in [*self._calls]:
            if not call.stopped:
                call.began = min(call.began, now)
                oldest.setdefault(call.api, call)
        due = NEVER
        for api, call in oldest.items():
            if now >= self._warnings.next_at(api, call.began):
                about: object = call.target
                if isinstance(call.target, int):
                    about = self._node(call.target) or f"broker {call.target}"
                what = camel_case(api) if about is None else f"{camel_case(api)} for {about}"
                waited_s, why = (now - call.began) / 1000, self.why_waiting(call, now)
                self._warnings.write(api, now, f"{what} has waited for {waited_s:.0f} s: {why.text}")
            due = min(due, self._warnings.next_at(api, call.began))
        return due

    def _node(self, target: Coordinator | TopicPartition | int) -> Node | None:
        return self.metadata.snapshot.nodes.get(target) if isinstance(target, int) else self._located.get(target)

    def _any_node(self, now: float) -> Node | float:
        """A ready broker, or when to look again (monotonic ms)."""
        picked = self._client.pick(self.metadata.candidates(now), now)
        if isinstance(picked, Node):
            return picked
        if picked.error is not None:
            homeless = [call for call in [*self._calls] if call.target is None or self._node(call.target) is None]
            self._end_unsent(_unsent(homeless), picked.error)
            return now
        return picked.retry_at

    # Coordinators and leaders

    def _find(self, missing: list[Coordinator | TopicPartition], now: float) -> float:
        """Asks any broker for all missing coordinators of the first one's type, or for one partition's leader."""
        if self._find_at > now:
            return self._find_at
        node = self._any_node(now)
        if not isinstance(node, Node):
            return node
        first = missing[0]
        if isinstance(first, TopicPartition):
            self._find_leader(node, first, now)
        else:
            same = [target for target in missing if isinstance(target, Coordinator) and target.type is first.type]
            self._find_coordinators(node, same, now)
        self._finding = True
        return NEVER

    def _find_leader(self, node: Node, partition: TopicPartition, now: float) -> None:
        def found(response: Response) -> None:
            self._finding = False
            error = response.error or self._leader_found(partition, parse_metadata(response.body))
            if error is not None:
                self._not_found([partition], error, response.completed_at)

        self._client.send(node.id, metadata_request([partition.topic], False, found), now)

    def _leader_found(self, partition: TopicPartition, found: ClusterSnapshot) -> KafkaError | None:
        info = found.topics.get(partition.topic)
        code = ErrorCode.none if info is None else ErrorCode(info.error)
        leader = found.leader(partition)
        if leader != NO_LEADER:
            if info is not None and info.topic_id is not None:
                self._topic_ids[partition.topic] = info.topic_id
            self._locate(partition, found.nodes[leader])
            return None
        fault = found.inconsistent.get(partition.topic)
        error = NetworkError(fault or f"{partition} has no leader that can be reached")
        if action("metadata", code) is Action.FAIL:
            refused = broker_error(code, f"Metadata of topic {partition.topic}")
            self._end_all(partition, CallEnd(Action.FAIL, error=refused, code=code))
        return error

    def _find_coordinators(self, node: Node, keys: list[Coordinator], now: float) -> None:
        def make(module: ModuleType, version: int) -> Any:
            if version < _FIRST_WITH_KEY_TYPE:
                return module.FindCoordinatorRequest(key=keys[0].name)
            if version < _FIRST_WITH_MANY_KEYS:
                return module.FindCoordinatorRequest(key=keys[0].name, key_type=keys[0].type)
            return module.FindCoordinatorRequest(
                key_type=keys[0].type, coordinator_keys=tuple(key.name for key in keys)
            )

        def found(response: Response) -> None:
            self._finding = False
            at, body = response.completed_at, response.body
            if response.error is not None:
                self._not_found(keys, response.error, at)
            elif response.api_version < _FIRST_WITH_MANY_KEYS:
                self._coordinator_found(keys[0], body, at)
            else:
                by_key = {
                    Coordinator(keys[0].type, coordinator.key): coordinator
                    for coordinator in getattr(body, "coordinators", ())
                }
                for key in (key for key in keys if key in by_key):
                    self._coordinator_found(key, by_key[key], at)
                if left_out := [key for key in keys if key not in by_key]:
                    self._not_found(left_out, NetworkError(f"FindCoordinator has no response for {left_out[0]}"), at)

        of_group = keys[0].type is CoordinatorType.GROUP
        versions = FIND_COORDINATOR_OF_GROUP if of_group else FIND_COORDINATOR_OF_TRANSACTION
        self._client.send(node.id, KioRequest("find_coordinator", versions, make, found), now)

    def _coordinator_found(self, key: Coordinator, response: Any, now: float) -> None:
        code: ErrorCode = response.error_code
        if code is ErrorCode.none:
            self._locate(key, Node(int(response.node_id), response.host, int(response.port)))
            return
        message = getattr(response, "error_message", None)
        error = broker_error(code, f"FindCoordinator for {key}", message, "find_coordinator")
        what = action("find_coordinator", code)
        if what < Action.SPLIT:
            self._not_found([key], error, now)
        else:
            self._end_all(key, CallEnd(what, error=error, code=code))

    def _locate(self, target: Coordinator | TopicPartition, node: Node) -> None:
        if len(self._located) >= _MAX_LOCATIONS:
            self._located.clear()
        self._located[target] = node

    def _not_found(self, targets: Iterable[CallTarget], error: KafkaError, now: float) -> None:
        _log.debug("Retrying to find leaders and coordinators: %s", error)
        wanted = set(targets)
        found = [call for call in [*self._calls] if call.target in wanted]
        for call in found:
            call.last_error = error
        if isinstance(error, NOT_RETRIED):
            self._end_unsent(found, error)
        self._find_later(now)

    def _find_later(self, now: float) -> None:
        if self._find_at <= now:
            self._find_at = now + self._backoff.delay(self._find_attempts)
            self._find_attempts += 1

    # Sending

    def _send_to_any(self, call: Call, now: float) -> float:
        node = self._any_node(now)
        if not isinstance(node, Node):
            return node
        self._request(node, call, now)
        return NEVER

    def _send(self, node: Node, calls: list[Call], now: float) -> float:
        """Sends the calls to the connections with the fewest requests in flight; no call waits for another one."""
        if (fatal := self._client.authentication_error(node, now)) is not None:
            self._end_unsent(calls, fatal)
            return now
        numbers = range(1, min(self._connections, len(calls)))
        connections = [node, *(replace(node, id=node.id + number * CONNECTION) for number in numbers)]
        ready = [connection for connection in connections if self._client.ready(connection, now)]
        if not ready and (error := self._client.last_error(node.id)) is not None:
            return self._lost(calls, error, now)
        for call in calls:
            if not ready:
                break
            connection = min(ready, key=lambda each: self._client.in_flight(each.id))
            self._request(connection, call, now)
            if not self._client.ready(connection, now):
                ready.remove(connection)
        else:
            return NEVER
        return now + min(self._client.ready_delay(connection, now) for connection in connections)

    def _lost(self, calls: list[Call], error: KafkaError, now: float) -> float:
        """Retries calls whose coordinator or leader cannot be reached; another broker may have its role by now."""
        wake_at = NEVER
        for call in calls:
            if isinstance(call.target, int):
                call.attempts += 1
                self._retry(call, Action.RETRY, error, now)
                wake_at = min(wake_at, call.retry_at)
            else:
                call.last_error = error
                self._located.pop(call.target, None)
                self._find_later(now)
                wake_at = min(wake_at, self._find_at)
        return wake_at

    def _request(self, connection: Node, call: Call, now: float) -> None:
        def completed(response: Response) -> None:
            self._completed(call, response)

        self._client.send(connection.id, KioRequest(call.api, call.versions, call.make, completed), now)
        call.in_flight, call.sent_to = True, connection
        call.attempts += 1

    # Responses

    def _completed(self, call: Call, response: Response) -> None:
        call.in_flight = False
        try:
            self._handle(call, response)
        except Exception as error:
            _log.exception("The response to %s could not be handled", camel_case(call.api))
            self._calls[call] = None  # ``_end`` has removed it if its handler raised
            self._end(call, CallEnd(Action.FAIL, error=unexpected_error(error)))

    def _handle(self, call: Call, response: Response) -> None:
        now, error = response.completed_at, response.error
        if error is not None:
            call.unanswered = True
            if _is_fatal(error, call.target):
                self._end_unsent([call], error)
            else:
                self._retry(call, Action.REFRESH_RETRY, error, now)
            return
        self._find_attempts = 0
        codes = [code for code in call.codes(response.body) if not call.asked or code.where in call.asked]
        worst = max(codes, key=lambda each: action(call.api, each.code), default=None)
        what = Action.SUCCEED if worst is None else action(call.api, worst.code)
        left_out = {*call.asked} - {code.where for code in codes}
        if what is Action.SUCCEED and (worst is None or left_out):
            missing = f"lacks {min(left_out)}" if left_out else "has no results, because a quota throttles this client"
            self._retry(call, Action.RETRY, NetworkError(f"The {camel_case(call.api)} response {missing}"), now)
            return
        assert worst is not None
        error = None if what is Action.SUCCEED else broker_error(worst.code, worst.where, worst.message, call.api)
        if error is not None and what < Action.SPLIT:
            self._retry(call, what, error, now)
        else:
            self._end(call, CallEnd(what, response.body, error, worst.code, response.node_id, call.unanswered))

    def _retry(self, call: Call, what: Action, error: KafkaError, now: float) -> None:
        call.last_error = error
        if call.stopped:
            self._calls.pop(call, None)
            return
        _log.debug("Retrying after attempt %d: %s", call.attempts, error)
        if what is Action.REFRESH_RETRY and isinstance(call.target, tuple):
            self.forget(call.target)
        backoff = self._soon if what is Action.RETRY_SOON else self._backoff
        call.retry_at = now + backoff.delay(call.attempts - 1)

    def _end_unsent(self, calls: Iterable[Call], error: KafkaError) -> None:
        """Ends calls whose request was not sent. A request that could not be built fails its transaction, but not the
        producer."""
        what = Action.ABORT if isinstance(error, RequestBuildError) else Action.FAIL
        for call in calls:
            self._end(call, CallEnd(what, error=error))

    def _end_all(self, target: CallTarget, end: CallEnd) -> None:
        for call in [call for call in [*self._calls] if call.target == target]:
            self._end(call, end)

    def _end(self, call: Call, end: CallEnd) -> None:
        if call in self._calls:
            del self._calls[call]
            if not call.stopped:
                call.end = end
                if call.on_end is not None:
                    call.on_end(end)


def _unsent(calls: Iterable[Call]) -> list[Call]:
    return [call for call in [*calls] if not call.in_flight]


def timeout_error(call: Call, timeout_ms: float) -> KafkaTimeoutError:
    """The error of a call that has not ended in time, with the last reason."""
    target = f" for {call.target.name}" if isinstance(call.target, Coordinator) else ""
    why = call.why or Cause("No broker has responded")
    text = f"{camel_case(call.api)}{target} has no response after {max(0.0, timeout_ms):.0f} ms: {why.text}"
    return why.attached_to(KafkaTimeoutError(text))


def _is_fatal(error: KafkaError, target: CallTarget) -> bool:
    """Whether the error ends a call. After a peer of another protocol, a coordinator may still be found elsewhere."""
    wrong_peer = isinstance(error, WrongProtocolError) and not isinstance(target, Coordinator)
    return wrong_peer or isinstance(error, NOT_RETRIED)
