"""The request queue and the handlers that serve it (Kafka: ``RequestChannel``, ``KafkaRequestHandlerPool``).

``num.io.threads`` tasks share one queue, as a broker's I/O threads do: a handler that the script delays is busy while
the others go on, and requests wait when all are busy. A delayed response (acks=all, a Fetch without data) frees its
handler and waits in purgatory. All tasks run on one thread, so state needs no lock.

An ``ApiError`` of a handler is the response in the API's own form; any other exception is UNKNOWN_SERVER_ERROR in that
form, and the connection stays open. A client over its quota gets its response at once, and its connection is read
again when ``throttle_time_ms`` are over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Protocol

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.testing.broker.apis.error_response import error_response
from spark_kafka_sink.testing.broker.apis.metadata import versions_response
from spark_kafka_sink.testing.broker.apis.table import APIS
from spark_kafka_sink.testing.broker.connection import ClientConnection
from spark_kafka_sink.testing.broker.faults import Faults, FaultType
from spark_kafka_sink.testing.broker.idle_meter import IdleMeter
from spark_kafka_sink.testing.broker.purgatory import Purgatory
from spark_kafka_sink.testing.broker.request_context import (
    BrokerState,
    Delayed,
    HaltError,
    HandlerResult,
    HangupError,
    LastResponse,
    RequestContext,
)
from spark_kafka_sink.testing.broker.request_log import RequestLog
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.wire import (
    API_NAMES,
    Fields,
    MalformedRequestError,
    ReceivedRequest,
    RequestHead,
    encode_response,
    read_head,
    read_request,
)

_log = logging.getLogger(__name__)
_CLOCK: Final = SystemClock()
_PROBE_VERSION: Final = 0
"""The version of the ApiVersions response when the requested version is not offered (KIP-511)."""

_EMPTIED: Final[Mapping[str, Fields]] = MappingProxyType({"Fetch": {"responses": [], "node_endpoints": []}})
"""The fields that a quota empties. Throttled requests of other APIs get a complete response."""


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A frame in the request queue, and the future its connection waits for."""

    connection: ClientConnection
    frame: bytes
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class _Handled:
    """A handled request and its response. ``request``: None for ApiVersions in a version that is not offered.

    ``version``: the response's version, if it is not the request's.
    """

    head: RequestHead
    request: ReceivedRequest | None
    response: HandlerResult
    version: int | None = None


class NodeHalt(Protocol):
    """An object that stops nodes."""

    def halt(self, node: int) -> None:
        """Cut the node's connections and stop listening; no effect on a node that is down."""


