"""The request queue and the handlers that serve it (Kafka: ``RequestChannel``, ``KafkaRequestHandlerPool``).

``num.io.threads`` tasks share one queue, as a broker's I/O threads do: a handler that the script delays is busy, the
others go on, and with all of them busy requests wait. A delayed response (acks=all, a Fetch without data) frees its
handler and waits in purgatory. All tasks run on one thread, so state needs no lock.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.apis.api_versions import versions_response
from spark_kafka_sink.testing.broker.apis.table import HANDLERS
from spark_kafka_sink.testing.broker.call import BrokerState, Call, Delayed, HangupError, Response
from spark_kafka_sink.testing.broker.connection import Connection
from spark_kafka_sink.testing.broker.faults import Faults, Kind
from spark_kafka_sink.testing.broker.purgatory import Purgatory
from spark_kafka_sink.testing.broker.versions import API_OF_KEY
from spark_kafka_sink.testing.broker.wire import (
    Fields,
    MalformedRequestError,
    Request,
    RequestHead,
    encode_response,
    read_head,
    read_request,
)

_log = logging.getLogger(__name__)
_PROBE_VERSION: Final = 0
"""Version of the ApiVersions response when the requested one is not offered (KIP-511)."""

_EMPTIED: Final[Mapping[str, Fields]] = MappingProxyType({"Fetch": {"responses": [], "node_endpoints": []}})
"""Fields that a quota empties. Throttled requests of all other APIs get a complete response."""


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A frame in the request queue, and the future its connection waits for."""

    connection: Connection
    frame: bytes
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class _Handled:
    """A handled request and its response. ``request`` None: ApiVersions in a version that is not offered."""

    head: RequestHead
    request: Request | None
    response: Response
    version: int | None = None


class HandlerPool:
    """Loop thread only."""

    def __init__(
        self, state: BrokerState, faults: Faults, purgatory: Purgatory, seen: Callable[[Request], None]
    ) -> None:
        self._state = state
        self._faults = faults
        self._purgatory = purgatory
        self._seen = seen
        self._queue: asyncio.Queue[_Exchange] = asyncio.Queue()
        self._responding: set[asyncio.Task[None]] = set()

    async def serve(self, connection: Connection, frame: bytes) -> None:
        """Queue a frame; returns when the connection may be read again."""
        exchange = _Exchange(connection, frame, asyncio.get_running_loop().create_future())
        self._queue.put_nowait(exchange)
        await exchange.done

    async def close(self) -> None:
        """Cancel the responses that are not written yet; their connections are closed already."""
        for task in self._responding:
            task.cancel()
        await asyncio.gather(*self._responding, return_exceptions=True)

    async def run_handler(self) -> None:
        """One handler of the pool, for ever."""
        while True:
            exchange = await self._queue.get()
            responding = asyncio.create_task(self._respond_later(exchange, await self._handled(exchange)))
            self._responding.add(responding)
            responding.add_done_callback(self._responding.discard)

    async def _handled(self, exchange: _Exchange) -> _Handled | None:
        """What the handler did; None when the connection is to be closed."""
        try:
            head = read_head(exchange.frame)
            request = self._parsed(exchange, head)
            if request is None:
                response: Response = versions_response(self._state.release, ErrorCode.unsupported_version)
                return _Handled(head, None, response, version=_PROBE_VERSION)
            return await self._handled_request(head, request)
        except (HangupError, MalformedRequestError) as cause:
            _log.debug("closing connection %d: %s", exchange.connection.number, cause)
        except Exception:
            _log.exception("a handler of TestBroker failed; closing connection %d", exchange.connection.number)
        return None

    def _parsed(self, exchange: _Exchange, head: RequestHead) -> Request | None:
        """None for an ApiVersions request of a version that is not offered, which gets a response too."""
        api = API_OF_KEY.get(head.api_key)
        offered = self._state.release.versions
        if api is None or api not in offered or head.version not in offered[api]:
            if api == "ApiVersions":
                return None
            raise MalformedRequestError(f"API key {head.api_key} v{head.version} is not offered")
        client_id, body = read_request(exchange.frame, head)
        connection = exchange.connection
        request = Request(api, head.version, head.correlation_id, client_id, connection.number, connection.node, body)
        self._seen(request)
        return request

    async def _handled_request(self, head: RequestHead, request: Request) -> _Handled:
        action = self._faults.take(Kind.RUN, request)
        if action is not None and action.action is not None:
            action.action()
        delay = self._faults.take(Kind.DELAY, request)
        if delay is not None:
            await asyncio.sleep(delay.amount / 1000)
        if self._faults.take(Kind.DROP_BEFORE, request) is not None:
            raise HangupError("the script drops the request")
        call = Call(request, self._state, time.time_ns() // 1_000_000, self._faults.answers(request))
        response = HANDLERS[request.api](call)
        self._purgatory.check()
        if isinstance(response, Delayed):
            return _Handled(head, request, response.try_complete() or response)
        return _Handled(head, request, response)

    async def _respond_later(self, exchange: _Exchange, handled: _Handled | None) -> None:
        """Write the response when it is due, then unmute the connection."""
        try:
            if handled is None:
                await exchange.connection.close_after()
            elif isinstance(handled.response, Delayed):
                await self._write(exchange.connection, handled, await self._purgatory.watch(handled.response))
            elif handled.response is not None:
                await self._write(exchange.connection, handled, handled.response)
        except ConnectionError:
            exchange.connection.abort()
        except Exception:
            _log.exception("TestBroker could not respond; closing connection %d", exchange.connection.number)
            exchange.connection.abort()
        finally:
            if not exchange.done.done():
                exchange.done.set_result(None)

    async def _write(self, connection: Connection, handled: _Handled, response: Fields) -> None:
        request = handled.request
        if request is None:
            await connection.write(encode_response(handled.head, response, version=handled.version))
            return
        await self._delay_answer(request)
        if self._faults.take(Kind.DROP_AFTER, request) is not None:
            await connection.close_after()
            return
        if self._faults.take(Kind.LOSE_ANSWER, request) is not None:
            return
        throttle = self._faults.take(Kind.THROTTLE, request)
        if throttle is not None:
            response = {**response, **_EMPTIED.get(request.api, {}), "throttle_time": throttle.amount}
        await self._write_frame(connection, request, encode_response(handled.head, response))
        if throttle is not None:
            await asyncio.sleep(throttle.amount / 1000)

    async def _delay_answer(self, request: Request) -> None:
        delay = self._faults.take(Kind.DELAY_ANSWER, request)
        if delay is not None:
            await asyncio.sleep(delay.amount / 1000)

    async def _write_frame(self, connection: Connection, request: Request, frame: bytes) -> None:
        mangle = self._faults.take(Kind.MANGLE, request)
        if mangle is not None and mangle.change is not None:
            frame = mangle.change(frame)
        cut = self._faults.take(Kind.CUT, request)
        if cut is not None:
            await connection.close_after(frame[: cut.amount])
        elif self._faults.take(Kind.REORDER, request) is not None:
            connection.held_back = frame
        else:
            await connection.write(frame)
