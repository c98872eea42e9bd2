"""Inputs: a seed of a target with bytes cut, replaced, inserted and repeated, or with other values in its JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import reduce
from typing import Any, Final

from hypothesis import strategies as st

PIECES: Final = (
    b"\0", b"\xff", b"\x7f", b"\x80", b"\0\0", b"\xff\xff", b"\x7f\xff", b"\x80\0",
    bytes(4), b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", bytes(8), b"\xff" * 8, b"\x7f" + b"\xff" * 7,
    b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\0", b"\xff" * 9 + b"\x01", b"\xfe\xff\xff\xff\x1f",  # varints
    b"\x30\x80", b"\x84\xff\xff\xff\xff", b"\x04\0", b"\x30\0", b"\x02\x01\0", b"\x1f\xff\xff\x7f",  # DER
    b"\n", b"\r", b"\\", b'"', b"'", b" ", b"\t", b"=", b":", b";", b",", b".", b"-", b"/*", b"//", b"${", b"}", b"u",
    b"\xc3\xa9", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"-1", b"9" * 20, b"1e999",
)  # fmt: skip
"""Lengths, numbers and signs at the borders of formats."""

VALUES: Final = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 0.5, -0.0, 1e300, float("inf"),
    float("nan"), "", "a", "\0", "\ud800", "a" * 3000, "1", "-1", [], [[]], [None], {}, {"": None}, {"type": "record"},
)  # fmt: skip

TIMES: Final = (50, 400, 2000)
"""How often a piece is repeated, to show what grows faster than its input."""

DEEP: Final = 3000

Bend = tuple[str, int, bytes]
"""What is done, where (modulo the length), and with which bytes."""


BYTES: Final = st.binary(min_size=1, max_size=8)


def bends(piece: st.SearchStrategy[bytes] = BYTES) -> st.SearchStrategy[Bend]:
    kinds = ("cut", "overwrite", "insert", "remove", "flip", "repeat", "replace")
    return st.tuples(st.sampled_from(kinds), st.integers(0, 1 << 16), piece)


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


def inputs(seeds: Sequence[bytes], tokens: Sequence[bytes], *, is_json: bool) -> st.SearchStrategy[bytes]:
    """``tokens``: words of the format."""
    seed = st.sampled_from(list(seeds))
    piece = st.sampled_from([*PIECES, *tokens]) | BYTES
    place = st.integers(0, 1 << 16)
    changed = st.builds(lambda data, bent_by: reduce(bent, bent_by, data), seed, st.lists(bends(piece), max_size=6))
    joined = st.builds(_spliced, seed, place, seed, place)
    pumped = st.builds(lambda data, at, piece, times: bent(data, ("insert", at, piece * times)),
                       seed, place, piece, st.sampled_from(TIMES))  # fmt: skip
    if not is_json:
        return st.one_of(changed, changed, changed, joined, pumped)
    value = st.sampled_from(VALUES) | st.integers() | st.text(max_size=8) | st.floats()
    changes = st.lists(st.tuples(place, st.sampled_from(("replace", "remove", "rename", "nest")), value), max_size=4)
    valued = st.builds(with_other_values, seed, changes)
    return st.one_of(changed, valued, valued, valued, joined, pumped)


def _spliced(head: bytes, end: int, tail: bytes, start: int) -> bytes:
    return head[: end % (len(head) + 1)] + tail[start % (len(tail) + 1) :]


def with_other_values(data: bytes, changes: Sequence[tuple[int, str, Any]]) -> bytes:
    """``changes``: the number of a node (modulo how many there are), what is done with it, and another value."""
    root = [json.loads(data)]
    deep = None
    for number, what, value in changes:
        nodes = list(_nodes(root))
        holder, key = nodes[number % len(nodes)]
        if what == "replace":
            holder[key] = deepcopy(value)
        elif what == "nest":
            holder[key] = deep = "nested here"
        elif what == "remove":
            del holder[key]
        elif isinstance(holder, dict):
            holder[str(value)] = holder.pop(key)
        if not root:
            return b""
    text = json.dumps(root[0])
    if deep is not None:  # json.dumps has a limit, too
        text = text.replace(json.dumps(deep), "[" * DEEP + "]" * DEEP)
    return text.encode("utf-8", "surrogatepass")


def _nodes(holder: Any) -> Iterator[tuple[Any, Any]]:
    """Each value, by what holds it and its key or index. The first is the root, in a list of its own."""
    for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
        yield holder, key
        if isinstance(holder[key], dict | list):
            yield from _nodes(holder[key])
