"""Inputs: a seed of a target with bytes cut, replaced, inserted and repeated, or with other values in its JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, Final

from hypothesis import strategies as st

from tests.properties.bends import Bend, bent

KINDS: Final = ("cut", "overwrite", "insert", "remove", "flip", "repeat", "replace")
"""The kinds of change that ``bent`` makes."""

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


def inputs(seeds: Sequence[bytes], tokens: Sequence[bytes], *, is_json: bool) -> st.SearchStrategy[bytes]:
    """``tokens``: words of the format."""
    seed = st.sampled_from(list(seeds))
    piece = st.sampled_from([*PIECES, *tokens]) | st.binary(min_size=1, max_size=8)
    bend = st.tuples(st.sampled_from(KINDS), st.integers(0, 1 << 16), piece)
    place = st.integers(0, 1 << 16)
    changed = st.builds(all_bent, seed, st.lists(bend, min_size=1, max_size=6))
    joined = st.builds(spliced, seed, place, seed, place)
    pumped = st.builds(repeated, seed, place, piece, st.sampled_from(TIMES))
    if not is_json:
        return st.one_of(changed, changed, changed, joined, pumped)
    value = st.sampled_from(VALUES) | st.integers() | st.text(max_size=8) | st.floats()
    nodes = st.lists(st.tuples(place, st.sampled_from(("replace", "remove", "rename", "nest")), value), max_size=4)
    valued = st.builds(with_other_values, seed, nodes)
    return st.one_of(changed, valued, valued, valued, joined, pumped)


def all_bent(data: bytes, bends: Sequence[Bend]) -> bytes:
    for bend in bends:
        data = bent(data, bend)
    return data


def spliced(head: bytes, end: int, tail: bytes, start: int) -> bytes:
    return head[: end % (len(head) + 1)] + tail[start % (len(tail) + 1) :]


def repeated(data: bytes, place: int, piece: bytes, times: int) -> bytes:
    at = place % (len(data) + 1)
    return data[:at] + piece * times + data[at:]


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
