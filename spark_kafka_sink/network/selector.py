"""The only sockets: non-blocking connections behind one ``selectors`` selector (Java: ``common.network.Selector``).
Tests have a scripted network in its place.

Owned by one thread; only ``wakeup`` is for any thread. A failing socket call ends its connection, or the attempt at one
address, and nothing else.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.network.messages import Bytes
from spark_kafka_sink.network.name_lookup import UNRESOLVED, AddressList, NameLookup, numeric_address

_READ_BYTES = 64 * 1024
_MAX_BUFFERS_PER_WRITE = max(os.sysconf("SC_IOV_MAX"), 16)
# epoll takes an int of milliseconds; the owner polls again.
_MAX_POLL_MS = 3_600_000.0
_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class Connected:
    """The connection is established; bytes may flow."""

    connection_id: int


@dataclass(frozen=True, slots=True)
class Received:
    connection_id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Written:
    """All bytes that ``send`` kept are written."""

    connection_id: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection failed, was lost or was closed by the peer. Its id is never used again."""

    connection_id: int
    reason: str


Event: TypeAlias = Connected | Received | Written | Closed


@dataclass(slots=True)
class NetworkCounters:
    """Counters of the selector, owned by the thread that runs the loop. ``operations``: reads and writes.

    ``waited_ns``: in select calls; ``io_ns``: connecting, reading and writing.
    """

    selects: int = 0
    waited_ns: float = 0.0
    io_ns: float = 0.0
    operations: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    connected: int = 0
    closed: int = 0


@dataclass(slots=True, eq=False)
class _Connection:
    """A connection: the addresses still to try, and once it is ``established``, the socket and the bytes that are not
    written yet."""

    id: int
    addresses: AddressList
    reasons: dict[str, None] = field(default_factory=dict)
    sock: socket.socket | None = None
    established: bool = False
    outgoing: deque[Bytes] = field(default_factory=deque)
    watches_write: bool = False


