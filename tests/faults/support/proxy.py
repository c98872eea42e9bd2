"""A TCP proxy that a test puts between a client and one broker: it cuts or silences connections at chosen bytes, and
delivers a request late."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType, TracebackType
from typing import Final, Self

from spark_kafka_sink.network.name_lookup import AddressList
from spark_kafka_sink.network.selector import Selector
from spark_kafka_sink.testing.broker.loop_thread import LoopThread

LOOPBACK: Final = "127.0.0.1"
_READ_BYTES: Final = 64 * 1024

# A request begins with: size, API key, API version, correlation id. A response: size, correlation id.
_REQUEST_HEAD: Final = 12
_RESPONSE_HEAD: Final = 8

# What of a Produce request is looked for in later ones, in bytes from its end: its last records, without tagged fields.
# It is less than the smallest batch, because batches may come in another order then.
_PRODUCE: Final = 0
_PRODUCE_END: Final = 60, 8

Address = tuple[str, int]


class Direction(Enum):
    TO_BROKER = "requests"
    TO_CLIENT = "responses"


class Server:
    """Listens on 127.0.0.1 and serves every connection, from ``__enter__`` to ``__exit__``, on a thread of its own."""

    def __init__(self) -> None:
        self._serving: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread = LoopThread(type(self).__name__)
        self._server = self._thread.run(asyncio.start_server(self._accepted, LOOPBACK, 0))
        self.address: Address = self._server.sockets[0].getsockname()[:2]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.run(self._close())
        self._thread.stop()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self.serve(reader, writer)
        except (OSError, asyncio.CancelledError):
            return  # nothing listens there, or this is closed (Python 3.11 logs a cancelled server task as an error)
        finally:
            self._serving.discard(task)

    async def _close(self) -> None:
        self._server.close()
        serving = tuple(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


class Proxy(Server):
    """Passes every connection on to ``broker``.

    A broker advertises its own address, so clients would bypass the proxy: pass the client's selector to
    ``redirected``. Methods may be called from any thread.
    """

    def __init__(self, broker: Address) -> None:
        super().__init__()
        self.broker = broker
        self._lines: set[_Line] = set()
        self._cuts = _Cuts()

    def cut(self, direction: Direction, after_bytes: int) -> None:
        """Cut the line that carries the next bytes in this direction once ``after_bytes`` of them have passed."""
        self._thread.call(lambda: self._cuts.after.__setitem__(direction, after_bytes))

    def cut_request(self, api_key: int, direction: Direction, parted: bool = False) -> None:
        """Cut the line that carries the next request of this API: within the request, or before its response, when
        the broker has sent one. ``parted``: every other line, too, and no new one works until ``heal``.
        """

        def cut_request() -> None:
            self._cuts.requests[direction] = api_key
            self._cuts.parting = parted

        self._thread.call(cut_request)

    def part(self) -> None:
        """Cut every line there is; no new one works until ``heal``."""

        def part() -> None:
            self._cuts.parted = True
            self._end_what_is_parted()

        self._thread.call(part)

    def heal(self) -> None:
        """New lines work again, and nothing that was asked for before happens any more: no cut, and no request is held
        back. One that is, is dropped; its client has given it up, or does so when its line stays silent."""
        self._thread.call(self._cuts.clear)

    def hold_request(self, api_key: int) -> None:
        """Hold the next request of this API back until ``deliver``, and silence its line: the client's request times
        out, and it asks again on another line."""
        self._thread.call(lambda: setattr(self._cuts, "hold", api_key))

    @property
    def holds(self) -> bool:
        """Whether a request is held back."""
        return self._thread.call(lambda: self._cuts.held is not None)

    @property
    def is_repeated(self) -> bool:
        """Whether the request that is held back has come once more, in one piece. A Produce request may come with other
        batches then; it counts as soon as the rows at its end come."""
        return self._thread.call(lambda: self._cuts.held is not None and self._cuts.repeated)

    def deliver(self) -> bytes:
        """Pass on the request that is held back, on a connection of its own. Returns the response, without its size."""
        return self._thread.run(self._deliver())

    def versions(self, api_key: int) -> set[int]:
        """Those in which this API has been asked for so far."""
        return self._thread.call(lambda: {version for key, version in self._cuts.seen if key == api_key})

    @property
    def is_cut(self) -> bool:
        """Whether no cut that was asked for is still to come: each has happened, or ``heal`` has taken it back."""
        return self._thread.call(lambda: not (self._cuts.after or self._cuts.requests))

    def silence(self) -> int:
        """Stop passing bytes through the present lines without closing them: half-open connections.

        Returns their number. New lines work.
        """

        def silence() -> int:
            for line in self._lines:
                line.silent = True
            return len(self._lines)

        return self._thread.call(silence)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._cuts.parted:
                return
            line = _Line((reader, writer), await asyncio.open_connection(*self.broker), self._cuts)
            self._lines.add(line)
            await line.run()
            self._lines.discard(line)
            self._end_what_is_parted()
        finally:
            writer.transport.abort()

    def _end_what_is_parted(self) -> None:
        if self._cuts.parted:
            for line in self._lines:
                line.end()

    async def _deliver(self) -> bytes:
        request, self._cuts.held = self._cuts.held, None
        if request is None:
            raise ValueError("no request is held back")
        reader, writer = await asyncio.open_connection(*self.broker)
        try:
            writer.write(request)
            return await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        finally:
            writer.transport.abort()


@dataclass(slots=True)
class _Cuts:
    """Cuts that have not happened yet, and requests ``seen``: API keys and versions of requests.

    ``hold``: API key of the request to hold back next; ``arriving``: the line on which its bytes still come; ``held``:
    the request that is held back, and ``repeated``, whether it has come again. Loop thread only.
    """

    after: dict[Direction, int] = field(default_factory=dict)
    requests: dict[Direction, int] = field(default_factory=dict)
    parting: bool = False
    parted: bool = False
    seen: set[tuple[int, int]] = field(default_factory=set)
    hold: int | None = None
    arriving: _Line | None = None
    held: bytes | None = None
    repeated: bool = False

    def clear(self) -> None:
        self.after.clear()
        self.requests.clear()
        self.parted = False
        self.hold = self.arriving = self.held = None

    def note(self, head: bytes, body: bytes) -> None:
        """A request that passes."""
        self.seen.add((int.from_bytes(head[4:6]), int.from_bytes(head[6:8])))
        if self.held is None or head[4:8] != self.held[4:8]:
            return
        if int.from_bytes(head[4:6]) == _PRODUCE and len(self.held) > _PRODUCE_END[0]:
            self.repeated |= self.held[-_PRODUCE_END[0] : -_PRODUCE_END[1]] in body
        else:
            self.repeated |= self.held[_REQUEST_HEAD:] == body

    def happened(self, direction: Direction) -> None:
        del self.requests[direction]
        self.parted = self.parting


class _Frames:
    """Where the heads of Kafka's frames end in a stream of bytes."""

    def __init__(self, head_size: int) -> None:
        self._head_size = head_size
        self._head = b""
        self._body = 0

    def heads(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Each head that ends in ``data``, the stream's next bytes, and the offset behind it."""
        at = 0
        while at < len(data):
            step = min(self._body or self._head_size - len(self._head), len(data) - at)
            if self._body:
                self._body -= step
            else:
                self._head += data[at : at + step]
            at += step
            if len(self._head) == self._head_size:
                head, self._head = self._head, b""
                self._body = max(4 + int.from_bytes(head[:4]) - self._head_size, 0)
                yield at, head


class _Line:
    """One connection of a client and the one to the broker that belongs to it. Loop thread only.

    ``silent``: bytes that come in are never passed on.
    """

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        broker: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        cuts: _Cuts,
    ) -> None:
        self._client = client
        self._broker = broker
        self._cuts = cuts
        self._requests = _Frames(_REQUEST_HEAD)
        self._responses = _Frames(_RESPONSE_HEAD)
        self._awaited: tuple[int, bytes] | None = None
        self._held = b""
        self._missing = 0
        self.silent = False

    async def run(self) -> None:
        pumps = [
            asyncio.ensure_future(self._pump(Direction.TO_BROKER)),
            asyncio.ensure_future(self._pump(Direction.TO_CLIENT)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self.end()

    def end(self) -> None:
        for _, writer in (self._client, self._broker):
            writer.transport.abort()

    async def _pump(self, direction: Direction) -> None:
        (reader, _), (_, writer) = (self._client, self._broker)
        if direction is Direction.TO_CLIENT:
            (reader, _), (_, writer) = (self._broker, self._client)
        while data := await self._read(reader):
            allowed = self._allowed(direction, data)
            if allowed is not None:
                writer.write(data[:allowed])
                if self._held:
                    await self._hold_rest(reader)
                    await self._read(reader)
                writer.close()
                await writer.wait_closed()
                return
            writer.write(data)
            await writer.drain()

    def _allowed(self, direction: Direction, data: bytes) -> int | None:
        """How many of these bytes may pass before the line is cut; None: all, and it is not."""
        asked = self._until_request(data) if direction is Direction.TO_BROKER else self._until_response(data)
        if asked is not None:
            return asked
        allowed = self._cuts.after.get(direction)
        if allowed is not None and len(data) >= allowed:
            del self._cuts.after[direction]
            return allowed
        if allowed is not None:
            self._cuts.after[direction] = allowed - len(data)
        return None

    def _until_request(self, data: bytes) -> int | None:
        for end, head in self._requests.heads(data):
            api_key = int.from_bytes(head[4:6])
            self._cuts.note(head, data[end : end + 4 + int.from_bytes(head[:4]) - _REQUEST_HEAD])
            if api_key == self._cuts.requests.get(Direction.TO_BROKER):
                self._cuts.happened(Direction.TO_BROKER)
                return end
            if api_key == self._cuts.hold:
                return self._hold(data, end, head)
            if api_key == self._cuts.requests.get(Direction.TO_CLIENT):
                self._awaited = api_key, head[8:12]
        return None

    def _hold(self, data: bytes, end: int, head: bytes) -> int:
        """Begins to hold the request back whose head ends at ``end``; returns how many bytes may pass."""
        size = 4 + int.from_bytes(head[:4])
        self._cuts.hold, self._cuts.arriving, self._cuts.repeated = None, self, False
        self._held = head + data[end : end + size - _REQUEST_HEAD]
        self._missing = size - len(self._held)
        return max(end - _REQUEST_HEAD, 0)

    async def _hold_rest(self, reader: asyncio.StreamReader) -> None:
        """Reads what of the request has not come yet. A client that breaks off has sent no request."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            request = self._held + await reader.readexactly(self._missing)
            if self._cuts.arriving is self:  # unless the network has healed meanwhile
                self._cuts.arriving, self._cuts.held = None, request
        self.silent = True

    def _until_response(self, data: bytes) -> int | None:
        for end, head in self._responses.heads(data):
            if (self._cuts.requests.get(Direction.TO_CLIENT), head[4:8]) == self._awaited:
                self._cuts.happened(Direction.TO_CLIENT)
                return max(end - _RESPONSE_HEAD, 0)
        return None

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        try:
            data = await reader.read(_READ_BYTES)
        except ConnectionError:
            data = b""
        if self.silent:
            await asyncio.Event().wait()
        return data


def redirected(proxies: Mapping[Address, Address]) -> type[Selector]:
    """A ``Selector`` that connects to the proxy of an address instead of to that address."""
    to = MappingProxyType(dict(proxies))

    class RedirectedSelector(Selector):
        def connect(self, connection_id: int, host: str, port: int, addresses: AddressList | None = None) -> None:
            super().connect(connection_id, *to.get((host, port), (host, port)), addresses)

    return RedirectedSelector
