"""One connection to one broker, without I/O and without a clock: bytes in, responses out, in the order of sending."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import Node
from spark_kafka_sink.errors import (
    AuthenticationError,
    ConnectionStep,
    FailedStep,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    NetworkError,
    SslAuthenticationError,
    UnsupportedVersionError,
    WrongProtocolError,
    clause,
)
from spark_kafka_sink.network.api_versions import VersionRange
from spark_kafka_sink.network.login.sasl import LoginStep
from spark_kafka_sink.network.messages import API_KEYS, Bytes, Request, api_name, build_error, encode_request
from spark_kafka_sink.network.name_lookup import UNRESOLVED

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload

    from spark_kafka_sink.network.security.tls import TlsLayer

SIZE_BYTES = 4
CORRELATION_ID_BYTES = 4
MAX_FRAME_BYTES = 100 * 1024 * 1024
MAX_HANDSHAKE_FRAME_BYTES = 1024 * 1024
"""The largest frame until a connection is ready, because decoding takes CPU and nothing is known about the peer yet."""
_MAX_CORRELATION_ID = 2**31 - 1
_MAX_UNREAD_BYTES = 64 * 1024
_NOTICEABLE_MS = 100.0
"""The time after which a response counts as ``awaited``, because every request in flight waits for a response."""

# First bytes of other protocols, their servers, and the advice. Read as a frame size, each is above MAX_FRAME_BYTES.
_FOREIGN_PROTOCOLS = (
    (b"\x15\x03", "a TLS server", "set security.protocol=SSL or SASL_SSL, or use the plaintext listener's port"),
    (b"\x16\x03", "a TLS server", "set security.protocol=SSL or SASL_SSL, or use the plaintext listener's port"),
    (b"HTTP", "an HTTP server", "use the port of a Kafka listener in bootstrap.servers"),
    (b"SSH-", "an SSH server", "use the port of a Kafka listener in bootstrap.servers"),
)


class ConnectionState(Enum):
    """The states of a connection, in their order; only REAUTHENTICATING goes back, to READY. A connection ends by being
    dropped.
    """

    CONNECTING = "connecting"
    TLS_HANDSHAKE = "in the TLS handshake"
    HANDSHAKING = "handshaking"
    READY = "ready"
    REAUTHENTICATING = "re-authenticating"


@dataclass(frozen=True, slots=True)
class ApiVersions:
    """The API versions of one broker. ``features`` are the cluster's finalized features, name to level (KIP-584).

    ``throttle_ms``: how long the broker reads nothing from this connection (KIP-219). ``session_lifetime_ms``: when the
    SASL session ends, 0 for never (KIP-368).
    """

    peer: str
    ranges: Mapping[int, tuple[int, int]]
    features: Mapping[str, int]
    throttle_ms: float = 0.0
    session_lifetime_ms: float = 0.0

    @property
    def highest(self) -> dict[str, int]:
        """kio's name of each API that the broker has → its highest version."""
        return {api: self.ranges[key][1] for api, key in API_KEYS.items() if key in self.ranges}

    def pick(self, api_key: int, our_min: int, our_max: int, need: str = "") -> int:
        """The highest version that both sides speak. Raises ``UnsupportedVersionError`` if there is none.

        ``need``: why no lower version will do, and what to do instead.
        """
        theirs = self.ranges.get(api_key)
        why = f": {need}" if need else ""
        if theirs is None:
            raise UnsupportedVersionError(f"The broker {self.peer} does not support {api_name(api_key)}{why}")
        if not self.speaks(api_key, VersionRange(our_min, our_max)):
            raise UnsupportedVersionError(
                f"The broker {self.peer} supports {api_name(api_key)} in versions {theirs[0]} to {theirs[1]}, but "
                f"this client supports versions {our_min} to {our_max}{why}"
            )
        return min(our_max, theirs[1])

    def speaks(self, api_key: int, versions: VersionRange) -> bool:
        """Whether ``pick`` finds a version."""
        theirs = self.ranges.get(api_key)
        return theirs is not None and min(versions.highest, theirs[1]) >= max(versions.lowest, theirs[0])


