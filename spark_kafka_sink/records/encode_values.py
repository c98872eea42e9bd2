"""Values that are Python bytes → records of a record batch v2, without keys and headers and without an Arrow column.

What ``send`` mostly gets. The pieces of many records are laid into one list, a kind of piece at a time, and joined: for
what is a Python object anyway this costs a quarter of the way through Arrow, and it needs no copy but the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from operator import itemgetter

from spark_kafka_sink.records.encode import NO_ATTRIBUTES, NO_HEADERS, NULL
from spark_kafka_sink.records.varints import encode_varint, varint_size

_KEPT_LENGTHS = 1 << 13
_KEPT_PREFIXES = 1 << 12
_KEPT_OFFSETS = 1 << 16
_PIECES = 4


def encode_values(values: Sequence[bytes], lengths: Sequence[int], first: int, timestamp_delta: int) -> bytes:
    """Encode records that follow each other in one batch: ``first`` is the offset delta of the first of them.

    ``lengths`` are those of ``values``, at least one; all have the same timestamp. The bytes are those of
    ``encode_records``.
    """
    rows, length = len(values), lengths[0]
    # Of one length: what stands before each value is known. Worth a way of its own, twice as fast as the other.
    if lengths.count(length) == rows and not timestamp_delta and first + rows <= _KEPT_PREFIXES:
        pieces = [b""] * (2 * rows)
        pieces[::2] = _prefixes(length, (first + rows - 1).bit_length())[first : first + rows]
        pieces[1::2] = values
    else:
        pieces = _pieces(values, lengths, first, encode_varint(timestamp_delta))
    # A record's first piece begins with the end of the record before: set right at both ends.
    pieces[0] = pieces[0][len(NO_HEADERS) :]
    pieces.append(NO_HEADERS)
    return b"".join(pieces)


@lru_cache(maxsize=64)
def _prefixes(length: int, bits: int) -> list[bytes]:
    """All that stands before values of one length, up to an offset delta of so many bits."""
    rows = 1 << bits
    pieces = iter(_pieces([b""] * rows, [length] * rows, 0, encode_varint(0)))
    return [head + offset + size for head, offset, size, _ in zip(*[pieces] * _PIECES, strict=True)]


def _pieces(values: Sequence[bytes], lengths: Sequence[int], first: int, timestamp: bytes) -> list[bytes]:
    """Head, offset, length of the value, value; and the same of the next record."""
    rows = len(values)
    pieces = [b""] * (_PIECES * rows)
    start = 0
    while start < rows:
        size, limit = _same_size(first + start)
        end = min(rows, limit - first)
        heads = _heads(timestamp, size)
        pieces[_PIECES * start : _PIECES * end : _PIECES] = _look_up(heads, lengths[start:end])
        start = end
    pieces[1::_PIECES] = _offsets(first, rows)
    pieces[2::_PIECES] = _look_up(_VALUE_LENGTHS, lengths)
    pieces[3::_PIECES] = values
    return pieces


class _Heads(dict[int, bytes]):
    """By a value's length: the end of the record before, the length of this one, attributes and timestamp delta.

    ``sized``: how many bytes of the record there are besides the value with its length. A table that fills itself; what
    is rare in practice is not kept.
    """

    def __init__(self, sized: int, timestamp: bytes) -> None:
        super().__init__()
        self._sized = sized
        self._end = NO_ATTRIBUTES + timestamp

    def __missing__(self, length: int) -> bytes:
        head = NO_HEADERS + encode_varint(self._sized + varint_size(length) + length) + self._end
        return self.setdefault(length, head) if length < _KEPT_LENGTHS else head


class _ValueLengths(dict[int, bytes]):
    def __missing__(self, length: int) -> bytes:
        encoded = encode_varint(length)
        return self.setdefault(length, encoded) if length < _KEPT_LENGTHS else encoded


_VALUE_LENGTHS = _ValueLengths()


@lru_cache(maxsize=64)
def _heads(timestamp: bytes, offset_size: int) -> _Heads:
    """For records with this timestamp delta, whose offset deltas take so many bytes."""
    return _Heads(len(NO_ATTRIBUTES) + len(timestamp) + offset_size + len(NULL) + len(NO_HEADERS), timestamp)


def _look_up(table: Mapping[int, bytes], lengths: Sequence[int]) -> Sequence[bytes]:
    length = lengths[0]
    if lengths.count(length) == len(lengths):
        return [table[length]] * len(lengths)
    found: tuple[bytes, ...] = itemgetter(*lengths)(table)
    return found


def _same_size(delta: int) -> tuple[int, int]:
    """The bytes of an offset delta, and the first one that takes more."""
    size = varint_size(delta)
    return size, 1 << (7 * size - 1)


def _offsets(first: int, rows: int) -> Sequence[bytes]:
    """The offset delta and a null key of so many records from ``first`` on."""
    if first + rows <= _KEPT_OFFSETS:
        return _kept_offsets((first + rows - 1).bit_length())[first : first + rows]
    return [_offset(delta) for delta in range(first, first + rows)]


@cache
def _kept_offsets(bits: int) -> list[bytes]:
    return [_offset(delta) for delta in range(1 << bits)]


def _offset(delta: int) -> bytes:
    return encode_varint(delta) + NULL
