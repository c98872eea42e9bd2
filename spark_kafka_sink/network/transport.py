"""What the network client needs of the sockets. ``Selector`` implements it; tests have a scripted network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from spark_kafka_sink.network.name_lookup import AddressList

UNRESOLVED: Final = "the host name cannot be resolved"
"""The beginning of ``Closed.reason`` when there is no address to connect to."""

Bytes: TypeAlias = bytes | bytearray | memoryview
"""A memoryview must have single bytes as items, so that its length is its size."""


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
    """All bytes that ``send`` had kept are written now."""

    connection_id: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection failed, was lost or was closed by the peer. Its id is never used again."""

    connection_id: int
    reason: str


Event: TypeAlias = Connected | Received | Written | Closed


class Transport(Protocol):
    """Connections by id. The owner chooses the ids and never uses one twice. All but ``wakeup`` is for one thread."""

    def connect(self, connection_id: int, host: str, port: int, addresses: AddressList | None = None) -> None:
        """Starts connecting; ``Connected`` or ``Closed`` follows.

        Takes addresses from ``addresses`` until one accepts; looks the host up first if the list is empty. Default: the
        addresses of a new look-up.
        """

    def send(self, connection_id: int, buffers: Sequence[Bytes]) -> bool:
        """Writes as much as fits and keeps the rest, by reference, until it can be written.

        True when all was written; otherwise ``Written`` or ``Closed`` follows.
        """

    def close(self, connection_id: int) -> None:
        """Closes at once and drops unwritten bytes. No ``Closed`` follows."""

    def poll(self, timeout_ms: float) -> list[Event]:
        """Waits for events or ``wakeup``, at most ``timeout_ms`` (``inf``: no limit)."""

    def wakeup(self) -> None:
        """Ends the current poll, or else the next one, at once. For any thread."""

    def shutdown(self) -> None:
        """Closes every connection and the transport itself."""
