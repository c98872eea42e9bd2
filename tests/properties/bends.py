"""Bytes of a peer or a file, bent: cut, with other bytes, lengthened, repeated."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import strategies as st

Bend = tuple[str, int, bytes]
"""What is done, where (modulo the length), and with which bytes."""

BENDS: st.SearchStrategy[Bend] = st.tuples(
    st.sampled_from(["cut", "overwrite", "insert", "remove", "flip", "repeat", "replace"]),
    st.integers(0, 1 << 16),
    st.binary(min_size=1, max_size=8),
)


def bent(data: bytes, bend: Bend) -> bytes:
    what, where, extra = bend
    at = where % (len(data) + 1)
    size = len(extra)
    match what:
        case "cut":
            return data[:at]
        case "overwrite":
            return data[:at] + extra + data[at + size :]
        case "insert":
            return data[:at] + extra + data[at:]
        case "remove":
            return data[:at] + data[at + size :]
        case "flip":
            flipped = bytes([data[at] ^ (1 << extra[0] % 8)]) if at < len(data) else b""
            return data[:at] + flipped + data[at + 1 :]
        case "repeat":
            return data[:at] + data[max(at - size * 8, 0) :]
        case _:
            return extra


def each_cut_and_flip(data: bytes) -> Iterator[bytes]:
    """Cut behind each byte; each bit flipped."""
    for at in range(len(data)):
        yield data[:at]
        for bit in range(8):
            yield data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]
