"""A transport in memory: a test sees every request and decides on each response, and its time."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from io import BytesIO
from typing import TYPE_CHECKING, Any

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from spark_kafka_sink.network.messages import API_KEYS, api_name, schema, with_plain_times
from spark_kafka_sink.network.name_lookup import AddressList
from spark_kafka_sink.network.selector import Closed, Connected, Event, Received, Written
from spark_kafka_sink.testing.broker.wire import build

if TYPE_CHECKING:
    from kio.static.protocol import ResponsePayload
    from typing_extensions import Buffer

_HEADER = struct.Struct(">hhih")
_NAMES = {key: name for name, key in API_KEYS.items()}


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request as it left: ``body`` begins after the request header."""

    connection_id: int
    api: str
    version: int
    correlation_id: int
    client_id: str
    body: bytes

    @property
    def module(self) -> Any:
        """kio's module of this API version, to build a response from."""
        return schema(self.api, self.version)

    def response(self, **fields: object) -> Any:
        """The response with these fields, nested ones as dicts; the others have their defaults."""
        return build(with_plain_times(load_response_schema(API_KEYS[self.api], self.version)), fields)

    def entity(self) -> Any:
        """The request as kio reads it."""
        request_type = getattr(self.module, f"{api_name(API_KEYS[self.api])}Request")
        return entity_reader(request_type)(self.body, 0)[0]


class ScriptedTransport:
    """Stands in for ``Selector``. Connections stay pending, and requests without response, until the test acts.

    ``answer``: called with each request at once; its result is the response, None leaves the request to the test.
    ``accept_all``: connections are established as soon as they are asked for.
    """

    def __init__(
        self, answer: Callable[[SentRequest], ResponsePayload | None] | None = None, accept_all: bool = False
    ) -> None:
        self.answer = answer
        self.accept_all = accept_all
        self.addresses: dict[int, tuple[str, int]] = {}
        self.open: set[int] = set()
        self.requests: deque[SentRequest] = deque()
        self.wakeups = 0
        self.polled: list[float] = []
        self.is_shut_down = False
        self.stalled: set[int] = set()
        self._unread: dict[int, bytes] = {}
        self._events: list[Event] = []

    def connect(self, connection_id: int, host: str, port: int, addresses: AddressList | None = None) -> None:
        assert connection_id not in self.addresses, "a connection id was used twice"
        self.addresses[connection_id] = host, port
        self.open.add(connection_id)
        if self.accept_all:
            self.accept(connection_id)

    def send(self, connection_id: int, buffers: Sequence[Buffer]) -> bool:
        if connection_id not in self.open:
            return False
        data = self._unread.get(connection_id, b"") + b"".join(buffers)
        while len(data) >= 4 and len(data) >= 4 + (size := int.from_bytes(data[:4], "big")):
            self._take(connection_id, data[4 : 4 + size])
            data = data[4 + size :]
        self._unread[connection_id] = data
        return connection_id not in self.stalled

    def close(self, connection_id: int) -> None:
        self.open.discard(connection_id)
        self._events = [event for event in self._events if event.connection_id != connection_id]

    def poll(self, timeout_ms: float) -> list[Event]:
        self.polled.append(timeout_ms)
        events, self._events = self._events, []
        return events

    def wakeup(self) -> None:
        self.wakeups += 1

    def shutdown(self) -> None:
        self.is_shut_down = True
        self.open.clear()

    # Called by tests.

    def accept(self, connection_id: int) -> None:
        """The connection is established."""
        self._events.append(Connected(connection_id))

    def drop(self, connection_id: int, reason: str) -> None:
        """The connection is refused, or lost."""
        self.open.discard(connection_id)
        self._events.append(Closed(connection_id, reason))

    def receive(self, connection_id: int, data: bytes) -> None:
        """Any bytes from the peer."""
        self._events.append(Received(connection_id, data))

    def written(self, connection_id: int) -> None:
        """A connection in ``stalled`` takes bytes again."""
        self.stalled.discard(connection_id)
        self._events.append(Written(connection_id))

    def respond(self, request: SentRequest, response: ResponsePayload) -> None:
        self.receive(request.connection_id, response_frame(request.correlation_id, response))

    def last_connection(self) -> int:
        return max(self.addresses)

    def _take(self, connection_id: int, frame: bytes) -> None:
        api_key, version, correlation_id, client_size = _HEADER.unpack_from(frame)
        body = _HEADER.size + client_size
        client_id = frame[_HEADER.size : body].decode()
        api = _NAMES[api_key]
        flexible = getattr(schema(api, version), f"{api_name(api_key)}Request").__flexible__
        request = SentRequest(connection_id, api, version, correlation_id, client_id, frame[body + flexible :])
        response = self.answer(request) if self.answer is not None else None
        if response is not None:
            self.respond(request, response)
        else:
            self.requests.append(request)


def response_frame(correlation_id: int, response: ResponsePayload) -> bytes:
    """A whole frame as a broker would send it."""
    buffer = BytesIO()
    entity_writer(type(response))(buffer, response)
    header = correlation_id.to_bytes(4, "big") + (b"\x00" if response.__header_schema__.__flexible__ else b"")
    body = header + buffer.getvalue()
    return len(body).to_bytes(4, "big") + body


def api_versions_response(request: SentRequest, ranges: dict[int, tuple[int, int]]) -> ResponsePayload:
    """The ApiVersions response of a broker that supports ``ranges`` (API key to lowest and highest version)."""
    response_module = request.module.response
    keys = tuple(
        response_module.ApiVersion(api_key=key, min_version=low, max_version=high)
        for key, (low, high) in ranges.items()
    )
    throttle = {"throttle_time": timedelta(0)} if request.version else {}
    response: ResponsePayload = response_module.ApiVersionsResponse(
        error_code=ErrorCode.none, api_keys=keys, **throttle
    )
    return response
