"""Looks up the addresses of host names. A slow name server delays only the connections to that host."""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.waiting import start_thread
from spark_kafka_sink.errors import ConfigError

_log = logging.getLogger("spark_kafka_sink.network")

UNRESOLVED: Final = "the host name cannot be resolved"
"""The beginning of ``Closed.reason`` when there is no address to connect to."""

NO_SUCH_NAME: Final = "there is no such name"
"""The reason if waiting is useless, because the name servers know no such name, or it is no host name."""

_ABSENT = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))

Address: TypeAlias = tuple[socket.AddressFamily, Any]
Server: TypeAlias = tuple[str, int]

_ERRORS = (OSError, UnicodeError, OverflowError)


def numeric_address(host: str, port: int) -> tuple[Address, ...]:
    """The address if ``host`` is an IP address; empty for a name."""
    with suppress(*_ERRORS):
        return _addresses(host, port, socket.AI_NUMERICHOST)
    return ()


@dataclass(slots=True, eq=False)
class AddressList:
    """The addresses of one node's host name, in the order in which they are tried (Java: ``NodeConnectionState``).

    Until a connection is ready, each attempt takes the next address; after the last one the name is looked up again. A
    look-up after a ready connection was lost begins with the address after that connection's. Otherwise two addresses
    that complete the handshake and then close the connection would be tried in turn for ever, and a third never. (Java
    looks the name up after each TCP connection, so it may never reach the third.) Owned by the thread that owns the
    transport. The transport calls ``fill`` and ``take``, its owner the other methods.
    """

    _untried: deque[Address] = field(default_factory=deque)
    _taken: Address | None = None
    _lost: Address | None = None

    def __bool__(self) -> bool:
        """Whether ``take`` has an address that was not tried; otherwise the name must be looked up."""
        return bool(self._untried)

    def fill(self, addresses: Iterable[Address]) -> None:
        """Replaces the list by the addresses that a look-up found."""
        self._untried = deque(addresses)
        if self._lost is not None and self._lost in self._untried:
            self._untried.rotate(-self._untried.index(self._lost) - 1)

    def take(self) -> Address:
        """The next address, which is no longer in the list."""
        self._taken = self._untried.popleft()
        return self._taken

    def connection_ready(self) -> None:
        """The last address that was taken belongs to a broker, so the next connection looks the name up again."""
        self._untried.clear()
        self._lost = None

    def connection_lost(self) -> None:
        """A ready connection failed, so its address comes last after the next look-up."""
        self._lost = self._taken


class NameLookup:
    """Looks a name up on a thread of its own, which sets ``done`` last and then calls ``wakeup``.

    ``error``: the reason for empty ``addresses``.
    """

    def __init__(self, host: str, port: int, wakeup: Callable[[], None]) -> None:
        self.addresses: tuple[Address, ...] = ()
        self.error = ""
        self.done = False
        self._server = host, port
        self._wakeup = wakeup
        thread = threading.Thread(target=self._run, name=f"pykafka-dns-{host}", daemon=True)
        try:
            start_thread(thread)
        except RuntimeError:  # the process may have no more threads
            self._run()

    def _run(self) -> None:
        try:
            self.addresses = _addresses(*self._server)
        except _ERRORS as error:
            said = (error.strerror if isinstance(error, OSError) else None) or str(error)
            absent = not isinstance(error, OSError) or error.errno in _ABSENT
            self.error = f"{NO_SUCH_NAME} ({said})" if absent else said
        finally:
            self.done = True
            self._wakeup()


def bootstrap_servers(config: ProducerConfig) -> tuple[Server, ...]:
    """``bootstrap.servers``; if ``client.dns.lookup`` demands it, the canonical name of every address of every server
    (Java: ``ClientUtils.parseAndValidateAddresses``), without those that cannot be resolved. That look-up may block.

    Raises ``ConfigError`` if none can be resolved.
    """
    if config.client_dns_lookup == "use_all_dns_ips":
        return config.bootstrap_servers
    canonical: dict[Server, None] = {}
    unresolved: list[str] = []
    for host, port in config.bootstrap_servers:
        try:
            found = _addresses(host, port)
        except _ERRORS as error:
            unresolved.append(f"{host}:{port}")
            _log.warning("Couldn't resolve server %s:%d from bootstrap.servers: %s", host, port, error)
            continue
        canonical.update({(_canonical_name(address), port): None for _family, address in found})
    if not canonical:
        raise ConfigError([f"no host name of bootstrap.servers can be resolved: {', '.join(unresolved)}"])
    return tuple(canonical)


def _addresses(host: str, port: int, flags: int = 0) -> tuple[Address, ...]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return tuple(dict.fromkeys((family, address) for family, _type, _proto, _name, address in found))


def _canonical_name(address: Any) -> str:
    """The name of an address, or the address itself if the name cannot be resolved."""
    name = socket.getnameinfo(address, socket.NI_NUMERICSERV)[0]
    with suppress(*_ERRORS):
        if _addresses(name, address[1]):
            return name
    return str(address[0])
