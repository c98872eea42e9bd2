"""The address of a server, and its text ``host:port`` as in ``bootstrap.servers``.

Processes of every Spark import this, so it imports nothing.
"""

from __future__ import annotations

Address = tuple[str, int]


def text_of(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def address_of(text: str) -> Address:
    host, port = text.split(":")
    return host, int(port)


def addresses_of(servers: str) -> list[Address]:
    """Those in a list with commas."""
    return [address_of(text) for text in servers.split(",")]