Handshake: TypeAlias = Generator["RequestPayload | LoginStep[Any]", memoryview, ApiVersions]
"""A generator that yields requests and is sent the bytes after each response's correlation id (``handshake.py``)."""


@dataclass(slots=True, eq=False)
class FrameBuffer:
    """Collects received bytes into frames: a 4-byte size and that many bytes. Holds at most one frame and one read.

    ``limit``: the largest frame in bytes; the owner may change it between two frames.
    """

    _peer: str
    limit: int
    _buffer: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> Iterator[bytearray]:
        """The frames that ``data`` completes, without their sizes. Exhaust it before the next ``feed``.

        Raises ``WrongProtocolError`` for a size no broker sends; the buffer must not be used afterwards.
        """
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= SIZE_BYTES:
            size = int.from_bytes(buffer[start : start + SIZE_BYTES], "big", signed=True)
            if not CORRELATION_ID_BYTES <= size <= self.limit:
                first = bytes(buffer[start : start + SIZE_BYTES])
                raise WrongProtocolError(_foreign(self._peer, first, size, self.limit))
            end = start + SIZE_BYTES + size
            if len(buffer) < end:
                break
            yield buffer[start + SIZE_BYTES : end]
            start = end
        del buffer[:start]


@dataclass(slots=True)
class InFlight:
    """A sent request without a response; ``request`` is None for a step of the handshake."""

    node: Node
    request: Request | None
    api_key: int
    version: int
    correlation_id: int
    sent_at: float
    deadline: float

    def __str__(self) -> str:
        return f"{api_name(self.api_key)} v{self.version}"

    @property
    def doubt(self) -> str:
        """The end of the text about a peer that is silent from the start, as an HTTP server is, which waits for the end
        of a line."""
        is_first = self.request is None and self.api_key == API_KEYS["api_versions"]
        return ": is this the port of a Kafka listener?" if is_first else ""

    def parse(self, body: memoryview) -> object:
        """The response's body. Raises ``NetworkError`` with broker and request for bytes that cannot be read."""
        assert self.request is not None
        try:
            return self.request.parse(self.version, body)
        except Exception as error:  # a parser may raise anything on a peer's bytes
            text = f"{self.node} gave {self} a response that cannot be read: {error}"
            raise NetworkError(text) from error.with_traceback(None)


