"""The rows that the sink's contract is tried with: everything a key, a value and headers can be."""

from __future__ import annotations

KEYS = (
    *(b"%d" % number for number in range(80)),
    *(b"k" * length for length in range(1, 12)),
    *(bytes([255 - length]) * length for length in range(1, 12)),
    "日本".encode(),
    b"\0",
    b"long" * 500,
)
HEADERS = (None, [("a", b"1")], [("a", None), ("a", b""), ("ž", b"\xff\x00")])
ROW_SCHEMA = "kind string, key binary, value binary, headers array<struct<key: string, value: binary>>"


def _values() -> list[bytes | None]:
    short = [b"value %d " % number * (number % 9) for number in range(600)]
    return [None, b"", b"\0\xff", b"x" * 200_000, *short, None, None, b"", b"the same", b"the same"]


def rows() -> list[tuple[object, ...]]:
    """Columns of ``ROW_SCHEMA``; ``kind`` is keyed or unkeyed."""
    return [
        (kind, KEYS[row % len(KEYS)] if kind == "keyed" else None, value, HEADERS[row % len(HEADERS)])
        for row, value in enumerate(_values())
        for kind in ("keyed", "unkeyed")
    ]
