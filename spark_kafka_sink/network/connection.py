"""One connection to one broker, without I/O and without a clock: bytes in, responses out, in the order of sending."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from spark_kafka_sink.errors import IllegalStateError, KafkaTimeoutError, NetworkError, WrongProtocolError
from spark_kafka_sink.model import Node
from spark_kafka_sink.network.codec import api_name, encode_request
from spark_kafka_sink.network.frames import CORRELATION_ID_BYTES, FrameBuffer
from spark_kafka_sink.network.handshake import ApiVersions, Handshake
from spark_kafka_sink.network.requests import Request
from spark_kafka_sink.network.transport import Bytes

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload

_MAX_CORRELATION_ID = 2**31 - 1


class ConnectionState(Enum):
    """Where a connection stands. It only moves forward, and ends by being dropped."""

    CONNECTING = "connecting"
    HANDSHAKING = "handshaking"
    READY = "ready"


@dataclass(slots=True)
class InFlight:
    """A request under way; ``request`` is None for a step of the handshake."""

    node: Node
    request: Request | None
    api_key: int
    version: int
    correlation_id: int
    sent_at: float
    deadline: float

    def __str__(self) -> str:
        return f"{api_name(self.api_key)} v{self.version}"

    def parse(self, body: memoryview) -> object:
        """The answer; a ``NetworkError`` that names broker and request when ``body`` is none."""
        assert self.request is not None
        try:
            return self.request.parse(self.version, body)
        except Exception as error:  # the bytes are the peer's: they may make a parser raise anything
            text = f"{self.node} gave {self} an answer that cannot be read: {error}"
            raise NetworkError(text) from error.with_traceback(None)


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    client_id: str
    request_timeout_ms: float


class Connection:
    """What is said on one connection. After an exception, and after its end, it is of no more use.

    ``stalled``: the transport still holds bytes of the last frame; nothing more is sent before they are written, so
    a slow broker makes batches grow in the accumulator and not frames in the transport (as in Java's InFlightRequests).
    """

    __slots__ = (
        "_config",
        "_correlation_id",
        "_frames",
        "_handshake",
        "answered",
        "api_versions",
        "id",
        "in_flight",
        "last_active",
        "node",
        "setup_deadline",
        "stage",
        "stalled",
        "to_send",
        "unacknowledged",
    )

    def __init__(
        self, connection_id: int, node: Node, config: ConnectionConfig, handshake: Handshake, setup_deadline: float
    ) -> None:
        self.id = connection_id
        self.node = node
        self.stage = ConnectionState.CONNECTING
        self.setup_deadline = setup_deadline
        self.in_flight: deque[InFlight] = deque()
        self.unacknowledged: deque[InFlight] = deque()
        self.to_send: list[bytes] = []
        self.stalled = False
        self.answered = False
        self.last_active = -math.inf
        self.api_versions: ApiVersions | None = None
        self._config = config
        self._handshake = handshake
        self._frames = FrameBuffer(f"{node.host}:{node.port}")
        self._correlation_id = -1

    def connected(self, now: float) -> bytes:
        """The connection is established: the first frame to send."""
        self.stage = ConnectionState.HANDSHAKING
        return self._handshake_frame(next(self._handshake), now)

    def can_send(self, max_in_flight: int) -> bool:
        return self.stage is ConnectionState.READY and not self.stalled and len(self.in_flight) < max_in_flight

    @property
    def load(self) -> int:
        """Requests that have not completed (the handshake's own not counted)."""
        return len(self.unacknowledged) + (len(self.in_flight) if self.stage is ConnectionState.READY else 0)

    def send(self, request: Request, now: float) -> Sequence[Bytes]:
        """The frame to send for ``request``. Raises ``UnsupportedVersionError``; nothing is in flight then."""
        if self.stage is not ConnectionState.READY or self.api_versions is None:
            raise IllegalStateError(f"{self.node} is not ready for a request: the connection is {self.stage.value}")
        version = self.api_versions.pick(request.api_key, *request.versions)
        correlation_id = self._next_correlation_id()
        buffers = request.build(version, correlation_id, self._config.client_id)
        timeout = self._config.request_timeout_ms if request.timeout_ms is None else request.timeout_ms
        queue = self.in_flight if request.expects_response else self.unacknowledged
        queue.append(InFlight(self.node, request, request.api_key, version, correlation_id, now, now + timeout))
        self.last_active = now
        return buffers

    def receive(self, data: bytes, now: float) -> Iterator[tuple[InFlight, memoryview]]:
        """The requests that ``data`` answers, each with what follows its correlation id.

        What it leaves in ``to_send`` is to be sent then. Raises a ``KafkaError`` at bytes that cannot be a broker's
        answer to what was asked; what came before them has been given out.
        """
        self.last_active = now
        for frame in self._frames.feed(data):
            sent = self._answered_request(frame)
            body = memoryview(frame).toreadonly()[CORRELATION_ID_BYTES:]
            if sent.request is not None:
                self.answered = True
                yield sent, body
                continue
            try:
                self.to_send.append(self._handshake_frame(self._handshake.send(body), now))
            except StopIteration as done:
                self.api_versions = done.value
                self.stage = ConnectionState.READY

    def next_deadline(self, max_idle_ms: float) -> float:
        """The moment (ms) at which ``expire`` has something to say; ``inf`` when nothing can be late."""
        if self.stage is ConnectionState.CONNECTING:
            return self.setup_deadline
        if not self.in_flight and not self.unacknowledged:
            return self.last_active + max_idle_ms
        deadline = math.inf
        for queue in (self.in_flight, self.unacknowledged):
            for sent in queue:
                if sent.deadline < deadline:
                    deadline = sent.deadline
        return deadline

    def closed_error(self, reason: str) -> NetworkError:
        """What the end of this connection means, by how far it had come."""
        subject = f"Connection to node {self.node.id} ({self.node.host}:{self.node.port})"
        if self.stage is ConnectionState.CONNECTING:
            return NetworkError(f"{subject} could not be established: {reason}")
        if self.stage is ConnectionState.HANDSHAKING:
            return NetworkError(f"{subject} ended in its handshake: {reason}. Is it a listener that expects TLS?")
        if not self.answered and self.load:
            return NetworkError(
                f"{subject} ended before it answered the first request: {reason}. "
                f"A listener that expects SASL does that: see security.protocol"
            )
        return NetworkError(f"{subject} was lost: {reason}")

    def timeout_error(self, now: float) -> KafkaTimeoutError:
        """For the first request that is late."""
        late = next(sent for sent in (*self.in_flight, *self.unacknowledged) if sent.deadline <= now)
        verb = "answer" if late.request is None or late.request.expects_response else "take"
        waited = now - late.sent_at
        return KafkaTimeoutError(f"{self.node} did not {verb} {late} within {waited:.0f} ms (request.timeout.ms)")

    def _answered_request(self, frame: bytearray) -> InFlight:
        correlation_id = int.from_bytes(frame[:CORRELATION_ID_BYTES], "big", signed=True)
        if not self.in_flight:
            raise WrongProtocolError(
                f"{self.node} sent a frame though nothing was asked: is this the port of a Kafka listener?"
            )
        sent = self.in_flight.popleft()
        if sent.correlation_id != correlation_id:
            self.in_flight.appendleft(sent)
            raise NetworkError(
                f"{self.node} answered request {correlation_id} instead of {sent.correlation_id}: "
                f"answers must come in the order of the requests"
            )
        return sent

    def _handshake_frame(self, request: RequestPayload, now: float) -> bytes:
        correlation_id = self._next_correlation_id()
        frame = encode_request(request, correlation_id, self._config.client_id)
        deadline = now + self._config.request_timeout_ms
        sent = InFlight(self.node, None, request.__api_key__, request.__version__, correlation_id, now, deadline)
        self.in_flight.append(sent)
        self.last_active = now
        return frame

    def _next_correlation_id(self) -> int:
        self._correlation_id = 0 if self._correlation_id == _MAX_CORRELATION_ID else self._correlation_id + 1
        return self._correlation_id