@dataclass(slots=True, eq=False, repr=False)
class Connection:
    """The requests of one connection. After an exception or its end, only ``close`` may be called.

    CONNECTING, TLS_HANDSHAKE (with TLS), HANDSHAKING (ApiVersions, SASL), READY. From there to REAUTHENTICATING (SASL)
    and back; no request is sent meanwhile, and requests in flight complete. The bytes for the transport are the results
    of ``send``, and of ``take_output`` after ``connected``, ``receive`` and ``reauthenticate``. Times are monotonic ms.
    """

    id: int
    node: Node
    _config: ProducerConfig
    _handshake: Handshake
    setup_deadline: float
    state: ConnectionState = ConnectionState.CONNECTING
    in_flight: deque[InFlight] = field(default_factory=deque)
    unacknowledged: deque[InFlight] = field(default_factory=deque)
    """Requests without a response (acks=0) that are not written yet."""
    stalled: bool = False
    """The transport still holds bytes of the last frame, and no request is sent before they are written. So a slow
    broker fills batches in the accumulator instead of frames in the transport (Java: ``InFlightRequests``)."""
    responded: bool = False
    last_active: float = -math.inf
    api_versions: ApiVersions | None = None
    login_step: LoginStep[Any] | None = None
    """The step that the handshake waits for instead of a response. Call ``login_step_done`` when it is done."""
    reauthenticate_at: float = math.inf
    """The time from which the session is too old for another request."""
    reauthentication_began: float = math.inf
    _login_deadline: float = math.inf
    _authenticating: bool = False
    _tls: TlsLayer | None = None
    _to_send: list[bytes] = field(default_factory=list)
    _unread: int = 0  # bytes of TLS that were added while the transport was stalled
    _frames: FrameBuffer = field(init=False)
    _correlation_id: int = -1

    def __post_init__(self) -> None:
        self._frames = FrameBuffer(f"{self.node.host}:{self.node.port}", MAX_HANDSHAKE_FRAME_BYTES)

    def connected(self, tls: TlsLayer | None, now: float) -> None:
        """The transport is connected; begins the TLS handshake, or without TLS Kafka's."""
        if tls is None:
            self._begin_handshake(now)
            return
        self._tls = tls
        self.state = ConnectionState.TLS_HANDSHAKE
        tls.shake_hands()

    def can_send(self, max_in_flight: int) -> bool:
        return self.state is ConnectionState.READY and not self.stalled and len(self.in_flight) < max_in_flight

    @property
    def in_setup(self) -> bool:
        """Whether ``setup_deadline`` holds: until transport and TLS are established."""
        return self.state is ConnectionState.CONNECTING or self.state is ConnectionState.TLS_HANDSHAKE

    @property
    def is_tls_unheard(self) -> bool:
        """Whether the peer has sent nothing in the TLS handshake, as a listener without TLS, which hangs up."""
        return self.state is ConnectionState.TLS_HANDSHAKE and self._tls is not None and not self._tls.heard

    @property
    def accepted(self) -> bool:
        """Whether the broker has ever accepted this client on this connection."""
        return self.api_versions is not None

    def must_reauthenticate(self, now: float) -> bool:
        """Whether the next request has to wait for ``reauthenticate``."""
        return now >= self.reauthenticate_at and self.state is ConnectionState.READY and not self.stalled

    def reauthenticate(self, handshake: Handshake, now: float) -> None:
        """Begins SASL again, after the requests in flight (KIP-368). Raises ``KafkaError``."""
        self.state = ConnectionState.REAUTHENTICATING
        self.reauthenticate_at = math.inf
        self.reauthentication_began = now
        self._handshake = handshake
        self._advance_handshake(None, now)

    @property
    def awaits(self) -> bool:
        """Whether something after the setup has a deadline: requests or a login."""
        return bool(self.in_flight or self.unacknowledged or self.login_step)

    @property
    def load(self) -> int:
        """The number of requests that have not completed, except for the handshake's."""
        if self.state is ConnectionState.READY:
            return len(self.unacknowledged) + len(self.in_flight)
        return len(self.unacknowledged) + sum(sent.request is not None for sent in self.in_flight)

    def send(self, request: Request, now: float) -> Sequence[Bytes]:
        """The frame to send.

        Raises ``UnsupportedVersionError`` or ``RequestBuildError``; then the request is not in flight.
        """
        if self.state is not ConnectionState.READY or self.api_versions is None:
            raise IllegalStateError(f"{self.node} is not ready for a request: the connection is {self.state.value}")
        version = self.api_versions.pick(request.api_key, *request.versions)
        correlation_id = self._next_correlation_id()
        try:
            buffers = request.build(version, correlation_id, self._config.client_id)
        except Exception as error:
            raise build_error(request.api_key, error) from error
        if self._tls is not None:
            self._tls.write(buffers)
            buffers = (self._tls.take_output(),)
        queue = self.in_flight if request.expects_response else self.unacknowledged
        deadline = now + self._config.request_timeout_ms
        queue.append(InFlight(self.node, request, request.api_key, version, correlation_id, now, deadline))
        self.last_active = now
        return buffers

    def receive(self, data: bytes, now: float) -> Iterator[tuple[InFlight, memoryview]]:
        """The requests that ``data`` completes, each with the bytes after its correlation id.

        Raises ``KafkaError`` for bytes that are not a response to the next request in flight, and for a refused TLS
        handshake, after it has yielded the responses before them.
        """
        self.last_active = now
        for plaintext in (data,) if self._tls is None else self._decrypt(self._tls, data, now):
            for frame in self._frames.feed(plaintext):
                sent = self._request_of(frame)
                body = memoryview(frame).toreadonly()[CORRELATION_ID_BYTES:]
                if sent.request is not None:
                    self.responded = True
                    yield sent, body
                    continue
                self._advance_handshake(body, now)

    def login_step_done(self, now: float) -> None:
        """Continues the handshake. Raises ``KafkaError``."""
        self.login_step = None
        self._login_deadline = math.inf
        self._advance_handshake(None, now)

    def take_output(self) -> Sequence[Bytes]:
        """The bytes to send after connecting and receiving: steps of the handshakes, alerts, key updates.

        Raises ``NetworkError`` for a peer that requests more and more of these messages but reads none.
        """
        if self._tls is None:
            if not self._to_send:
                return ()
            output, self._to_send = self._to_send, []
            return output
        encrypted = self._tls.take_output()
        self._unread = self._unread + len(encrypted) if self.stalled else 0
        if self._unread > _MAX_UNREAD_BYTES:
            raise NetworkError(f"{self.node} requests TLS messages but does not read them")
        return (encrypted,) if encrypted else ()

    def close(self) -> Sequence[Bytes]:
        """The closing bytes: a TLS alert, or close_notify."""
        if self._tls is None:
            return ()
        self._tls.close()
        return (self._tls.take_output(),)

    def next_deadline(self, max_idle_ms: float) -> float:
        """When ``NetworkClient.expire`` must look at this connection (monotonic ms); ``inf`` for never."""
        if self.in_setup:
            return self.setup_deadline
        if not self.awaits:
            return self.last_active + max_idle_ms
        deadline = min(self._login_deadline, self.in_flight[0].deadline if self.in_flight else math.inf)
        return min(deadline, self.unacknowledged[0].deadline) if self.unacknowledged else deadline

    def awaited(self, now: float) -> str | None:
        """The text on what the connection waits for, and for how long; None if it does not wait. Any thread may call
        it."""
        if (step := self.login_step) is not None:
            waited = max(0.0, now - self._login_deadline + self._config.request_timeout_ms)
            return f"The login at {self.node} has waited {waited:.0f} ms for {step.what}"
        first = next(iter((*self.in_flight, *self.unacknowledged)), None)
        if first is None or now < first.sent_at + _NOTICEABLE_MS:
            return None
        return f"{self.node} has not responded to {first} for {now - first.sent_at:.0f} ms{first.doubt}"

    def closed_error(self, reason: str) -> NetworkError:
        """The error of an ended connection, by its state at the end."""
        subject = f"Connection to {self.node}"
        if self.state is ConnectionState.CONNECTING:
            return NetworkError(f"{subject} could not be established: {reason}")
        if self.login_step is not None:
            return NetworkError(f"{subject} ended while this client was waiting for {self.login_step.what}: {reason}")
        if self.state is ConnectionState.REAUTHENTICATING:
            return NetworkError(f"{subject} was lost while this client re-authenticated: {reason}")
        if self.state is not ConnectionState.READY:
            return NetworkError(f"{subject} ended in its handshake: {clause(reason)}. {self._handshake_advice()}")
        if not self.responded and self.load:
            return NetworkError(
                f"{subject} ended before it responded to the first request: {clause(reason)}. A listener that expects "
                "SASL behaves like this: see security.protocol"
            )
        return NetworkError(f"{subject} was lost: {reason}")

    def failed_step(self, error: KafkaError) -> FailedStep | None:
        """The step at which setting up the connection failed; None if it had worked."""
        if self.state is ConnectionState.READY and (self.responded or not self.load):
            return None
        if self.state is ConnectionState.CONNECTING:
            step = ConnectionStep.DNS if UNRESOLVED in str(error) else ConnectionStep.TCP
        elif self.state is ConnectionState.TLS_HANDSHAKE or isinstance(error, SslAuthenticationError):
            step = ConnectionStep.TLS
        elif self._authenticating or isinstance(error, AuthenticationError):
            step = ConnectionStep.SASL
        else:
            # A broker that refuses the client's certificate may hang up after the client's handshake is done.
            hung_up = self._tls is not None and type(error) is NetworkError
            step = ConnectionStep.TLS if hung_up else ConnectionStep.KAFKA
        return FailedStep(step, f"{self.node.host}:{self.node.port}", self.node.id < 0)

    def timeout_error(self, now: float) -> KafkaTimeoutError:
        """The error of the login or the first request that is past its deadline."""
        if self.login_step is not None and self._login_deadline <= now:
            waited = now - self._login_deadline + self._config.request_timeout_ms
            return KafkaTimeoutError(
                f"The connection to {self.node} waited {waited:.0f} ms (request.timeout.ms) for {self.login_step.what}"
            )
        late = next(sent for sent in (*self.in_flight, *self.unacknowledged) if sent.deadline <= now)
        verb = "respond to" if late.request is None or late.request.expects_response else "take"
        waited = now - late.sent_at
        return KafkaTimeoutError(
            f"{self.node} did not {verb} {late} within {waited:.0f} ms (request.timeout.ms){late.doubt}"
        )

    def _handshake_advice(self) -> str:
        if self._authenticating:
            return "A broker that refuses the login may behave like this: see sasl.mechanism and sasl.jaas.config"
        if self._tls is None:
            return "Is it a listener that expects TLS? See security.protocol"
        if not self._tls.heard:
            return "Is it a listener without TLS? See security.protocol"
        return (
            "A broker that requires a client certificate (ssl.client.auth) may behave like this: see "
            "ssl.keystore.location"
        )

    def _decrypt(self, tls: TlsLayer, data: bytes, now: float) -> Iterator[bytes]:
        yield from tls.receive(data)
        if tls.established and self.state is ConnectionState.TLS_HANDSHAKE:
            self._begin_handshake(now)
        if tls.closed_by_peer:
            raise self.closed_error("the broker closed the connection")

    def _begin_handshake(self, now: float) -> None:
        self.state = ConnectionState.HANDSHAKING
        self._advance_handshake(None, now)

    def _advance_handshake(self, body: memoryview | None, now: float) -> None:
        """Continues the handshake. ``body``: a response; None at the beginning and after a login step."""
        try:
            step = next(self._handshake) if body is None else self._handshake.send(body)
            while isinstance(step, LoginStep) and step.done:
                step = next(self._handshake)
        except StopIteration as done:
            self.api_versions = done.value
            self.state = ConnectionState.READY
            self._frames.limit = MAX_FRAME_BYTES
            return
        if isinstance(step, LoginStep):
            self._authenticating = True
            self.login_step = step
            self._login_deadline = now + self._config.request_timeout_ms
        else:
            self._send_handshake_step(step, now)

    def _request_of(self, frame: bytearray) -> InFlight:
        correlation_id = int.from_bytes(frame[:CORRELATION_ID_BYTES], "big", signed=True)
        if not self.in_flight:
            raise WrongProtocolError(
                f"{self.node} sent a frame that no request asked for: is this the port of a Kafka listener?"
            )
        sent = self.in_flight.popleft()
        if sent.correlation_id != correlation_id:
            self.in_flight.appendleft(sent)
            raise NetworkError(
                f"{self.node} responded to request {correlation_id} instead of {sent.correlation_id}: "
                f"responses must come in the order of the requests"
            )
        return sent

    def _send_handshake_step(self, request: RequestPayload, now: float) -> None:
        correlation_id = self._next_correlation_id()
        self._authenticating = request.__api_key__ != API_KEYS["api_versions"]
        try:
            frame = encode_request(request, correlation_id, self._config.client_id)
        except Exception as error:
            raise build_error(request.__api_key__, error) from error
        deadline = now + self._config.request_timeout_ms
        sent = InFlight(self.node, None, request.__api_key__, request.__version__, correlation_id, now, deadline)
        self.in_flight.append(sent)
        self.last_active = now
        if self._tls is None:
            self._to_send.append(frame)
        else:
            self._tls.write((frame,))

    def _next_correlation_id(self) -> int:
        self._correlation_id = 0 if self._correlation_id == _MAX_CORRELATION_ID else self._correlation_id + 1
        return self._correlation_id


def _foreign(peer: str, first: bytes, size: int, limit: int) -> str:
    for opening, server, advice in _FOREIGN_PROTOCOLS:
        if first.startswith(opening):
            return f"{peer} responded like {server}: {advice}"
    until = " until the connection is ready" if limit < MAX_FRAME_BYTES else ""
    return (
        f"{peer} responded with a frame of {size} bytes, which no Kafka broker does "
        f"(the limit is {limit}{until}): is this the port of a Kafka listener?"
    )
