"""Requests to many brokers: connections, their retries, and the requests in flight (Java: ``NetworkClient``).

Owned by the sender thread. Has no clock and no I/O: callers pass the time (monotonic ms), bytes go through the
``Selector``.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, NamedTuple

from spark_kafka_sink.common.cause import Cause
from spark_kafka_sink.common.clock import ExponentialBackoff
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import Node
from spark_kafka_sink.common.repeated_warnings import RepeatedWarnings
from spark_kafka_sink.errors import (
    AuthenticationError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    NetworkError,
    ProducerClosedError,
    WrongProtocolError,
    unexpected_error,
)
from spark_kafka_sink.network.connection import ApiVersions, Connection, ConnectionState, InFlight
from spark_kafka_sink.network.handshake import ChannelBuilder, negotiate_api_versions
from spark_kafka_sink.network.login.refusals import PassingLoginError
from spark_kafka_sink.network.messages import Bytes, Request, Response, throttle_time_ms
from spark_kafka_sink.network.name_lookup import AddressList
from spark_kafka_sink.network.selector import Closed, Connected, Event, Received, Selector, Written

_log = logging.getLogger("spark_kafka_sink.network")

AFTER_AUTHENTICATION_ERROR_MS = 30_000.0
"""How long no connection is tried after an authentication error, because brokers log each attempt and may lock the user
out."""

REAUTHENTICATE_AFTER = (0.85, 0.95)
"""A connection authenticates again after a random share of its session's lifetime between these, as in Java."""

_LOGIN_AGAIN_MS = 1_250.0, 10_000.0
"""The first and the longest backoff after a login that was refused for a moment; with jitter at least 1 s, as Amazon
MSK asks for."""

_REAUTHENTICATIONS_APART_MS = 1_000.0
"""The least time between two re-authentications; brokers refuse earlier ones (Kafka:
``KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS``)."""

UNTRIED_BROKER_GRACE_MS = 3_000.0
"""The time that calls that any broker can serve wait, after an authentication error, for a broker that was not tried
yet."""


class AuthenticationFailure(NamedTuple):
    """An authentication error of a broker, and its time (monotonic ms)."""

    error: AuthenticationError
    at: float

    @property
    def until(self) -> float:
        return self.at + AFTER_AUTHENTICATION_ERROR_MS


class NoNode(NamedTuple):
    """No node is ready for a request. One may be ready at ``retry_at`` (monotonic ms); ``inf`` means after the next
    event.

    ``error``: the reason if no node will be ready for some time; a call that needs one of the nodes ends with this
    error.
    """

    retry_at: float
    error: AuthenticationError | WrongProtocolError | None = None


@dataclass(slots=True)
class NodeState:
    """One node, its connection if there is one, and its next attempt (Java: ``NodeConnectionState``).

    ``failures``: the number of connections in a row that ended before a response. ``setup_failures``: the number of
    them that were not even established. ``authentication_error``: the error of one of several addresses, while other
    addresses are untried. ``probe``: True after the peer hung up in the TLS handshake. The next connection then finds
    out whether the peer speaks Kafka without TLS, because waiting would not help in that case. False once that was
    tried. All times are monotonic ms.
    """

    node: Node
    connection: Connection | None = None
    addresses: AddressList = field(default_factory=AddressList)
    failures: int = 0
    setup_failures: int = 0
    last_attempt_at: float = -math.inf
    next_attempt_at: float = -math.inf
    throttled_until: float = -math.inf
    last_error: KafkaError | None = None
    authentication_error: AuthenticationError | None = None
    probe: bool | None = None

    def failed(self, error: KafkaError, reconnect_backoff: ExponentialBackoff, now: float) -> None:
        self.last_error = error
        self.next_attempt_at = now + reconnect_backoff.delay(self.failures)
        self.failures += 1

    def succeeded(self) -> None:
        self.failures = 0
        self.last_error = None

    def throttle(self, until: float) -> None:
        """Keeps requests from the node ``until`` a time (KIP-219)."""
        self.throttled_until = max(self.throttled_until, until)

    def can_send(self, max_in_flight: int, now: float) -> bool:
        return self.connection is not None and now >= self.throttled_until and self.connection.can_send(max_in_flight)