class Selector:
    """Connections by id. The owner chooses the ids and never uses one twice.

    ``send_buffer_bytes`` and ``receive_buffer_bytes``: the options of these names, -1 = the system's default.
    """

    def __init__(self, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1) -> None:
        self._buffer_sizes = ((socket.SO_SNDBUF, send_buffer_bytes), (socket.SO_RCVBUF, receive_buffer_bytes))
        self.counters = NetworkCounters()
        self._now = SystemClock().now
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, _Connection] = {}
        # Look-ups by host and port, and by the connection that waits for them.
        self._lookups: dict[tuple[str, int], NameLookup] = {}
        self._resolving: dict[int, NameLookup] = {}
        self._events: list[Event] = []
        self._wakeup_reader, self._wakeup_writer = socket.socketpair()
        self._wakeup_reader.setblocking(False)
        self._wakeup_writer.setblocking(False)
        self._selector.register(self._wakeup_reader, selectors.EVENT_READ, None)
        # poll: set `_sleeping`, then read `_woken`. wakeup: set `_woken`, then read `_sleeping`. One sees the other.
        self._sleeping = False
        self._woken = False

    def connect(self, connection_id: int, host: str, port: int, addresses: AddressList | None = None) -> None:
        """Starts connecting; ``Connected`` or ``Closed`` follows.

        Takes addresses from ``addresses`` until one accepts; looks the host up first if the list is empty. Default: the
        addresses of a new look-up.
        """
        addresses = AddressList() if addresses is None else addresses
        connection = self._connections[connection_id] = _Connection(connection_id, addresses)
        if not addresses:
            addresses.fill(numeric_address(host, port))
        if addresses:
            self._try_next_address(connection)
            return
        lookup = self._lookups.get((host, port))
        if lookup is None:
            lookup = self._lookups[host, port] = NameLookup(host, port, self.wakeup)
        self._resolving[connection.id] = lookup

    def send(self, connection_id: int, buffers: Sequence[Bytes]) -> bool:
        """Writes as much as fits and keeps the rest, by reference, until it can be written.

        True when all was written; otherwise ``Written`` or ``Closed`` follows.
        """
        connection = self._connections.get(connection_id)
        if connection is None:
            return False
        connection.outgoing.extend(filter(len, buffers))
        if not connection.established:
            return not connection.outgoing
        began = self._now()
        try:
            return self._flush(connection)
        except OSError as error:
            self._end(connection, _reason(error))
            return False
        finally:
            self.counters.io_ns += (self._now() - began) * _NS_PER_MS

    def close(self, connection_id: int) -> None:
        """Closes at once and drops unwritten bytes. No ``Closed`` follows."""
        connection = self._connections.pop(connection_id, None)
        self._resolving.pop(connection_id, None)
        if connection is not None:
            self._close_socket(connection)

    def poll(self, timeout_ms: float) -> list[Event]:
        """Waits for events or ``wakeup``, at most ``timeout_ms`` (``inf``: no limit). A socket that took a part of a
        request does not end the wait, because the caller has nothing to do then.
        """
        deadline = self._now() + min(max(timeout_ms, 0.0), _MAX_POLL_MS)
        while self._serve_sockets(deadline) and self._now() < deadline:
            continue
        events, self._events = self._events, []
        return events

    def _serve_sockets(self, deadline: float) -> bool:
        """Waits, and serves the sockets that are ready. Returns whether some were ready, but without an event or a
        wake-up.
        """
        began = self._now()
        self._sleeping = True
        timeout_ms = 0.0 if self._woken or self._events else max(deadline - began, 0.0)
        ready = self._selector.select(timeout_ms / 1000.0)
        self._sleeping = False
        woken = self._woken
        if woken:  # otherwise a wake-up that comes now would be lost: it ends the next select
            self._woken = False
        selected = self._now()
        counters = self.counters
        counters.selects += 1
        counters.waited_ns += (selected - began) * _NS_PER_MS
        for key, mask in ready:
            if key.data is None:
                woken = True
                self._drain_wakeups()
            else:
                self._serve(key.data, mask)
        if self._lookups:
            self._take_addresses()
        counters.io_ns += (self._now() - selected) * _NS_PER_MS
        return bool(ready) and not woken and not self._events

    def wakeup(self) -> None:
        """Ends the current poll, or else the next one, at once. For any thread."""
        if self._woken:
            return
        try:
            self._woken = True
            self._end_sleep()
        except BaseException:
            self._end_sleep()  # an interrupt (Ctrl-C): later calls rely on this one
            raise

    def _end_sleep(self) -> None:
        if self._sleeping:
            with suppress(OSError):  # full of earlier wake-ups, or already shut down
                self._wakeup_writer.send(b"\0")

    def shutdown(self) -> None:
        """Closes every connection and the selector itself."""
        # No unregister, no shutdown: a forked child shares its parent's sockets and epoll instance.
        self._selector.close()
        for connection in self._connections.values():
            if connection.sock is not None:
                connection.sock.close()
            self.counters.closed += connection.established
        self._connections.clear()
        self._resolving.clear()
        self._events.clear()
        self._wakeup_reader.close()
        self._wakeup_writer.close()

    def _serve(self, connection: _Connection, mask: int) -> None:
        try:
            if not connection.established:
                self._finish_connecting(connection)
            else:
                self._transfer(connection, mask)
        except OSError as error:
            if not connection.established:
                self._address_failed(connection, error)
                self._try_next_address(connection)
            else:
                self._end(connection, _reason(error))

    def _take_addresses(self) -> None:
        # Look-up: set `done`, then wake poll. poll: clear `_woken`, then read `done`. At least one sees the other.
        for connection_id, lookup in list(self._resolving.items()):
            if lookup.done:
                del self._resolving[connection_id]
                connection = self._connections[connection_id]
                if lookup.error:
                    self._end(connection, f"{UNRESOLVED}: {lookup.error}")
                else:
                    connection.addresses.fill(lookup.addresses)
                    self._try_next_address(connection)
        waited_for = set(self._resolving.values())
        self._lookups = {
            name: lookup for name, lookup in self._lookups.items() if lookup in waited_for or not lookup.done
        }

    def _try_next_address(self, connection: _Connection) -> None:
        while connection.addresses:
            family, address = connection.addresses.take()
            try:
                self._start_connecting(connection, family, address)
                return
            except (OSError, OverflowError) as error:
                self._address_failed(connection, error)
        self._end(connection, ", ".join(connection.reasons))

    def _address_failed(self, connection: _Connection, error: Exception) -> None:
        connection.reasons[_reason(error)] = None
        self._close_socket(connection)

    def _start_connecting(self, connection: _Connection, family: socket.AddressFamily, address: Any) -> None:
        connection.sock = sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in self._buffer_sizes:
            if size >= 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        with suppress(BlockingIOError):
            sock.connect(address)
        self._selector.register(sock, selectors.EVENT_WRITE, connection)

    def _finish_connecting(self, connection: _Connection) -> None:
        sock = connection.sock
        assert sock is not None
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        # On loopback an unused port may become our own local port: then the socket is connected to itself.
        if sock.getsockname() == sock.getpeername():
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        self._selector.modify(sock, selectors.EVENT_READ, connection)
        connection.established = True
        self.counters.connected += 1
        self._events.append(Connected(connection.id))
        if connection.outgoing and self._flush(connection):
            self._events.append(Written(connection.id))

    def _transfer(self, connection: _Connection, mask: int) -> None:
        if mask & selectors.EVENT_READ:
            self._read(connection)
        if mask & selectors.EVENT_WRITE and connection.outgoing and self._flush(connection):
            self._events.append(Written(connection.id))

    def _read(self, connection: _Connection) -> None:
        assert connection.sock is not None
        try:
            data = connection.sock.recv(_READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self.counters.operations += 1
            self.counters.bytes_in += len(data)
            self._events.append(Received(connection.id, data))
        else:
            self._end(connection, "the broker closed the connection")

    def _flush(self, connection: _Connection) -> bool:
        """Writes until the socket takes no more; True when nothing is left. Raises ``OSError``."""
        sock, outgoing = connection.sock, connection.outgoing
        assert sock is not None
        while outgoing:
            buffers = list(islice(outgoing, _MAX_BUFFERS_PER_WRITE))
            try:
                written = sock.sendmsg(buffers)
            except BlockingIOError:
                break
            self.counters.operations += 1
            self.counters.bytes_out += written
            if written < sum(map(len, buffers)):
                _forget(outgoing, written)
                break
            for _ in buffers:
                outgoing.popleft()
        self._watch_write(connection, bool(outgoing))
        return not outgoing

    def _watch_write(self, connection: _Connection, wanted: bool) -> None:
        if connection.watches_write is not wanted and connection.sock is not None:
            connection.watches_write = wanted
            interest = selectors.EVENT_READ | selectors.EVENT_WRITE if wanted else selectors.EVENT_READ
            self._selector.modify(connection.sock, interest, connection)

    def _end(self, connection: _Connection, reason: str) -> None:
        del self._connections[connection.id]
        self._close_socket(connection)
        self._events.append(Closed(connection.id, reason))

    def _close_socket(self, connection: _Connection) -> None:
        self.counters.closed += connection.established
        sock, connection.sock, connection.established = connection.sock, None, False
        connection.outgoing.clear()
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
