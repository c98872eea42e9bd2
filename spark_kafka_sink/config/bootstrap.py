"""``bootstrap.servers`` (Java: ``ClientUtils.parseAndValidateAddresses``, without the look-up in the DNS)."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Java's pattern takes a protocol in front and an IPv6 address with or without its brackets.
_ADDRESS = re.compile(r"(?:(?P<protocol>[0-9A-Za-z\-%._]*)://)?\[?(?P<host>[0-9A-Za-z\-%._:]+?)\]?:(?P<port>[0-9]+)")
_LARGEST_PORT = 65535


def parse_address(text: str) -> tuple[str, int]:
    """``host:port`` or ``[ipv6]:port`` as (host, port); a ValueError says what is wrong with it."""
    if not text:
        raise ValueError("has an empty entry")
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ValueError(f"entry {text!r} is not host:port (an IPv6 address is written [::1]:9092)")
    protocol = match["protocol"]
    if protocol is not None and protocol.upper() != "PLAINTEXT":
        raise ValueError(f"entry {text!r} asks for {protocol}; this version speaks PLAINTEXT only")
    port = int(match["port"])
    if not 1 <= port <= _LARGEST_PORT:
        raise ValueError(f"entry {text!r} has port {port}; ports go from 1 to {_LARGEST_PORT}")
    return match["host"], port


def parse_addresses(entries: Sequence[str]) -> tuple[tuple[tuple[str, int], ...], list[str], list[str]]:
    """All entries as (host, port) in their order, each once; then what is wrong, then the entries given again."""
    addresses: dict[tuple[str, int], None] = {}
    wrong, repeated = [], []
    for entry in entries:
        try:
            address = parse_address(entry)
        except ValueError as error:
            wrong.append(str(error))
            continue
        if address in addresses:
            repeated.append(entry)
        addresses[address] = None
    return tuple(addresses), wrong, repeated