class HandlerPool:
    """The request queue and its handlers. Loop thread only."""

    def __init__(
        self, node_halt: NodeHalt, state: BrokerState, faults: Faults, purgatory: Purgatory, log: RequestLog
    ) -> None:
        handlers = int(state.cluster.config["num.io.threads"])
        self.idle = IdleMeter(handlers)
        self._node_halt = node_halt
        self._handlers = range(handlers)
        self._state = state
        self._faults = faults
        self._purgatory = purgatory
        self._log = log
        self._queue: asyncio.Queue[_Exchange] = asyncio.Queue()
        self._responding: set[asyncio.Task[None]] = set()

    async def serve(self, connection: ClientConnection, frame: bytes) -> None:
        """Queue a frame; returns when the connection may be read again."""
        exchange = _Exchange(connection, frame, asyncio.get_running_loop().create_future())
        self._queue.put_nowait(exchange)
        await exchange.done

    async def close(self) -> None:
        """Cancel the responses that are not written yet; their connections are closed already."""
        for task in self._responding:
            task.cancel()
        await asyncio.gather(*self._responding, return_exceptions=True)

    def start(self) -> list[asyncio.Task[None]]:
        """The handlers, as tasks that run until they are cancelled."""
        return [asyncio.create_task(self._run_handler()) for _ in self._handlers]

    async def _run_handler(self) -> None:
        while True:
            self.idle.handler_waits()
            exchange = await self._queue.get()
            self.idle.handler_works()
            responding = asyncio.create_task(self._respond_later(exchange, await self._handled(exchange)))
            self._responding.add(responding)
            responding.add_done_callback(self._responding.discard)

    async def _handled(self, exchange: _Exchange) -> _Handled | None:
        """The handled request; None if the connection must be closed."""
        try:
            head = read_head(exchange.frame)
            request = self._parsed(exchange, head)
        except MalformedRequestError as cause:
            _log.debug("closing connection %d: %s", exchange.connection.number, cause)
            return None
        if request is None:
            response: HandlerResult = versions_response(
                self._state.release_of(exchange.connection.node), ErrorCode.unsupported_version
            )
            return _Handled(head, None, response, version=_PROBE_VERSION)
        try:
            return await self._handled_request(exchange.connection, head, request)
        except HaltError as cause:
            _log.error("shutdown of node %d: %s", request.node, cause)
            self._node_halt.halt(request.node)
        except HangupError as cause:
            _log.debug("closing connection %d: %s", exchange.connection.number, cause)
        except Exception:
            return _failed(head, request)
        return None

    def _parsed(self, exchange: _Exchange, head: RequestHead) -> ReceivedRequest | None:
        """The parsed request. None for an ApiVersions request of a version that is not offered, which gets a response,
        too."""
        api = API_NAMES.get(head.api_key)
        offered = self._state.release_of(exchange.connection.node).versions
        if api is None or api not in offered or head.version not in offered[api]:
            if api == "ApiVersions":
                return None
            raise MalformedRequestError(f"API key {head.api_key} v{head.version} is not offered")
        connection = exchange.connection
        if not connection.session.allows(api):
            raise MalformedRequestError(f"{api} before the login")
        client_id, body = read_request(exchange.frame, head)
        request = ReceivedRequest(
            api, head.version, head.correlation_id, client_id, connection.number, connection.node, body
        )
        self._log.add(request)
        return request

    async def _handled_request(
        self, connection: ClientConnection, head: RequestHead, request: ReceivedRequest
    ) -> _Handled:
        action = self._faults.take(FaultType.RUN, request)
        if action is not None and action.action is not None:
            action.action()
        delay = self._faults.take(FaultType.DELAY, request)
        if delay is not None:
            await asyncio.sleep(delay.amount / 1000)
        if self._faults.take(FaultType.DROP_BEFORE, request) is not None:
            raise HangupError("the script drops the request")
        context = RequestContext(
            request, connection.session, self._state, _CLOCK.epoch_ms(), self._faults.answers(request)
        )
        try:
            response = APIS[request.api].handler(context)
        except ApiError as refused:
            response = error_response(request, refused.error)
        self._purgatory.check()
        if isinstance(response, Delayed):
            return _Handled(head, request, response.try_complete() or response)
        return _Handled(head, request, response)

    async def _respond_later(self, exchange: _Exchange, handled: _Handled | None) -> None:
        """Write the response when it is due, then unmute the connection."""
        try:
            if handled is not None and isinstance(handled.response, Delayed):
                handled = await self._completed(handled, handled.response)
            if handled is None:
                await exchange.connection.close_after()
                return
            throttle_ms = self._throttle_ms(exchange, handled.request)
            if isinstance(handled.response, LastResponse):
                await self._write(exchange.connection, handled, handled.response.fields, throttle_ms)
                await exchange.connection.close_after()
            elif isinstance(handled.response, dict):
                await self._write(exchange.connection, handled, handled.response, throttle_ms)
            await asyncio.sleep(throttle_ms / 1000)
        except ConnectionError:
            exchange.connection.abort()
        except Exception:
            _log.exception("TestBroker could not respond; closing connection %d", exchange.connection.number)
            exchange.connection.abort()
        finally:
            if not exchange.done.done():
                exchange.done.set_result(None)

    async def _completed(self, handled: _Handled, delayed: Delayed) -> _Handled | None:
        try:
            return replace(handled, response=await self._purgatory.watch(delayed))
        except Exception:
            return _failed(handled.head, handled.request)

    def _throttle_ms(self, exchange: _Exchange, request: ReceivedRequest | None) -> int:
        """The longer of the client's quota and the script's throttling."""
        if request is None:
            return 0
        fault = self._faults.take(FaultType.THROTTLE, request)
        scripted_ms = 0 if fault is None else fault.amount
        if request.api != "Produce":
            return scripted_ms
        node, size = request.node, len(exchange.frame)
        return max(scripted_ms, self._state.quotas.produced(node, request.client_id, size, _CLOCK.epoch_ms()))

    async def _write(self, connection: ClientConnection, handled: _Handled, response: Fields, throttle_ms: int) -> None:
        request = handled.request
        if request is None:
            await connection.write(encode_response(handled.head, response, version=handled.version))
            return
        await self._delay_answer(request)
        if self._faults.take(FaultType.DROP_AFTER, request) is not None:
            await connection.close_after()
            return
        if self._faults.take(FaultType.LOSE_ANSWER, request) is not None:
            return
        if throttle_ms:
            response = {**response, **_EMPTIED.get(request.api, {}), "throttle_time": throttle_ms}
        await self._write_frame(connection, request, encode_response(handled.head, response))

    async def _delay_answer(self, request: ReceivedRequest) -> None:
        delay = self._faults.take(FaultType.DELAY_ANSWER, request)
        if delay is not None:
            await asyncio.sleep(delay.amount / 1000)

    async def _write_frame(self, connection: ClientConnection, request: ReceivedRequest, frame: bytes) -> None:
        mangle = self._faults.take(FaultType.MANGLE, request)
        if mangle is not None and mangle.change is not None:
            frame = mangle.change(frame)
        cut = self._faults.take(FaultType.CUT, request)
        if cut is not None:
            await connection.close_after(frame[: cut.amount])
        elif self._faults.take(FaultType.REORDER, request) is not None:
            connection.held_back = frame
        else:
            await connection.write(frame)


def _failed(head: RequestHead, request: ReceivedRequest | None) -> _Handled | None:
    """The response to a request whose handler raised; None if its connection must be closed."""
    _log.exception("unexpected error handling request %s", request)
    response = None if request is None else error_response(request, ErrorCode.unknown_server_error)
    return None if response is None else _Handled(head, request, response)