@dataclass(slots=True)
class AuthenticationCounters:
    """Counters of TLS handshakes and SASL, owned by the thread that runs the loop."""

    authentications: int = 0
    authentications_failed: int = 0
    reauthentications: int = 0
    reauthentications_failed: int = 0
    reauthentication_ms: float = 0.0
    longest_reauthentication_ms: float = 0.0

    def failed(self, *, again: bool) -> None:
        self.reauthentications_failed += again
        self.authentications_failed += not again

    def reauthenticated(self, took_ms: float) -> None:
        self.reauthentications += 1
        self.reauthentication_ms += took_ms
        self.longest_reauthentication_ms = max(self.longest_reauthentication_ms, took_ms)


_UNTRIED: Final = NodeState(Node(-1, "", -1))
"""The state of every node to which no connection was tried."""


class NetworkClient:
    """Connections to all nodes. Call ``ready`` until it is True, then ``send``; ``handle`` the transport's events, and
    ``expire`` what is late.

    Requests complete in ``handle``, ``expire``, ``disconnect`` and ``close`` only, never inside ``send``. ``warns``
    False: failed connections are not logged, because the caller reports them itself. ``should_warn``: whether a failed
    connection is worth a warning now (``TroubleLog`` of a producer sets it). ``channels``: made from ``config`` by
    default.
    """

    def __init__(
        self,
        config: ProducerConfig,
        transport: Selector,
        random: Random,
        *,
        warns: bool = True,
        channels: ChannelBuilder | None = None,
    ) -> None:
        self._config = config
        self._max_in_flight = config.max_in_flight_requests_per_connection
        idle = config.connections_max_idle_ms
        self._max_idle_ms = idle if idle >= 0 else math.inf
        self._transport = transport
        self._random = random
        self.should_warn: Callable[[], bool] = lambda: warns
        self._channels = channels or ChannelBuilder(config)
        self._reconnect_backoff = ExponentialBackoff(
            config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, random
        )
        first, longest = _LOGIN_AGAIN_MS
        self._login_backoff = ExponentialBackoff(
            max(first, config.reconnect_backoff_ms), max(longest, config.reconnect_backoff_max_ms), random
        )
        self._login_again_at: dict[tuple[str, int], float] = {}
        self._setup_backoff = ExponentialBackoff(
            config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms, random
        )
        self._states: dict[int, NodeState] = {}
        self._by_connection: dict[int, NodeState] = {}
        self._logging_in: list[Connection] = []  # their handshakes wait for a login step
        self._authenticates = config.security_protocol != "PLAINTEXT"
        self._authentication_failures: dict[tuple[str, int], AuthenticationFailure] = {}
        self.counters = AuthenticationCounters()
        self._last_connection_id = 0
        self._completed: deque[tuple[Request, Response]] = deque()
        self._disconnects: dict[int, tuple[Node, KafkaError]] = {}
        self._warnings = RepeatedWarnings(_log)
        self._now = 0.0  # the time of the last call with a time, for `close`, which has none

    def ready(self, node: Node, now: float) -> bool:
        """Whether ``send`` may be called.

        Starts a connection if there is none and the backoff allows one; authenticates again if the session ends soon.
        """
        self._now = now
        state = self._state(node)
        if state.connection is not None:
            if state.connection.must_reauthenticate(now) and now >= state.throttled_until:
                self._reauthenticate(state, state.connection)
        elif now >= self._next_attempt_at(node) and not self._is_authenticating(node):
            self._connect(state)
        return state.can_send(self._max_in_flight, now)

    def ready_delay(self, node: Node, now: float) -> float:
        """Milliseconds until ``ready``, which has just been False, may change; ``inf``: only an event changes it.

        May be 0 for a node that ``ready`` was not called for, so a loop that sleeps this long would not sleep.
        """
        state = self._states.get(node.id, _UNTRIED)
        if state.connection is None:
            return math.inf if self._is_authenticating(node) else max(0.0, self._next_attempt_at(node) - now)
        if state.can_send(self._max_in_flight, now):
            return 0.0
        throttled = state.connection.state is ConnectionState.READY and state.throttled_until > now
        return state.throttled_until - now if throttled else math.inf

    def send(self, node_id: int, request: Request, now: float) -> None:
        """Sends to a ``ready`` node. A request completes with an error if the broker speaks no version of it."""
        self._now = now
        state = self._states.get(node_id, _UNTRIED)
        if state.connection is None or not state.can_send(self._max_in_flight, now):
            raise IllegalStateError(f"node {node_id} is not ready for a request")
        connection = state.connection
        try:
            buffers = connection.send(request, now)
        except KafkaError as error:
            self._completed.append((request, Response(node_id, -1, None, error, 0.0, now)))
            return
        self._transfer(connection, buffers)

    def handle(self, events: Sequence[Event], now: float) -> None:
        """Applies the transport's events and completes requests."""
        self._now = now
        for event in events:
            state = self._by_connection.get(event.connection_id)
            if state is None or state.connection is None:
                continue
            connection = state.connection
            try:
                self._handle_event(state, connection, event)
            except Exception as error:
                _log.exception("Closing the connection to %s, because its bytes could not be handled", connection.node)
                self._failed(state, connection, unexpected_error(error))
        if self._logging_in:
            self._resume_logins()
        self._run_completions()

    def _handle_event(self, state: NodeState, connection: Connection, event: Event) -> None:
        match event:
            case Received(_, data):
                self._received(state, connection, data)
            case Written():
                connection.stalled = False
                self._complete_unacknowledged(connection)
            case Connected():
                with self._handshake_step(state, connection):
                    connection.connected(None if state.probe else self._channels.tls_layer(state.node), self._now)
            case Closed(_, reason):
                unheard = connection.is_tls_unheard and not state.addresses
                self._failed(state, connection, connection.closed_error(reason))
                state.probe = True if unheard and state.probe is None else state.probe

    def expire(self, now: float) -> None:
        """Ends late connection attempts, late requests and idle connections."""
        self._now = now
        for state in tuple(self._by_connection.values()):
            connection = state.connection
            if connection is None or now < connection.next_deadline(self._max_idle_ms):
                continue
            if connection.in_setup:
                state.setup_failures += 1
                waited = now - state.last_attempt_at
                reason = f"no response within {waited:.0f} ms (socket.connection.setup.timeout.ms)"
                self._failed(state, connection, connection.closed_error(reason))
            elif connection.awaits:
                self._failed(state, connection, connection.timeout_error(now))
            else:
                _log.debug("Closing the connection to %s, unused for %.0f ms", connection.node, self._max_idle_ms)
                self._drop(state, NetworkError("unused"))
        self._run_completions()

    def next_deadline(self, now: float) -> float:
        """When ``expire`` must be called (monotonic ms), ``inf`` for never."""
        if self._completed:
            return now
        deadline = math.inf
        for state in self._by_connection.values():
            if state.connection is not None:
                deadline = min(deadline, state.connection.next_deadline(self._max_idle_ms))
        for failure in self._authentication_failures.values():
            if now < failure.at + UNTRIED_BROKER_GRACE_MS:
                deadline = min(deadline, failure.at + UNTRIED_BROKER_GRACE_MS)
        return deadline

    def pick(self, nodes: Sequence[Node], now: float) -> Node | NoNode:
        """The node for a request that any of ``nodes`` can serve, or when to look again.

        A ready node with the fewest requests in flight (Java: ``leastLoadedNode``). If none is ready, connects to the
        one with the oldest attempt, unless a connection is being established or all nodes are in backoff.
        """
        failure = self._failure_of_any(nodes, now)
        if failure is not None:
            return NoNode(min(known.until for node in nodes if (known := self._failure_at(node, now))), failure.error)
        node = self._least_loaded(nodes, now)
        if node is not None and self.ready(node, now):
            return node
        # Other nodes may be out of backoff by now, but none is connected to while this attempt lasts.
        delays = [self.ready_delay(candidate, now) for candidate in (nodes if node is None else (node,))]
        return NoNode(now + min(delays, default=math.inf), self._wrong_protocol_of_all(nodes))

    def in_flight(self, node_id: int) -> int:
        """Requests to this node that have not completed."""
        connection = self._states.get(node_id, _UNTRIED).connection
        return 0 if connection is None else connection.load

    def api_versions(self, node_id: int) -> ApiVersions | None:
        """The versions that the node speaks; None while there is no ready connection."""
        connection = self._states.get(node_id, _UNTRIED).connection
        return None if connection is None else connection.api_versions

    def send_one_at_a_time(self) -> None:
        """Lowers ``max.in.flight.requests.per.connection`` to 1 for all later requests."""
        self._max_in_flight = 1

    def any_api_versions(self) -> ApiVersions | None:
        """The versions that some node with a ready connection speaks, a bootstrap server's also; None without one."""
        found = (self.api_versions(node_id) for node_id in self._states)
        return next((versions for versions in found if versions is not None), None)

    def last_error(self, node_id: int) -> KafkaError | None:
        """The error of the last connection; None after a response."""
        return self._states.get(node_id, _UNTRIED).last_error

    def why_waiting(self, node: Node, now: float) -> Cause | None:
        """The cause why the node does not respond; None if nothing is known. Any thread may call it."""
        state = self._states.get(node.id, _UNTRIED)
        connection = state.connection
        if state.last_error is not None and (connection is None or not connection.accepted):
            return Cause.of(state.last_error)
        if connection is None:
            return None
        text = connection.awaited(now)
        if connection.in_setup:
            since = f"for {now - state.last_attempt_at:.0f} ms"
            text = f"The connection to {node} has been {connection.state.value} {since}"
        elif now < state.throttled_until:
            text = f"{node} throttles this client for {state.throttled_until - now:.0f} ms more"
        if text is None:
            return None
        return Cause(text, None, None if connection.accepted else connection.failed_step(KafkaTimeoutError(text)))

    @property
    def waits_for_login(self) -> bool:
        """Whether a connection waits for a token or a ticket."""
        return bool(self._logging_in)

    def has_failed(self, node_id: int) -> bool:
        """Whether the last connection to the node failed, and its host name has no further address to try."""
        state = self._states.get(node_id, _UNTRIED)
        return state.last_error is not None and not (state.connection or state.addresses or state.probe)

    def authentication_error(self, node: Node, now: float) -> AuthenticationError | None:
        """Why there is no connection to the node and none will be tried for now. Call it before ``ready``.

        The calls that need this node end with the error; it is never retried.
        """
        failure = None if self._is_accepted(node) else self._failure_at(node, now)
        return None if failure is None else failure.error

    def drain_disconnects(self) -> list[tuple[Node, KafkaError]]:
        """Nodes whose connection failed since the last call, each with its last error."""
        drained = list(self._disconnects.values())
        self._disconnects.clear()
        return drained

    def disconnect(self, error: KafkaError) -> None:
        """Closes every connection; its requests complete with ``error``, as lost. New ones may be made at once."""
        for state in tuple(self._by_connection.values()):
            self._drop(state, error)
        self._run_completions()

    def close(self) -> None:
        """Closes every connection and completes all requests with ``ProducerClosedError``. The transport stays open."""
        for state in tuple(self._by_connection.values()):
            self._drop(state, ProducerClosedError(f"The client was closed before {state.node} responded"))
        self._channels.close()
        self._run_completions()

    def _state(self, node: Node) -> NodeState:
        state = self._states.get(node.id)
        if state is not None and (state.node.host, state.node.port) != (node.host, node.port):
            self._drop(state, NetworkError(f"Node {state.node} has moved to {node.host}:{node.port}"))
            state = None  # what failed at the old address does not count
        if state is None:
            state = self._states[node.id] = NodeState(node)
        return state

    def _least_loaded(self, nodes: Iterable[Node], now: float) -> Node | None:
        """A ready node with the fewest requests in flight; else a connecting one; else the one with the oldest attempt.

        None while all are full or in backoff.
        """
        candidates = list(nodes)
        self._random.shuffle(candidates)
        ranked = [(rank, node) for node in candidates if (rank := self._rank(node, now)) is not None]
        return min(ranked, key=lambda each: each[0])[1] if ranked else None

    def _rank(self, node: Node, now: float) -> tuple[int, float] | None:
        state = self._states.get(node.id, _UNTRIED)
        if state.connection is None:
            return (2, state.last_attempt_at) if now >= self._next_attempt_at(node) else None
        if state.connection.state is not ConnectionState.READY:
            return 1, 0
        return (0, state.connection.load) if state.can_send(self._max_in_flight, now) else None

    def _failure_at(self, node: Node, now: float) -> AuthenticationFailure | None:
        """The failed login at the node's address, because of which no other attempt is made there for now."""
        failure = self._authentication_failures.get((node.host, node.port))
        return failure if failure is not None and now < failure.until else None

    def _failure_of_any(self, nodes: Iterable[Node], now: float) -> AuthenticationFailure | None:
        """The first authentication failure of ``nodes``; None while another node is connected or may accept the
        login."""
        first: AuthenticationFailure | None = None
        untried = False
        for node in nodes if self._authentication_failures else ():
            if self._is_accepted(node):
                return None
            if (failure := self._failure_at(node, now)) is not None:
                first = failure if first is None or failure.at < first.at else first
            else:
                untried = untried or self.last_error(node.id) is None
        return None if first is None or (untried and now < first.at + UNTRIED_BROKER_GRACE_MS) else first

    def _wrong_protocol_of_all(self, nodes: Sequence[Node]) -> WrongProtocolError | None:
        """The error of the first node, if none of ``nodes`` speaks Kafka's protocol with this client."""
        errors = [self.last_error(node.id) for node in nodes if not self._is_accepted(node)]
        wrong = [error for error in errors if isinstance(error, WrongProtocolError)]
        return wrong[0] if wrong and len(wrong) == len(nodes) else None

    def _is_accepted(self, node: Node) -> bool:
        """Whether the node has a connection from before an authentication failure; it stays usable."""
        connection = self._states.get(node.id, _UNTRIED).connection
        return connection is not None and connection.accepted

    def _is_authenticating(self, node: Node) -> bool:
        """Whether another connection to the same address is still authenticating. If it is refused, a second one would
        be refused as well.

        A bootstrap server is also a node of the cluster, and a coordinator has several connections.
        """
        return self._authenticates and any(
            (state.node.host, state.node.port) == (node.host, node.port)
            for state in self._by_connection.values()
            if state.connection is not None and not state.connection.accepted
        )

    def _next_attempt_at(self, node: Node) -> float:
        address = node.host, node.port
        failure = self._authentication_failures.get(address)
        refused_until = -math.inf if failure is None else failure.until
        login_at = self._login_again_at.get(address, -math.inf)
        return max(self._states.get(node.id, _UNTRIED).next_attempt_at, refused_until, login_at)

    def _connect(self, state: NodeState) -> None:
        self._last_connection_id += 1
        node = state.node
        setup_deadline = self._now + self._setup_backoff.delay(state.setup_failures)
        config, handshake = self._config, self._channels.handshake(node)
        if state.probe:
            config, handshake = replace(config, client_id=""), negotiate_api_versions(str(node))
        connection = Connection(self._last_connection_id, node, config, handshake, setup_deadline)
        state.connection = connection
        state.last_attempt_at = self._now
        self._by_connection[connection.id] = state
        _log.debug("Connecting to %s", node)
        self._transport.connect(connection.id, node.host, node.port, state.addresses)

    def _reauthenticate(self, state: NodeState, connection: Connection) -> None:
        assert connection.api_versions is not None
        handshake = self._channels.reauthentication(state.node, connection.api_versions)
        with self._handshake_step(state, connection):
            connection.reauthenticate(handshake, self._now)

    @contextmanager
    def _handshake_step(self, state: NodeState, connection: Connection) -> Iterator[None]:
        """A block around a step that no response has caused: sends its bytes, or fails the connection with its
        error."""
        try:
            yield
            output = connection.take_output()
        except KafkaError as error:
            # A kept error must not keep the stack frames of its traceback, which hold batches.
            self._failed(state, connection, error.with_traceback(None))
            return
        self._handshake_advanced(state, connection)
        self._transfer(connection, output)

    def _handshake_advanced(self, state: NodeState, connection: Connection) -> None:
        if not connection.in_setup:
            state.setup_failures = 0
        if connection.login_step is not None:
            if connection not in self._logging_in:
                self._logging_in.append(connection)
                connection.login_step.wake_when_done(self._transport)
        elif state.probe and connection.state is ConnectionState.READY:
            from spark_kafka_sink.network.security.tls import not_tls_error

            error = not_tls_error(f"{state.node.host}:{state.node.port}")
            error.failed_step = None if state.last_error is None else state.last_error.failed_step  # with TLS
            self._failed(state, connection, error)
        elif connection.state is ConnectionState.READY and connection.api_versions is not None:
            _log.debug("Connected to %s", state.node)
            state.addresses.connection_ready()
            state.authentication_error = state.probe = None
            state.throttle(self._now + connection.api_versions.throttle_ms)
            self._authenticated(connection, connection.api_versions.session_lifetime_ms)

    def _authenticated(self, connection: Connection, lifetime_ms: float) -> None:
        if connection.reauthentication_began < math.inf:
            self.counters.reauthenticated(self._now - connection.reauthentication_began)
        elif self._authenticates:
            self.counters.authentications += 1
        if lifetime_ms > 0:
            share = self._random.uniform(*REAUTHENTICATE_AFTER)
            connection.reauthenticate_at = self._now + max(lifetime_ms * share, _REAUTHENTICATIONS_APART_MS)

    def _resume_logins(self) -> None:
        """Continues the handshakes whose login step is done."""
        waiting, self._logging_in = self._logging_in, []
        for connection in waiting:
            state = self._by_connection.get(connection.id)
            if state is None or connection.login_step is None:
                continue
            if not connection.login_step.done:
                self._logging_in.append(connection)
                continue
            with self._handshake_step(state, connection):
                connection.login_step_done(self._now)

    def _transfer(self, connection: Connection, buffers: Sequence[Bytes]) -> None:
        connection.stalled = not self._transport.send(connection.id, buffers)
        self._complete_unacknowledged(connection)

    def _received(self, state: NodeState, connection: Connection, data: bytes) -> None:
        shaking_hands = connection.state is not ConnectionState.READY
        try:
            for sent, body in connection.receive(data, self._now):
                self._responded(state, sent, body)
            output = connection.take_output()
        except KafkaError as error:
            self._failed(state, connection, error.with_traceback(None))
            return
        if shaking_hands:
            self._handshake_advanced(state, connection)
        if output:
            self._transfer(connection, output)

    def _responded(self, state: NodeState, sent: InFlight, body: memoryview) -> None:
        try:
            parsed = sent.parse(body)
        except KafkaError as error:
            self._complete(sent, None, error)
            raise
        state.succeeded()
        state.throttle(self._now + throttle_time_ms(parsed))
        self._complete(sent, parsed, None)

    def _complete_unacknowledged(self, connection: Connection) -> None:
        while connection.unacknowledged and not connection.stalled:
            self._complete(connection.unacknowledged.popleft(), None, None)

    def _complete(self, sent: InFlight, body: object | None, error: KafkaError | None) -> None:
        if sent.request is not None:
            latency = self._now - sent.sent_at
            disconnected = error is not None
            response = Response(sent.node.id, sent.version, body, error, latency, self._now, disconnected)
            self._completed.append((sent.request, response))

    def _failed(self, state: NodeState, connection: Connection, error: KafkaError) -> None:
        unused = connection.state is ConnectionState.READY and not connection.load
        if error.failed_step is None:
            error.failed_step = connection.failed_step(error)
        passing = isinstance(error, PassingLoginError)
        if passing or isinstance(error, AuthenticationError):
            self.counters.failed(again=connection.state is ConnectionState.REAUTHENTICATING)
        if state.probe and connection.state is not ConnectionState.CONNECTING:
            state.probe = False
            if not connection.accepted and state.last_error is not None:
                error = state.last_error  # the error of the attempt with TLS
        error = _verdict(state, error)
        # Losing an unused connection is normal, and a failure that nothing waits for does not matter yet.
        if unused or not self.should_warn():
            _log.debug("%s", error)
        else:  # by address: a bootstrap server is also a node of the cluster
            self._warnings.write((state.node.host, state.node.port), self._now, str(error))
        if connection.accepted:
            state.addresses.connection_lost()
        state.failed(error, self._login_backoff if passing else self._reconnect_backoff, self._now)
        if passing:
            self._login_again_at[state.node.host, state.node.port] = state.next_attempt_at
        lost = error
        if isinstance(error, AuthenticationError):
            self._authentication_failures[state.node.host, state.node.port] = AuthenticationFailure(error, self._now)
            # Requests in flight may have been carried out: they are lost, not refused.
            lost = connection.closed_error(str(error))
        self._disconnects[state.node.id] = (state.node, error)
        self._drop(state, lost)

    def _drop(self, state: NodeState, error: KafkaError) -> None:
        connection = state.connection
        if connection is None:
            return
        state.connection = None
        del self._by_connection[connection.id]
        if not connection.stalled and (last_bytes := connection.close()):
            self._transport.send(connection.id, last_bytes)
        self._transport.close(connection.id)
        for sent in (*connection.in_flight, *connection.unacknowledged):
            self._complete(sent, None, error)

    def _run_completions(self) -> None:
        while self._completed:
            request, response = self._completed.popleft()
            request.on_complete(response)


def _verdict(state: NodeState, error: KafkaError) -> KafkaError:
    """The error that counts for the node after one of its connections failed.

    When the node's host name has several addresses, one that refuses the login or is not a Kafka broker does not yet
    count, because the next attempt takes an address that has not been tried. Once all of them have failed, for whatever
    reason, a refused login counts for the node.
    """
    if not state.addresses:
        failure, state.authentication_error = state.authentication_error, None
        return error if failure is None or isinstance(error, AuthenticationError) else failure
    if not isinstance(error, AuthenticationError | WrongProtocolError):
        return error
    if isinstance(error, AuthenticationError):
        state.authentication_error = error
    passing = NetworkError(str(error))
    passing.failed_step = error.failed_step
    return passing
