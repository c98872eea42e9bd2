"""What the network client needs of sockets: the events and the ``Transport`` protocol. ``Selector`` implements it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

Bytes: TypeAlias = bytes | bytearray | memoryview
"""What may be sent; a memoryview of single bytes, so that its length is its size."""


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
    """Everything that a ``send`` had to leave behind has now been handed to the operating system."""

    connection_id: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection could not be established, was lost or was closed by the peer. Its id is never used again."""

    connection_id: int
    reason: str


Event: TypeAlias = Connected | Received | Written | Closed


class Transport(Protocol):
    """Connections by number. All methods belong to one thread, but for ``wakeup``.

    The owner chooses the ids and never uses one twice.
    """

    def connect(self, connection_id: int, host: str, port: int) -> None:
        """Starts connecting; ``Connected`` or ``Closed`` tells how it went."""

    def send(self, connection_id: int, buffers: Sequence[Bytes]) -> bool:
        """Writes what fits now and keeps the rest, by reference, until it can be written.

        True when all of it was written (or the connection is gone: ``Closed`` tells); otherwise ``Written`` follows.
        """

    def close(self, connection_id: int) -> None:
        """Closes at once, unwritten bytes are dropped. No ``Closed`` follows."""

    def poll(self, timeout_ms: float) -> list[Event]:
        """Waits for events, at most ``timeout_ms`` (0 = only looks, ``inf`` = until an event or ``wakeup``)."""

    def wakeup(self) -> None:
        """Ends the poll that is under way, or else the next one, at once. Any thread may call it."""

    def shutdown(self) -> None:
        """Closes every connection and frees what the transport holds. It cannot be used afterwards."""
