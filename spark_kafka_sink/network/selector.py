"""The only sockets: non-blocking connections behind one ``selectors`` selector (Java: ``common.network.Selector``).

One thread owns it and calls everything, but for ``wakeup``, which any thread may call. A socket call that fails ends
its connection, or the attempt at one address, and nothing else.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from spark_kafka_sink.network.name_lookup import Address, NameLookup, numeric_address
from spark_kafka_sink.network.transport import Bytes, Closed, Connected, Event, Received, Written

_READ_BYTES = 64 * 1024
_MAX_BUFFERS_PER_WRITE = max(os.sysconf("SC_IOV_MAX"), 16)
# epoll takes an int of milliseconds; the owner polls again anyway.
_MAX_POLL_SECONDS = 3600.0


class Channel:
    """The bytes of one established connection, read and written without blocking."""

    __slots__ = ("_socket",)

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def read(self) -> bytes:
        """What is there, ``b""`` at the end of the stream; raises ``BlockingIOError`` when nothing is there yet."""
        return self._socket.recv(_READ_BYTES)

    def write(self, buffers: Sequence[Bytes]) -> int:
        """Number of bytes taken from the front of ``buffers``; raises ``BlockingIOError`` instead of 0."""
        return self._socket.sendmsg(buffers)


class _Link:
    """A connection: the addresses still to try, then the channel and what could not be written yet."""

    __slots__ = (
        "addresses",
        "channel",
        "host",
        "id",
        "outgoing",
        "port",
        "reasons",
        "socket",
        "trying",
        "watches_write",
    )

    def __init__(self, connection_id: int, host: str, port: int) -> None:
        self.id = connection_id
        self.host = host
        self.port = port
        self.addresses: deque[Address] = deque()
        self.trying: Address | None = None
        self.reasons: dict[str, None] = {}
        self.socket: socket.socket | None = None
        self.channel: Channel | None = None
        self.outgoing: deque[Bytes] = deque()
        self.watches_write = False


class Selector:
    """Implements ``Transport``.

    ``send_buffer_bytes`` and ``receive_buffer_bytes``: the options of these names, -1 = the system's default.
    """

    def __init__(self, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1) -> None:
        self._buffer_sizes = ((socket.SO_SNDBUF, send_buffer_bytes), (socket.SO_RCVBUF, receive_buffer_bytes))
        self._selector = selectors.DefaultSelector()
        self._links: dict[int, _Link] = {}
        # What names are being looked up, by host and port, and by the connections that wait for them.
        self._lookups: dict[tuple[str, int], NameLookup] = {}
        self._resolving: dict[int, NameLookup] = {}
        self._events: list[Event] = []
        # An address that was given up in mid-attempt, by host and port: the next attempt begins with the others.
        self._stuck: dict[tuple[str, int], Address] = {}
        self._wakeup_reader, self._wakeup_writer = socket.socketpair()
        self._wakeup_reader.setblocking(False)
        self._wakeup_writer.setblocking(False)
        self._selector.register(self._wakeup_reader, selectors.EVENT_READ, None)
        # Each flag has one writer at a time that matters: poll announces its sleep *before* it looks at `_woken`,
        # wakeup sets `_woken` *before* it looks at `_sleeping`. So one of the two always sees the other.
        self._sleeping = False
        self._woken = False

    def connect(self, connection_id: int, host: str, port: int) -> None:
        link = self._links[connection_id] = _Link(connection_id, host, port)
        known = numeric_address(host, port)
        if known:
            self._try_addresses(link, known)
            return
        lookup = self._lookups.get((host, port))
        if lookup is None:
            lookup = self._lookups[host, port] = NameLookup(host, port, self.wakeup)
        self._resolving[link.id] = lookup

    def send(self, connection_id: int, buffers: Sequence[Bytes]) -> bool:
        link = self._links.get(connection_id)
        if link is None:
            return True
        link.outgoing.extend(filter(len, buffers))
        if link.channel is None:
            return not link.outgoing
        try:
            return self._flush(link)
        except OSError as error:
            self._end(link, _reason(error))
            return True

    def close(self, connection_id: int) -> None:
        link = self._links.pop(connection_id, None)
        self._resolving.pop(connection_id, None)
        if link is not None:
            if link.channel is None and link.trying is not None:
                self._stuck[link.host, link.port] = link.trying
            self._close_socket(link)

    def poll(self, timeout_ms: float) -> list[Event]:
        self._sleeping = True
        timeout = 0.0 if self._woken or self._events else min(max(timeout_ms, 0.0) / 1000.0, _MAX_POLL_SECONDS)
        ready = self._selector.select(timeout)
        self._sleeping = False
        self._woken = False
        for key, mask in ready:
            if key.data is None:
                self._drain_wakeups()
            else:
                self._serve(key.data, mask)
        if self._lookups:
            self._take_addresses()
        events, self._events = self._events, []
        return events

    def wakeup(self) -> None:
        if self._woken:
            return
        self._woken = True
        if self._sleeping:
            try:
                self._wakeup_writer.send(b"\0")
            except OSError:
                # Full of earlier wake-ups, or already shut down: there is nobody left to wake.
                return

    def shutdown(self) -> None:
        # Nothing is unregistered or shut down on the way: a forked child that ends its copy leaves its parent's
        # sockets, which it shares, as they are.
        self._selector.close()
        for link in self._links.values():
            if link.socket is not None:
                link.socket.close()
        self._links.clear()
        self._resolving.clear()
        self._events.clear()
        self._wakeup_reader.close()
        self._wakeup_writer.close()

    def _serve(self, link: _Link, mask: int) -> None:
        try:
            if link.channel is None:
                self._finish_connecting(link)
            else:
                self._transfer(link, mask)
        except OSError as error:
            if link.channel is None:
                self._address_failed(link, error)
                self._try_next_address(link)
            else:
                self._end(link, _reason(error))

    def _take_addresses(self) -> None:
        # Lookup: set `done`, then wake the poll. Poll: clear `_woken`, then look here. At least one sees the other.
        for connection_id, lookup in list(self._resolving.items()):
            if lookup.done:
                del self._resolving[connection_id]
                link = self._links[connection_id]
                if lookup.error:
                    self._end(link, f"the host name cannot be resolved: {lookup.error}")
                else:
                    self._try_addresses(link, lookup.addresses)
        waited_for = set(self._resolving.values())
        self._lookups = {
            name: lookup for name, lookup in self._lookups.items() if lookup in waited_for or not lookup.done
        }

    def _try_addresses(self, link: _Link, addresses: Sequence[Address]) -> None:
        stuck = self._stuck.pop((link.host, link.port), None)
        link.addresses.extend(sorted(addresses, key=lambda address: address == stuck))
        self._try_next_address(link)

    def _try_next_address(self, link: _Link) -> None:
        while link.addresses:
            link.trying = family, address = link.addresses.popleft()
            try:
                self._start_connecting(link, family, address)
                return
            except (OSError, OverflowError) as error:
                self._address_failed(link, error)
        self._end(link, ", ".join(link.reasons))

    def _address_failed(self, link: _Link, error: Exception) -> None:
        link.reasons[_reason(error)] = None
        self._close_socket(link)

    def _start_connecting(self, link: _Link, family: socket.AddressFamily, address: Any) -> None:
        link.socket = sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in self._buffer_sizes:
            if size >= 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        with suppress(BlockingIOError):
            sock.connect(address)
        self._selector.register(sock, selectors.EVENT_WRITE, link)

    def _finish_connecting(self, link: _Link) -> None:
        sock = link.socket
        assert sock is not None
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        # On loopback a port nobody listens on may be drawn as our own: the socket is then connected to itself.
        if sock.getsockname() == sock.getpeername():
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        self._selector.modify(sock, selectors.EVENT_READ, link)
        link.channel = Channel(sock)
        self._events.append(Connected(link.id))
        if link.outgoing and self._flush(link):
            self._events.append(Written(link.id))

    def _transfer(self, link: _Link, mask: int) -> None:
        if mask & selectors.EVENT_READ:
            self._read(link)
        if mask & selectors.EVENT_WRITE and link.outgoing and self._flush(link):
            self._events.append(Written(link.id))

    def _read(self, link: _Link) -> None:
        assert link.channel is not None
        try:
            data = link.channel.read()
        except BlockingIOError:
            return
        if data:
            self._events.append(Received(link.id, data))
        else:
            self._end(link, "the broker closed the connection")

    def _flush(self, link: _Link) -> bool:
        """Writes until the socket takes no more; True when nothing is left. Raises ``OSError``."""
        channel, outgoing = link.channel, link.outgoing
        assert channel is not None
        while outgoing:
            buffers = list(islice(outgoing, _MAX_BUFFERS_PER_WRITE))
            try:
                written = channel.write(buffers)
            except BlockingIOError:
                break
            if written < sum(map(len, buffers)):
                _forget(outgoing, written)
                break
            for _ in buffers:
                outgoing.popleft()
        self._watch_write(link, bool(outgoing))
        return not outgoing

    def _watch_write(self, link: _Link, wanted: bool) -> None:
        if link.watches_write is not wanted and link.socket is not None:
            link.watches_write = wanted
            interest = selectors.EVENT_READ | selectors.EVENT_WRITE if wanted else selectors.EVENT_READ
            self._selector.modify(link.socket, interest, link)

    def _end(self, link: _Link, reason: str) -> None:
        del self._links[link.id]
        self._close_socket(link)
        self._events.append(Closed(link.id, reason))

    def _close_socket(self, link: _Link) -> None:
        sock, link.socket, link.channel, link.trying = link.socket, None, None, None
        link.outgoing.clear()
        if sock is not None:
            if sock in self._selector.get_map():
                self._selector.unregister(sock)
            with suppress(OSError):  # the descriptor is gone all the same
                sock.close()

    def _drain_wakeups(self) -> None:
        with suppress(OSError):
            while len(self._wakeup_reader.recv(_READ_BYTES)) == _READ_BYTES:
                continue


def _forget(outgoing: deque[Bytes], written: int) -> None:
    while written:
        head = outgoing[0]
        if written < len(head):
            outgoing[0] = memoryview(head)[written:]
            return
        written -= len(head)
        outgoing.popleft()


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
